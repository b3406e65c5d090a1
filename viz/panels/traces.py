"""Plotly traces, as plain dicts: a few for a whole timeline, never a shape a box."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipesim.idle import CAUSES
from pipesim.ir.action import Kind
from pipesim.ir.needs import Flow
from pipesim.timeline import Timeline
from pipesim.viz.look.palette import (
    CAUSE_COLOURS,
    CAUSE_WORDS,
    FLOW_COLOURS,
    FLOW_WORDS,
    KIND_COLOURS,
    KIND_PATTERNS,
    KIND_WORDS,
    THEMES,
    ThemeName,
    ink_on,
    shade_of_chunk,
    shades,
)
from pipesim.viz.panels.bars import (
    Bars,
    Drawn,
    chunk_of_stage,
    compute_bars,
    compute_extent,
    is_kind,
    transfer_bars,
)
from pipesim.viz.panels.hover import box_texts, idle_texts, waits

Trace = dict[str, Any]
Axes = tuple[str, str]

_PATTERN_OF = {KIND_WORDS[kind]: shape for kind, shape in KIND_PATTERNS.items()}
# Order of the legend, also where several timelines share one.
_RANKS = [
    *(KIND_WORDS[kind] for kind in KIND_COLOURS),
    *(FLOW_WORDS[flow] for flow in FLOW_COLOURS),
    "critical path",
    *(CAUSE_WORDS[cause] for cause in CAUSES),
]


def bar_traces(drawn: Drawn, axes: Axes) -> list[Trace]:
    """Idle spans, boxes, transfers and the critical path as plotly's bars, on the axes named."""
    found = [*_idle(drawn), *_boxes(drawn), *_transfers(drawn.timeline), _critical(drawn)]
    return [trace | {"xaxis": axes[0], "yaxis": axes[1], "showlegend": False} for trace in found]


def legend_traces(drawn: Drawn, axes: Axes) -> list[Trace]:
    """The entries of the legend, nothing to draw: they switch the bars of their name, or what the page paints."""
    found = []
    for name, group, colour in legend(drawn):
        shared = {"name": name, "legendgroup": name, "meta": "legend", "legendrank": _RANKS.index(name)}
        nothing = {"x": [None], "y": [None], "xaxis": axes[0], "yaxis": axes[1]}
        if group == "critical":
            look = {"type": "scatter", "mode": "lines", "line": {"color": colour, "width": 1.5}, "meta": "critical"}
        else:
            swatch = {"color": colour, "pattern": _pattern(_PATTERN_OF.get(name, "")), "line": {"width": 0}}
            look = {"type": "bar", "marker": swatch}
        found.append(shared | nothing | look)
    return found


def themed(traces: list[Trace], theme: ThemeName) -> list[Trace]:
    """With the lines whose colour depends on the paper in the right one."""
    colours = {"critical": THEMES[theme].critical, "limit": THEMES[theme].limit}
    return [
        trace | {"line": trace["line"] | {"color": colours[trace["meta"]]}} if trace.get("meta") in colours else trace
        for trace in traces
    ]


def legend(drawn: Drawn) -> list[tuple[str, str, str]]:
    """Name, group and colour of everything that occurs."""
    timeline, causes = drawn.timeline, set(drawn.idle.cause.tolist())
    ops = timeline.program.ops
    shown = (timeline.end > timeline.start) | timeline.program.is_compute
    kinds = set(np.unique(ops.kind[shown]).tolist())
    beside = transfer_bars(timeline)
    flows = set(np.unique(timeline.program.flow[beside.op]).tolist())
    found = [(KIND_WORDS[kind], "compute", colour) for kind, colour in KIND_COLOURS.items() if kind in kinds]
    found += [(FLOW_WORDS[flow], "transfers", colour) for flow, colour in FLOW_COLOURS.items() if flow in flows]
    found.append(("critical path", "critical", THEMES["light"].critical))
    return found + [
        (CAUSE_WORDS[cause], "idle", CAUSE_COLOURS[cause]) for code, cause in enumerate(CAUSES) if code in causes
    ]


def _bar(name: str, group: str, bars: Bars, colour: Any, text: list[str]) -> Trace:
    """One trace of boxes. `base` and `x` are the start and the duration in seconds."""
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "legendgroup": name,
        "meta": group,
        "base": bars.start,
        "x": bars.end - bars.start,
        "y": bars.rank + (bars.low + bars.high) / 2,
        "width": bars.high - bars.low,
        "customdata": bars.op,
        "marker": {"color": colour, "line": {"width": 0}},
        "hovertext": text,
        "hoverinfo": "text",
    }


def _pattern(shape: str) -> dict[str, Any]:
    """White strokes over the colour; dots are fainter, as numbers stand on them."""
    ink = f"rgba(255,255,255,{0.28 if shape == '.' else 0.42})"
    return {"shape": shape, "fillmode": "overlay", "fgcolor": ink, "size": 6, "solidity": 0.18}


def _boxes(drawn: Drawn) -> list[Trace]:
    timeline = drawn.timeline
    bars, waited = compute_bars(timeline), waits(drawn.idle)
    ops, chunk = timeline.program.ops, chunk_of_stage(timeline)
    by_chunk = shade_of_chunk(int(chunk.max()) + 1)
    found = []
    for kind, colour in KIND_COLOURS.items():
        mine = bars.take(is_kind(timeline, bars, kind))
        if not len(mine):
            continue
        steps = shades(colour)
        shade = by_chunk[chunk[ops.stage[mine.op]]] if kind <= Kind.W else np.zeros(len(mine), np.int64)
        trace = _bar(
            KIND_WORDS[kind], "compute", mine, [steps[step] for step in shade], box_texts(timeline, mine, waited)
        )
        trace["marker"]["line"] = {"width": 0.5, "color": "rgba(255,255,255,0.55)"}
        # Without a background plotly takes the list of colours for one.
        trace["marker"]["pattern"] = _pattern(KIND_PATTERNS.get(kind, "")) | {"bgcolor": "rgba(0,0,0,0)"}
        if kind <= Kind.W:
            ink = [ink_on(step) for step in steps]
            trace |= {
                "text": _labels(timeline, mine),
                "textposition": "inside",
                "insidetextanchor": "middle",
                "textangle": 0,
                "textfont": {"color": [ink[step] for step in shade], "size": 11},
                "constraintext": "inside",
            }
        found.append(trace)
    return found


def _labels(timeline: Timeline, bars: Bars) -> list[str]:
    """The microbatch, with its slice where there are slices."""
    ops = timeline.program.ops
    numbers = ops.microbatch[bars.op].tolist()
    if timeline.program.schedule.slices == 1:
        return [str(number) for number in numbers]
    return [f"{number}.{slice_}" for number, slice_ in zip(numbers, ops.slice[bars.op].tolist(), strict=True)]


def _transfers(timeline: Timeline) -> list[Trace]:
    bars = transfer_bars(timeline)
    flow, kind = timeline.program.flow[bars.op], timeline.program.ops.kind[bars.op]
    found = []
    for one, colour in FLOW_COLOURS.items():
        mine = bars.take((flow == one) & ((kind == Kind.SEND) | (kind == Kind.RECV)))
        if len(mine):
            found.append(_bar(FLOW_WORDS[Flow(one)], "transfers", mine, colour, box_texts(timeline, mine, {})))
    for other in (Kind.REDUCE, Kind.X, Kind.L):
        mine = bars.take(kind == other)
        if len(mine):
            text = box_texts(timeline, mine, {})
            found.append(_bar(KIND_WORDS[other], "transfers", mine, KIND_COLOURS[other], text))
    return found


def _idle(drawn: Drawn) -> list[Trace]:
    idle, text = drawn.idle, idle_texts(drawn.idle)
    found = []
    for code, cause in enumerate(CAUSES):
        mine = np.flatnonzero(idle.cause == code)
        if len(mine):
            low, high = (np.full(len(mine), edge) for edge in compute_extent(drawn.timeline))
            bars = Bars(np.full(len(mine), -1), idle.rank[mine], idle.begin[mine], idle.end[mine], low, high)
            shown = [text[at] for at in mine.tolist()]
            found.append(_bar(CAUSE_WORDS[cause], "idle", bars, CAUSE_COLOURS[cause], shown))
    return found


def _critical(drawn: Drawn) -> Trace:
    """A line through the operations that decide the step time."""
    timeline = drawn.timeline
    path = np.asarray(drawn.critical, np.int64)
    _, high = compute_extent(timeline)
    times = np.stack([timeline.start[path], timeline.end[path]], 1).ravel()
    rank = np.repeat(timeline.program.rank[path] + high, 2)
    keep = np.repeat(timeline.program.is_compute[path] | (timeline.program.ops.kind[path] == Kind.STEP), 2)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "critical path",
        "legendgroup": "critical path",
        "meta": "critical",
        "x": times[keep],
        "y": rank[keep],
        "line": {"color": THEMES["light"].critical, "width": 1.5},
        "hoverinfo": "skip",
    }
