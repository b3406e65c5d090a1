"""Which split and which batch serve the most requests a second within limits on latency.

For each way to fill the cluster the highest rate is searched at which enough requests keep both limits: between the
rate at which all prompts and outputs would keep it busy, which nothing can pass, and nothing. A rate is judged by a
simulated stream of `_REQUESTS` requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from pipesim.costs.layouts.layout import BadLayout
from pipesim.errors import PipesimError
from pipesim.serving.build import instance_of
from pipesim.serving.deployment import Deployment
from pipesim.serving.group import Step
from pipesim.serving.memory import ModelTooLarge, largest_batch
from pipesim.serving.requests import Lengths, Requests, at_once, poisson
from pipesim.serving.results import Served
from pipesim.serving.serve import PromptTooLong, serve
from pipesim.units import parse_seconds

_REQUESTS = 250
_ENOUGH = 0.90  # of the requests must keep the limits
_PRECISION = 1.06  # between the best rate and one that is too much
_ROUGH = 1.3  # the same for splits that are not the best
_SMALLEST = 0.01  # of the upper bound: a split that keeps the limits only below that counts as unable


@dataclass(eq=False)
class BadObjective(PipesimError):
    """Limits on latency that are not written as such."""

    given: str
    problem: str

    def __str__(self) -> str:
        return f"--slo {self.given}: {self.problem}, expected e.g. ttft=500ms,tpot=50ms"


@dataclass(eq=False)
class NothingServes(PipesimError):
    """No split of the cluster can serve the model."""

    model: str
    cluster: str
    reason: str

    def __str__(self) -> str:
        return f"no split of {self.cluster} serves {self.model}: {self.reason}"


@dataclass(frozen=True)
class Objective:
    """What a request must keep. Seconds."""

    ttft_s: float = float("inf")
    tpot_s: float = float("inf")

    def kept(self, found: Served) -> float:
        """Share of the requests that keep both."""
        if found.overload is not None:
            return 0.0
        each = found.each
        good = each.ttft_s <= self.ttft_s
        several = each.output > 1
        good[several] &= each.tpot_s <= self.tpot_s
        return float(np.mean(good))


@dataclass(frozen=True, eq=False)
class Choice:
    """One split with the batch that does best, and the figures at its highest good rate."""

    deployment: Deployment
    goodput_per_s: float
    """Requests a second within the limits; 0: none."""
    served: Served | None


@dataclass(frozen=True, eq=False)
class ServingPlan:
    """Splits, best first, and those that cannot hold the model, with reasons."""

    choices: tuple[Choice, ...]
    refused: Mapping[str, str]


def parse_objective(text: str) -> Objective:
    """`ttft=500ms,tpot=50ms`; either alone will do. Raises BadObjective, BadQuantity."""
    limits: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        name = name.strip().lower()
        if not equals or name not in ("ttft", "tpot"):
            raise BadObjective(text, f"{part.strip()!r} is no limit")
        limits[f"{name}_s"] = parse_seconds(value.strip(), name=name, positive=True)
    return Objective(**limits)


def plan_serving(
    base: Deployment,
    objective: Objective,
    *,
    prompt: Lengths,
    output: Lengths,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> ServingPlan:
    """Try all splits that fill the base's cluster, with its formats and engine. Raises NothingServes."""  # fmt: skip
    choices: list[Choice] = []
    refused: dict[str, str] = {}
    asked = _Asked(objective, prompt, output, seed)
    for tp, pp, replicas in splits(base):
        name = f"tp{tp} · pp{pp} · {replicas} replicas"
        if progress is not None:
            progress(name)
        try:
            made = base.with_split(tp=tp, pp=pp, replicas=replicas)
            choices.append(_best_batch(made, asked, max((choice.goodput_per_s for choice in choices), default=0.0)))
        except (BadLayout, ModelTooLarge, PromptTooLong) as error:
            refused[name] = str(error)
    if not choices:
        raise NothingServes(base.model.name, base.cluster.name, next(iter(refused.values()), "no split divides it"))
    return ServingPlan(tuple(sorted(choices, key=lambda choice: -choice.goodput_per_s)), refused)


@dataclass(frozen=True)
class _Asked:
    objective: Objective
    prompt: Lengths
    output: Lengths
    seed: int


def splits(base: Deployment) -> Iterator[tuple[int, int, int]]:
    """Every tp, pp and number of replicas that fill the cluster, tp within a node, largest tp first."""
    cluster = base.cluster
    node = min(node.gpus for node in cluster.nodes)
    for tp in (n for n in range(node, 0, -1) if node % n == 0):
        for pp in (n for n in range(1, base.model.layers + 1) if cluster.devices % (tp * n) == 0):
            yield tp, pp, cluster.devices // (tp * pp)


def _best_batch(made: Deployment, asked: _Asked, best: float) -> Choice:
    """The better of the engine's usual batch and the largest whose decoding alone keeps the limit."""
    limit, batches = asked.objective.tpot_s, {made.most_requests}
    if limit < float("inf"):
        batches.add(_batch_within(made, limit, round(asked.prompt.mean + asked.output.mean / 2)))
    tried: list[Choice] = []
    for batch in sorted(batches - {0}):
        tried.append(_best_rate(replace(made, batch=batch), asked, best))
        best = max(best, tried[-1].goodput_per_s)
    return max(tried, key=lambda choice: choice.goodput_per_s)


def _batch_within(made: Deployment, limit_s: float, context: int) -> int:
    """Most requests whose decoding step, with caches of so many tokens, takes at most the limit."""
    instance = instance_of(made)
    most = min(made.most_requests, largest_batch(made, context))

    def token(batch: int) -> float:
        size = max(1, batch // instance.groups)
        times = instance.seconds(Step(size, size * context, (), 0))
        round_trip = sum(times) + sum(float(hop[size]) for hop in instance.hops_s) + instance.back_s
        return max(round_trip, instance.groups * max(times))

    fits = [batch for batch in range(1, most + 1) if batch < 16 or batch % 16 == 0]
    return max((batch for batch in fits if token(batch) <= limit_s), default=0)


def _best_rate(made: Deployment, asked: _Asked, best: float) -> Choice:
    """The highest rate that keeps the objective, by halving between what is good and what is too much; roughly where
    it is not above `best` anyway."""
    above, below, found = _most_rate(made, asked), 0.0, None
    rate = best if 0 < best < above else above
    least = above * _SMALLEST
    while above > below * (_PRECISION if below >= best else _ROUGH) and above > least:
        figures = serve(made, _stream(made, rate, asked)).served
        if asked.objective.kept(figures) >= _ENOUGH:
            below, found = rate, figures
        else:
            above = rate
        rate = (below * above) ** 0.5 if below else above / 2
    return Choice(made, below, found)


def _most_rate(made: Deployment, asked: _Asked) -> float:
    """Requests a second when all are there from the start."""
    count = min(max(_REQUESTS, made.most_requests) * made.replicas, 4 * _REQUESTS)
    stream = at_once(count=count, prompt=round(asked.prompt.mean), output=round(asked.output.mean))
    return 1.2 * serve(made, stream).served.requests_per_s


def _stream(made: Deployment, rate: float, asked: _Asked) -> Requests:
    count = _REQUESTS * max(1, made.replicas // 2)
    return poisson(
        rate=rate, duration_s=count / rate, prompt=asked.prompt, output=asked.output, seed=asked.seed,
        most=made.most_context,
    )  # fmt: skip
