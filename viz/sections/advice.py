"""What the numbers of a step say, in sentences: where time goes, what would help, and by how much.

Every sentence is derived from figures of the step alone; a gain is an upper bound under everything else equal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipesim.costs.costs import Costs
from pipesim.metrics import Metrics
from pipesim.timeline import Timeline
from pipesim.units import format_bytes, format_fraction, format_seconds

_WORTH = 0.02  # part of the step below which nothing is said


@dataclass(frozen=True)
class Advice:
    """A sentence, and the part of the step time that it is about (1 and more: it cannot run at all)."""

    share: float
    text: str


def advice(timeline: Timeline, metrics: Metrics, costs: Costs | None = None) -> list[Advice]:
    """The most important first."""
    found = [
        _memory(timeline, metrics),
        _imbalance(timeline, metrics),
        _fill(timeline, metrics),
        _messages(metrics),
        _sends(metrics),
        _tail(metrics, "gradient_sync", "reducing gradients", "overlap it with the cool-down or reduce less often"),
        _tail(metrics, "optimizer", "the optimizer step", "shard the optimizer over the data-parallel ranks (ZeRO-1)"),
        _tensor(metrics, costs),
        _room(timeline, metrics),
    ]
    said = [one for one in found if one is not None and one.share >= _WORTH]
    return sorted(said, key=lambda one: -one.share)


def _memory(timeline: Timeline, metrics: Metrics) -> Advice | None:
    memory = timeline.memory
    if metrics.fits is not False or memory is None or memory.limit is None or metrics.peak_memory_bytes is None:
        return None
    over = metrics.peak_memory_bytes - memory.limit
    rank = int(over.argmax())
    held, short = metrics.peak_memory_bytes[rank] - memory.base[rank], format_bytes(float(over[rank]), digits=3)
    if held > memory.base[rank]:
        part = format_fraction(float(held / metrics.peak_memory_bytes[rank]), digits=2)
        what = f"activations are {part} of it: recompute them, or take a schedule that holds fewer"
    else:
        what = "weights, gradients and optimizer state are most of it: shard them (ZeRO) or split over more GPUs"
    return Advice(10.0, f"It does not fit: rank {rank} needs {short} more than its GPU has; {what}.")


def _imbalance(timeline: Timeline, metrics: Metrics) -> Advice | None:
    """The slowest rank sets the pace of all others."""
    busy = metrics.per_rank.busy_s
    slowest, mean = int(busy.argmax()), float(busy.mean())
    gain = float(busy[slowest]) - mean
    others = np.delete(metrics.per_rank.idle_s["producer"], slowest)
    if mean == 0 or not len(others):
        return None
    placement = timeline.program.schedule.placement
    last = any(placement.is_last(stage) for stage in placement.stages_of(slowest))
    where = " (it holds the last stage, with the head)" if last else ""
    longer, waits = format_fraction(gain / mean, digits=2), format_seconds(float(others.mean()), digits=3)
    text = (
        f"Rank {slowest} works {longer} longer than the ranks do on average{where}, and the others wait {waits} for "
        f"producers: moving layers off it would save up to {format_seconds(gain, digits=3)} a step."
    )
    return Advice(gain / metrics.step_time_s, text)


def _fill(timeline: Timeline, metrics: Metrics) -> Advice | None:
    """What the pipeline's own bubble costs, and what more microbatches or smaller stages would."""
    schedule = timeline.program.schedule
    ranks, busy = timeline.ranks, metrics.per_rank.busy_s
    even = ranks * float(busy.max())  # an idle rank beside a slow one is the slow one's matter
    bubble = ranks * metrics.makespan_s - even - metrics.idle_s["message"] - metrics.idle_s["send"]
    if ranks == 1 or bubble <= 0:
        return None
    share, twice = bubble / (ranks * metrics.makespan_s), bubble / (2 * even + bubble)
    plain = schedule.placement.stages == ranks and not schedule.splits_backward
    other = "; interleaved stages or a zero-bubble schedule would cut it at the same batch" if plain else ""
    text = (
        f"The pipeline's bubble, slow ranks and messages not counted, costs {format_fraction(share, digits=2)} of the "
        f"GPUs' time: with twice the {schedule.microbatches} microbatches it would be about "
        f"{format_fraction(twice, digits=2)}{other}."
    )
    return Advice(share, text)


def _messages(metrics: Metrics) -> Advice | None:
    share = _mean_share(metrics, "message")
    part = format_fraction(share, digits=2)
    return Advice(
        share,
        f"Ranks stand still {part} of the step while a message is on its way: put pipeline neighbours on faster links, "
        "or send in lanes of their own (--comm edge).",
    )


def _sends(metrics: Metrics) -> Advice | None:
    share = _mean_share(metrics, "send")
    part = format_fraction(share, digits=2)
    return Advice(share, f"Ranks are blocked in their own sends {part} of the step: overlapped sends win that back.")


def _tail(metrics: Metrics, cause: str, what: str, helps: str) -> Advice | None:
    share = _mean_share(metrics, cause)
    return Advice(share, f"{what[0].upper()}{what[1:]} takes {format_fraction(share, digits=2)} of the step: {helps}.")


def _tensor(metrics: Metrics, costs: Costs | None) -> Advice | None:
    seconds = metrics.exposed_comm_s.get("tensor")
    if costs is None or seconds is None:
        return None
    share = seconds / metrics.step_time_s
    part = format_fraction(share, digits=2)
    return Advice(
        share / 2,  # it is never all won back
        f"Communication inside the stages (tensor parallel) is {part} of the step: a smaller tensor-parallel degree, "
        "or overlapping it with the products, is worth trying.",
    )


def _room(timeline: Timeline, metrics: Metrics) -> Advice | None:
    memory = timeline.memory
    if memory is None or memory.limit is None or metrics.peak_memory_bytes is None or not metrics.fits:
        return None
    free = float(((memory.limit - metrics.peak_memory_bytes) / memory.limit).min())
    if free < 0.3:
        return None
    return Advice(
        _WORTH,
        f"{format_fraction(free, digits=2)} of the memory is free even on the fullest rank: less recomputation, larger "
        "micro-batches or a schedule that holds more activations would fit.",
    )


def _mean_share(metrics: Metrics, cause: str) -> float:
    return float(metrics.per_rank.idle_s[cause].mean()) / metrics.step_time_s if metrics.step_time_s else 0.0
