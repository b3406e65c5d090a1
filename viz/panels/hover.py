"""What a box says when pointed at."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

import numpy as np

from pipesim.idle import CAUSES, IdleSpans
from pipesim.ir.action import Kind
from pipesim.ir.needs import Flow
from pipesim.timeline import Timeline
from pipesim.units import format_seconds
from pipesim.viz.look.palette import CAUSE_WORDS, FLOW_WORDS, KIND_WORDS
from pipesim.viz.panels.bars import Bars

_UNITS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))


@dataclass(frozen=True)
class Wait:
    """What a box had waited for before it began."""

    seconds: float
    cause: str


def waits(idle: IdleSpans) -> dict[tuple[int, float], list[Wait]]:
    """Waits by the rank and the time they end at; a wait of two causes is two, first one first."""
    found: dict[tuple[int, float], list[Wait]] = {}
    began: dict[tuple[int, float], float] = {}
    for rank, start, end, cause in zip(
        idle.rank.tolist(), idle.begin.tolist(), idle.end.tolist(), idle.cause.tolist(), strict=True
    ):
        before = found.pop((rank, start), [])
        found[rank, end] = [*before, Wait(end - start, CAUSES[cause])]
        began[rank, end] = start
    return found


def box_texts(timeline: Timeline, bars: Bars, waited: Mapping[tuple[int, float], list[Wait]]) -> list[str]:
    """One text a box, with `<br>` between its lines."""
    ops = timeline.program.ops
    columns = (
        bars.op,
        bars.rank,
        ops.kind[bars.op],
        ops.stage[bars.op],
        ops.microbatch[bars.op],
        ops.slice[bars.op],
        bars.start,
        bars.end,
    )
    sliced = timeline.program.schedule.slices > 1
    texts = []
    for op, rank, kind, stage, microbatch, slice_, start, end in zip(*(c.tolist() for c in columns), strict=True):
        where = f"rank {rank} · stage {stage} · microbatch {microbatch}" + (f" · slice {slice_}" if sliced else "")
        lines = [f"<b>{escape(timeline.program.text(op))}</b> {_word(timeline, op, kind)}", where, _times(start, end)]
        lines += _wait_lines(timeline, op, waited.get((rank, start), ()))
        texts.append("<br>".join(lines))
    return texts


def idle_texts(idle: IdleSpans) -> list[str]:
    """One text an idle span."""
    return [
        f"<b>idle: {CAUSE_WORDS[CAUSES[cause]]}</b><br>rank {rank}<br>{_times(start, end)}"
        for rank, start, end, cause in zip(
            idle.rank.tolist(), idle.begin.tolist(), idle.end.tolist(), idle.cause.tolist(), strict=True
        )
    ]


def _word(timeline: Timeline, op: int, kind: int) -> str:
    word = KIND_WORDS[Kind(kind)]
    if kind in (Kind.SEND, Kind.RECV):
        way = "to" if kind == Kind.SEND else "from"
        flow = FLOW_WORDS.get(Flow(int(timeline.program.flow[op])), "")
        return f"{word} {flow} {way} rank {int(timeline.program.peer[op])}"
    return word


def _times(start: float, end: float) -> str:
    """Start and end with as many digits as tell them apart, and how long it took."""
    unit, scale = next(((unit, scale) for unit, scale in _UNITS if end >= scale), _UNITS[-1])
    took = (end - start) / scale
    digits = min(9, max(0, 2 - math.floor(math.log10(took)))) if took > 0 else 3
    begin, finish = (_trimmed(at / scale, digits) for at in (start, end))
    return f"{begin} → {finish} {unit}, <b>{format_seconds(end - start)}</b>"


def _trimmed(value: float, digits: int) -> str:
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _wait_lines(timeline: Timeline, op: int, waited: list[Wait] | tuple[()]) -> list[str]:
    lines = [f"before: {format_seconds(wait.seconds)} {CAUSE_WORDS[wait.cause]}" for wait in waited]
    needs = timeline.program.needs_of(op)
    if waited and len(needs):
        last = int(needs[np.argmax(timeline.end[needs])])
        lines[-1] += f" ({timeline.program.text(last)})"
    return lines
