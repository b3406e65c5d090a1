"""Memory of each rank under its boxes, on the same time axis."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipesim.ir.memory import activation_changes
from pipesim.timeline import Timeline
from pipesim.viz.look.palette import RANK_COLOURS, THEMES

Floats = NDArray[np.float64]

_MOST_POINTS = 1500  # of one curve; a longer one keeps the lowest and highest value of each part
_MOST_CURVES = 16  # above that, only the ranks with the highest and lowest peak and the range of all


def memory_traces(timeline: Timeline, *, axes: tuple[str, str]) -> list[dict[str, Any]]:
    """A step line a rank in bytes with the device's limit; without bytes, activations held in microbatches."""
    curves = [rank_curve(timeline, rank) for rank in range(timeline.ranks)]
    shown = _shown(curves)
    found = [_line(timeline, rank, *thinned(*curves[rank])) for rank in shown]
    memory = timeline.memory
    if memory is not None and memory.limit is not None:
        limit = float(memory.limit.min())
        found.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "memory limit",
                "meta": "limit",
                "x": [0.0, timeline.step_time_s],
                "y": [limit, limit],
                "line": {"color": THEMES["light"].limit, "width": 1.5, "dash": "dash"},
                "hovertemplate": "limit %{y:.4s}B<extra></extra>",
            }
        )
    for trace in found:
        trace |= {"xaxis": axes[0], "yaxis": axes[1], "legend": "legend2"}
    return found


def rank_curve(timeline: Timeline, rank: int) -> tuple[Floats, Floats]:
    """Times and what is held from each time on: bytes, or microbatches of activations where no bytes are known."""
    if timeline.memory is not None:
        return _settled(*timeline.memory.curve(rank))
    program, schedule = timeline.program, timeline.program.schedule
    mine = slice(int(schedule.offsets[rank]), int(schedule.offsets[rank + 1]))
    change = activation_changes(schedule)[mine]
    op = program.action_ops[mine]
    time = np.where(change > 0, timeline.start[op], timeline.end[op])
    order = np.lexsort((change, time))
    held = np.cumsum(change[order])
    return _settled(np.concatenate([[0.0], time[order]]), np.concatenate([[0.0], held]))


def _settled(time: Floats, held: Floats) -> tuple[Floats, Floats]:
    """Of changes at one moment the last: what is freed goes first, so that it is the highest, too."""
    last = np.append(np.diff(time) > 0, True)
    return time[last], held[last]


def thinned(time: Floats, held: Floats) -> tuple[Floats, Floats]:
    """A curve of at most about `_MOST_POINTS` points with the same extremes."""
    if len(time) <= _MOST_POINTS:
        return time, held
    part = np.linspace(0, len(time), _MOST_POINTS // 2 + 1).astype(np.int64)
    keep = [0, len(time) - 1]
    for begin, end in zip(part[:-1].tolist(), part[1:].tolist(), strict=True):
        keep += [begin + int(np.argmin(held[begin:end])), begin + int(np.argmax(held[begin:end]))]
    index = np.unique(keep)
    return time[index], held[index]


def _shown(curves: list[tuple[Floats, Floats]]) -> list[int]:
    if len(curves) <= _MOST_CURVES:
        return list(range(len(curves)))
    peaks = np.asarray([held.max() for _, held in curves])
    ends = [0, len(curves) - 1, int(peaks.argmax()), int(peaks.argmin())]
    spread = np.linspace(0, len(curves) - 1, _MOST_CURVES - len(ends)).astype(int).tolist()
    return sorted({*ends, *spread})


def _line(timeline: Timeline, rank: int, time: Floats, held: Floats) -> dict[str, Any]:
    unit = ":.4s}B" if timeline.memory is not None else ":.4~g} microbatches"
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"rank {rank}",
        "meta": "memory",
        "x": time,
        "y": held,
        "line": {"shape": "hv", "width": 1.3, "color": RANK_COLOURS[rank % len(RANK_COLOURS)]},
        "hovertemplate": f"rank {rank}: %{{y{unit}<extra></extra>",
    }
