"""From a deployment to the prices and rules with which its instances are simulated."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import numpy as np

from pipesim.costs.communication.p2p import p2p_seconds
from pipesim.serving.deployment import Deployment
from pipesim.serving.group import Rules
from pipesim.serving.instance import Instance
from pipesim.serving.kernels import ACTIVATION_BYTES
from pipesim.serving.memory import blocks_of
from pipesim.serving.step_costs import Floats, Place, StageCosts, stage_costs

_TOKEN_BYTES = 8.0


def rules_of(deployment: Deployment) -> Rules:
    """How the deployment's engine makes up steps. Raises ModelTooLarge."""
    return Rules(
        batch=deployment.most_requests,
        tokens=deployment.most_tokens,
        blocks=blocks_of(deployment),
        block_tokens=deployment.block_tokens,
        chunked=deployment.chunked,
        reserves=deployment.engine.reserves,
    )


@lru_cache(maxsize=256)
def instance_of(deployment: Deployment, *, most_tokens: int = 0, most_rows: int = 0, replica: int = 0) -> Instance:
    """Prices of one replica, for steps of at most so many new tokens and sampled sequences (0: the rules')."""
    tokens = max(most_tokens, deployment.most_tokens)
    rows = max(most_rows, min(tokens, deployment.most_requests))
    stages = _stages(deployment, tokens, rows, replica)
    firsts = [deployment.devices(stage, replica)[0] for stage in range(deployment.pp)]
    cluster = deployment.cluster
    hops = tuple(_hop(deployment, source, target, tokens) for source, target in pairwise(firsts))
    back = p2p_seconds(cluster, firsts[-1], firsts[0], _TOKEN_BYTES * deployment.most_requests / deployment.in_flight)
    return Instance(stages=stages, hops_s=hops, back_s=back, groups=deployment.in_flight)


def _stages(deployment: Deployment, tokens: int, rows: int, replica: int) -> tuple[StageCosts, ...]:
    """Equal stages share one object."""
    made: dict[tuple[object, ...], StageCosts] = {}
    found = []
    kinds, cluster = deployment.model.kinds(), deployment.cluster
    for index, stage in enumerate(deployment.stages):
        devices = deployment.devices(index, replica)
        span = cluster.span(devices)
        key = (kinds[stage.first : stage.first + stage.layers], stage.embedding, stage.head,
               cluster.gpu_of(devices[0]), span)  # fmt: skip
        if key not in made:
            place = Place(cluster=cluster, devices=devices, weights=deployment.weights,
                          cache_bytes=deployment.cache_bytes, engine=deployment.engine)  # fmt: skip
            made[key] = stage_costs(deployment.model, stage, place, most_tokens=tokens, most_rows=rows)
        found.append(made[key])
    return tuple(found)


def _hop(deployment: Deployment, source: int, target: int, most: int) -> Floats:
    """Of the activations of so many tokens from one stage to the next."""
    points = np.unique(np.geomspace(1, max(2, most), 40).round())
    width = deployment.model.hidden * ACTIVATION_BYTES
    seconds = [p2p_seconds(deployment.cluster, source, target, float(tokens * width)) for tokens in points]
    table: Floats = np.interp(np.arange(most + 1), points, seconds)
    return table
