"""What users of a served model saw, and what its GPUs did, from one simulated run or several side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipesim.serving.requests import Floats
from pipesim.serving.simulator import Run

PERCENTILES = (50, 90, 99)
_GROWTH = 0.02  # of the requests of the second half: more than that left behind is a queue that grows
_SIGMAS = 4.0


@dataclass(frozen=True)
class Spread:
    """Mean and percentiles of some seconds."""

    mean: float
    p50: float
    p90: float
    p99: float

    @staticmethod
    def of(values: Floats) -> Spread | None:
        """Of values, one a request; None where there are none."""
        if not len(values):
            return None
        p50, p90, p99 = (float(value) for value in np.percentile(values, PERCENTILES))
        return Spread(float(values.mean()), p50, p90, p99)

    def to_json(self) -> dict[str, float]:
        """As an object."""
        return {"mean": self.mean, "p50": self.p50, "p90": self.p90, "p99": self.p99}


@dataclass(frozen=True, kw_only=True)
class Overload:
    """A queue that grew without bound while requests came."""

    offered_per_s: float
    served_per_s: float
    growth_per_s: float
    """Requests by which those in the system grew a second."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PerRequest:
    """Arrays over requests: seconds, tokens, counts."""

    arrived_s: Floats
    started_s: Floats
    first_s: Floats
    done_s: Floats
    prompt: Floats
    output: Floats

    @property
    def ttft_s(self) -> Floats:
        """Time to the first token."""
        return self.first_s - self.arrived_s

    @property
    def tpot_s(self) -> Floats:
        """Time of each further token, mean over a request; only of requests with several tokens."""
        several = self.output > 1
        return (self.done_s - self.first_s)[several] / (self.output - 1)[several]

    @property
    def latency_s(self) -> Floats:
        """From arrival to the last token."""
        return self.done_s - self.arrived_s


@dataclass(frozen=True, kw_only=True, eq=False)
class Served:
    """Figures of a run. Latencies are None where the system was overloaded: they have no limit then."""

    requests: int
    duration_s: float
    """From the first arrival to the last token."""
    ttft: Spread | None
    tpot: Spread | None
    latency: Spread | None
    queue: Spread | None
    """Wait for the first step."""
    requests_per_s: float
    output_tokens_per_s: float
    total_tokens_per_s: float
    """Prompts too."""
    output_tokens_per_s_per_gpu: float
    bubble: float
    """Idle share of the stages while there were requests."""
    communication: float
    """Share of the stages' busy time that is tensor-parallel communication."""
    cache_peak: float
    """Largest share of the cache in use."""
    preemptions: int
    in_system: float
    """Requests in the system, mean over time."""
    steps: int
    overload: Overload | None
    each: PerRequest = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """The stable object of --json."""
        spreads = {"ttft_s": self.ttft, "tpot_s": self.tpot, "latency_s": self.latency, "queue_s": self.queue}
        plain = ("requests", "duration_s", "requests_per_s", "output_tokens_per_s", "total_tokens_per_s",
                 "output_tokens_per_s_per_gpu", "bubble", "communication", "cache_peak", "preemptions", "in_system",
                 "steps")  # fmt: skip
        found: dict[str, Any] = {name: getattr(self, name) for name in plain}
        found |= {name: spread.to_json() if spread else None for name, spread in spreads.items()}
        found["overloaded"] = self.overload is not None
        if self.overload is not None:
            found["overload"] = {
                "offered_per_s": self.overload.offered_per_s,
                "served_per_s": self.overload.served_per_s,
                "growth_per_s": self.overload.growth_per_s,
            }
        return found


def served(runs: Sequence[Run], *, gpus: int, each: PerRequest | None = None) -> Served:
    """Figures of instances that ran side by side on so many GPUs together.

    each: what requests saw, where a request passes several instances; else each is in one of the runs.
    """
    each = each or _each(runs)
    start, end = float(each.arrived_s.min()), float(each.done_s.max())
    duration = max(end - start, 1e-12)
    over = overload_of(each) if runs[0].requests.concurrency is None else None
    output, prompt = float(each.output.sum()), float(each.prompt.sum())
    stages = sum(len(run.busy_s) for run in runs)
    busy = sum(sum(run.busy_s) for run in runs)
    active = sum(_active_seconds(run) * len(run.busy_s) for run in runs)
    comm = sum(run.comm_s * len(run.busy_s) for run in runs)
    return Served(
        requests=len(each.done_s),
        duration_s=duration,
        ttft=None if over else Spread.of(each.ttft_s),
        tpot=None if over else Spread.of(each.tpot_s),
        latency=None if over else Spread.of(each.latency_s),
        queue=None if over else Spread.of(each.started_s - each.arrived_s),
        requests_per_s=len(each.done_s) / duration,
        output_tokens_per_s=output / duration,
        total_tokens_per_s=(output + prompt) / duration,
        output_tokens_per_s_per_gpu=output / duration / gpus,
        bubble=max(0.0, 1 - busy / active) if stages and active else 0.0,
        communication=comm / busy if busy else 0.0,
        cache_peak=max(run.batcher.cache.most / run.batcher.cache.blocks for run in runs),
        preemptions=sum(run.batcher.preemptions for run in runs),
        in_system=float(each.latency_s.sum()) / duration,
        steps=sum(len(run.steps.end_s) for run in runs),
        overload=over,
        each=each,
    )


def _each(runs: Sequence[Run]) -> PerRequest:
    def of(name: str) -> Floats:
        return np.concatenate([np.asarray(getattr(run.batcher, name), np.float64) for run in runs])

    return PerRequest(
        arrived_s=np.concatenate([np.asarray(run.arrived_s) for run in runs]),
        started_s=of("admitted_s"),
        first_s=of("first_s"),
        done_s=of("done_s"),
        prompt=of("prompt"),
        output=of("output"),
    )


def _active_seconds(run: Run) -> float:
    """Time in which at least one request was there."""
    arrived, done = np.asarray(run.arrived_s), np.asarray(run.batcher.done_s)
    order = np.argsort(arrived, kind="stable")
    latest = np.maximum.accumulate(done[order])
    gaps = np.maximum(0.0, arrived[order][1:] - latest[:-1])
    return float(latest[-1] - arrived.min() - gaps.sum())


def overload_of(each: PerRequest) -> Overload | None:
    """Whether requests in the system kept growing through the second half of the arrivals, beyond chance."""
    start, end = float(each.arrived_s.min()), float(each.arrived_s.max())
    if end <= start:
        return None
    middle = (start + end) / 2
    there = [int((each.arrived_s <= at).sum() - (each.done_s <= at).sum()) for at in (middle, end)]
    came = int((each.arrived_s > middle).sum())
    growth = there[1] - there[0]
    if growth <= max(_GROWTH * came, _SIGMAS * came**0.5):
        return None
    done = int(((each.done_s > middle) & (each.done_s <= end)).sum())
    half = end - middle
    return Overload(offered_per_s=came / half, served_per_s=done / half, growth_per_s=growth / half)
