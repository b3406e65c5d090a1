"""Serving a stream of requests on a deployment: checks, replicas side by side, figures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipesim.errors import PipesimError
from pipesim.serving.build import instance_of, rules_of
from pipesim.serving.deployment import Deployment
from pipesim.serving.group import Rules
from pipesim.serving.requests import Requests
from pipesim.serving.results import Served, served
from pipesim.serving.simulator import Progress, Run, run


@dataclass(eq=False)
class PromptTooLong(PipesimError):
    """A request that the model, or the cache, has no room for."""

    request: int
    tokens: int
    most: int
    of: str

    def __str__(self) -> str:
        return (
            f"request {self.request} has {self.tokens} tokens of prompt and output, "
            f"but {self.of} holds {self.most}; at most {self.most} work"
        )


@dataclass(frozen=True, eq=False)
class Service:
    """Figures and the runs of the replicas behind them."""

    served: Served
    runs: tuple[Run, ...]
    rules: Rules


def serve(deployment: Deployment, requests: Requests, *, progress: Progress | None = None, keep: int = 0) -> Service:
    """Simulate all requests, dealt to the replicas in turn. Raises ModelTooLarge, PromptTooLong."""
    rules = rules_of(deployment)
    check(requests, rules, deployment.most_context, deployment.model.name)
    most = int((requests.prompt + requests.output).max()) if not rules.chunked else 0
    runs = []
    for replica in range(min(deployment.replicas, len(requests))):
        instance = instance_of(deployment, most_tokens=most, replica=replica)
        runs.append(run(requests.part(replica, deployment.replicas), instance, rules, progress=progress, keep=keep))
    return Service(served(runs, gpus=deployment.gpus), tuple(runs), rules)


def check(requests: Requests, rules: Rules, context: int, model: str) -> None:
    """Raise PromptTooLong where a request can never be served."""
    totals = requests.prompt + requests.output
    worst = int(np.argmax(totals))
    tokens = int(totals[worst])
    if context and tokens > context:
        raise PromptTooLong(worst, tokens, context, f"the context of {model}")
    room = rules.blocks * rules.block_tokens
    if tokens > room:
        raise PromptTooLong(worst, tokens, room, "the whole cache of a replica")
