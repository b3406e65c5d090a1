"""What one static batch costs as the schedules `decode` and `forward-only`: for the engines and the executor.

The same prices as in the request-level simulator, laid out as `Costs` of stages, groups and tokens, so that a
generation can be simulated by `simulate` and laid beside a measured one.
"""

from __future__ import annotations

import numpy as np

from pipesim.costs.costs import Costs, Floats
from pipesim.costs.network import Network, Route
from pipesim.ir.action import Kind
from pipesim.ir.needs import Flow
from pipesim.serving.build import instance_of
from pipesim.serving.deployment import Deployment
from pipesim.serving.group import Step
from pipesim.serving.instance import Instance
from pipesim.serving.kernels import ACTIVATION_BYTES

_TOKEN_BYTES = 8.0


def generation_costs(deployment: Deployment, *, batch: int, prompt: int, output: int) -> Costs:
    """Costs of `decode` with `ranks` stages, groups as microbatches and one slice a token, the prompt in the first.

    batch: sequences of all groups together. With output = 1 they are the costs of `forward-only`: reading prompts.
    """
    groups = deployment.in_flight
    size = -(-batch // groups)
    instance = instance_of(deployment, most_tokens=size * prompt, most_rows=size)
    steps = [Step(0, 0, ((0, prompt),) * size, size)]
    steps += [Step(size, size * (prompt + made), (), 0) for made in range(output - 1)]
    seconds = np.array([instance.seconds(step) for step in steps]).T  # stages, tokens
    width = deployment.model.hidden * ACTIVATION_BYTES
    sent = np.array([[step.tokens * width for step in steps]] * deployment.pp)
    return Costs(
        deployment.pp,
        {Kind.F: _of_groups(seconds, groups)},
        message_bytes={
            Flow.ACTIVATION: _of_groups(sent, groups),
            Flow.TOKEN: np.full(deployment.pp, _TOKEN_BYTES * size),
        },
        network=_network(deployment, instance, size),
    )


def _of_groups(values: Floats, groups: int) -> Floats:
    """(stages, tokens) → (stages, groups, tokens)."""
    return np.repeat(values[:, None, :], groups, axis=1)


def _network(deployment: Deployment, instance: Instance, size: int) -> Network:
    """Lines through the prices of a message of one step of decoding and one of prompts; tokens take the way back."""
    width = deployment.model.hidden * ACTIVATION_BYTES
    routes: dict[tuple[int, int], Route] = {}
    for stage, hop in enumerate(instance.hops_s):
        most = len(hop) - 1
        few = min(size, most - 1)
        slope = max(1e-30, float(hop[most] - hop[few]) / ((most - few) * width))
        routes[stage, stage + 1] = Route(max(0.0, float(hop[few]) - few * width * slope), 1 / slope)
    if deployment.pp > 1:
        routes[deployment.pp - 1, 0] = Route(instance.back_s)
    return Network(routes=routes)
