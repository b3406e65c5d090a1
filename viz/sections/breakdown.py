"""Where each rank's time and memory go, and what each stage's work consists of: stacked bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from pipesim.costs.costs import StageBytes
from pipesim.costs.times.parts import Part
from pipesim.idle import CAUSES
from pipesim.ir.action import COMPUTE
from pipesim.metrics import Metrics
from pipesim.timeline import Timeline
from pipesim.viz.look.layout import as_figure, base_layout, rank_axis
from pipesim.viz.look.palette import (
    CAUSE_COLOURS,
    CAUSE_WORDS,
    KIND_COLOURS,
    KIND_PATTERNS,
    KIND_WORDS,
    MEMORY_COLOURS,
    PART_COLOURS,
    THEMES,
    ThemeName,
)
from pipesim.viz.panels.meta import figure_meta

Floats = NDArray[np.float64]
_BAR, _TOP, _BOTTOM = 26, 46, 46  # pixels


def time_by_rank(timeline: Timeline, metrics: Metrics, *, theme: ThemeName = "light") -> go.Figure:
    """Seconds of the step by kind of work and cause of idleness, a bar a rank."""
    program = timeline.program
    took = timeline.end - timeline.start
    # A fused pair's time belongs to both of its actions: half to each.
    share = np.where(program.ops.fused | np.append(program.ops.fused[1:], False), 0.5, 1.0)
    bars: dict[str, tuple[Floats, str, str]] = {}
    for kind in COMPUTE:
        mine = program.ops.kind == kind
        if mine.any():
            seconds = np.bincount(program.rank[mine], (took * share)[mine], minlength=timeline.ranks)
            bars[KIND_WORDS[kind]] = (seconds.astype(np.float64), KIND_COLOURS[kind], KIND_PATTERNS[kind])
    for cause in CAUSES:
        if metrics.per_rank.idle_s[cause].any():
            bars[CAUSE_WORDS[cause]] = (metrics.per_rank.idle_s[cause], CAUSE_COLOURS[cause], "")
    return _stacked(bars, "s", [f"rank {rank}" for rank in range(timeline.ranks)], theme)


def memory_by_rank(timeline: Timeline, held: StageBytes, *, theme: ThemeName = "light") -> go.Figure | None:
    """Bytes at the peak of each rank; None where the timeline knows no bytes."""
    memory = timeline.memory
    if memory is None:
        return None
    placement = timeline.program.schedule.placement
    bars: dict[str, tuple[Floats, str, str]] = {}
    rest = memory.peak.copy()
    states = {"weights": held.weights, "gradients": held.gradients, "optimizer state": held.optimizer}
    for name, of_stage in states.items():
        each = np.bincount(placement.ranks_of_stages, of_stage, minlength=placement.ranks).astype(np.float64)
        bars[name] = (each, MEMORY_COLOURS[name], "")
        rest -= each
    bars["overhead"] = (np.asarray(held.overhead, float), MEMORY_COLOURS["overhead"], "")
    bars["activations and buffers"] = (rest - held.overhead, MEMORY_COLOURS["activations and buffers"], "/")
    figure = _stacked(bars, "B", [f"rank {rank}" for rank in range(timeline.ranks)], theme)
    if memory.limit is not None:
        limit = float(memory.limit.min())
        line = {"color": THEMES[theme].limit, "width": 2, "dash": "dash"}
        figure.add_trace({
            "type": "scatter", "mode": "lines", "name": "memory limit", "x": [limit, limit],
            "y": [-0.5, timeline.ranks - 0.5], "line": line, "hoverinfo": "name",
        })  # fmt: skip
    return figure


def time_by_stage(parts: Sequence[Sequence[Part]], *, theme: ThemeName = "light") -> go.Figure:
    """Forward and backward seconds of one microbatch by what the GPU does, a bar for each run of equal stages."""
    groups: dict[str, Floats] = {}
    for stage, mine in enumerate(parts):
        for part in mine:
            groups.setdefault(part.group, np.zeros(len(parts)))[stage] += part.total_s
    seconds = np.stack(list(groups.values()), 1)
    first = np.flatnonzero(np.append(True, (np.abs(np.diff(seconds, axis=0)) > 1e-12).any(axis=1)))
    last = np.append(first[1:], len(parts)) - 1
    rows = [f"stage {a}" if a == b else f"stages {a}–{b}" for a, b in zip(first.tolist(), last.tolist(), strict=True)]
    bars = {
        group: (each[first], PART_COLOURS.get(group, "#7d8894"), "") for group, each in groups.items() if each.any()
    }
    return _stacked(bars, "s", rows, theme)


def _stacked(
    bars: Mapping[str, tuple[Floats, str, str]], unit: str, rows: Sequence[str], theme: ThemeName
) -> go.Figure:
    """Horizontal bars, the first row on top."""
    colours = THEMES[theme]
    height = _TOP + _BOTTOM + min(max(len(rows) * _BAR, 90), 1000)
    data: list[dict[str, Any]] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "x": values,
            "y": list(range(len(rows))),
            "marker": {
                "color": colour,
                "pattern": {"shape": pattern, "fgcolor": "rgba(255,255,255,0.45)", "size": 6, "solidity": 0.18},
            },
            "customdata": list(rows),
            "hovertemplate": f"%{{customdata}}: {name} %{{x:.4s}}{unit}<extra></extra>",
        }
        for name, (values, colour, pattern) in bars.items()
    ]
    layout = base_layout(theme, height=height, top=_TOP, bottom=_BOTTOM)
    layout["legend"] |= {"y": 1 - 6 / height, "yanchor": "top", "traceorder": "normal"}
    axis = rank_axis(theme, len(rows))
    layout["margin"] = layout["margin"] | {"l": 96}
    layout |= {
        "barmode": "stack",
        "bargap": 0.25,
        "xaxis": {
            "tickformat": "~s", "ticksuffix": unit, "gridcolor": colours.grid, "zeroline": False,
            "tickfont": {"color": colours.faint}, "fixedrange": True,
        },
        "yaxis": axis | {"ticktext": [rows[row] for row in axis["tickvals"]], "fixedrange": True},
        "meta": figure_meta([], painted=False, theme=theme, headline=["", ""]),
    }  # fmt: skip
    return as_figure({"data": data, "layout": layout})
