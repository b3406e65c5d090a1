"""Two runs of one schedule, simulated and measured say, and between them how late each action starts."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from pipesim.errors import PipesimError
from pipesim.ir.action import Kind
from pipesim.metrics import Metrics, summarize
from pipesim.timeline import Timeline
from pipesim.units import format_seconds
from pipesim.viz.comparison import stacked
from pipesim.viz.look.layout import short
from pipesim.viz.look.palette import DIVERGING, KIND_WORDS, ThemeName
from pipesim.viz.panels.bars import Drawn, compute_bars, drawn
from pipesim.viz.panels.meta import panel_meta
from pipesim.viz.panels.panel import Panel, is_painted
from pipesim.viz.sections.table import MetricRow, metric_rows

Floats = NDArray[np.float64]
_OUTLIERS = 0.98  # part of the actions within the colour scale


@dataclass(eq=False)
class NothingInCommon(PipesimError):
    """Two timelines that are not of the same schedule."""

    one: str
    other: str

    def __str__(self) -> str:
        return f"{self.one} and {self.other} have no action in common: compare two runs of one schedule"


@dataclass(frozen=True, eq=False)
class Lateness:
    """Of each operation of the second run: how much later it starts and how much longer it takes, in seconds.

    NaN where the first run has no such action. scale_s: the lateness that has the strongest colour.
    """

    late_s: Floats
    longer_s: Floats
    scale_s: float


def lateness(one: Timeline, other: Timeline) -> Lateness:
    """Compare start and duration action by action. Raises NothingInCommon."""
    count = len(other.program)
    late, longer = np.full(count, np.nan), np.full(count, np.nan)
    known = {key: op for op, key in zip(*_keyed(one), strict=True)}
    pairs = [(known[key], op) for op, key in zip(*_keyed(other), strict=True) if key in known]
    if not pairs:
        raise NothingInCommon(one.name, other.name)
    mine, theirs = np.asarray(pairs).T
    late[theirs] = other.start[theirs] - one.start[mine]
    longer[theirs] = other.end[theirs] - other.start[theirs] - (one.end[mine] - one.start[mine])
    scale = float(np.quantile(np.abs(late[theirs]), _OUTLIERS))
    return Lateness(late, longer, scale or one.step_time_s * 1e-3 or 1.0)


def difference(
    one: Timeline, other: Timeline, found: Sequence[Metrics] | None = None, *, theme: ThemeName = "light"
) -> go.Figure:
    """Both runs from their first action on, and the second once more, coloured by how late each action starts.

    Raises NothingInCommon.
    """
    pair = (_from_first(one), _from_first(other))
    known = list(found) if found is not None else [summarize(run) for run in pair]
    late = lateness(*pair)
    what = drawn(pair[1])
    painted = is_painted([drawn(pair[0]), what, what])
    third = _panel(what, late, painted=painted)
    heading = f"<b>difference</b>  {short(_called(other))} against {short(_called(one))}: {_in_words(late)}"
    return stacked(pair, known, theme=theme, extra=(third, heading), rows=_table(pair, known))


def _called(timeline: Timeline) -> str:
    return f"{timeline.name}, {timeline.source}"


def _from_first(timeline: Timeline) -> Timeline:
    """The same run with its first action at 0."""
    first = float(timeline.start[timeline.boxes].min(initial=np.inf))
    if first == 0 or not np.isfinite(first):
        return timeline
    return replace(timeline, start=timeline.start - first, end=timeline.end - first)


def _keyed(timeline: Timeline) -> tuple[list[int], list[tuple[int, ...]]]:
    ops = timeline.program.ops
    mine = np.flatnonzero(timeline.program.is_compute)
    columns = (ops.kind[mine], ops.stage[mine], ops.microbatch[mine], ops.slice[mine])
    return mine.tolist(), list(zip(*(column.tolist() for column in columns), strict=True))


def _in_words(late: Lateness) -> str:
    known = late.late_s[~np.isnan(late.late_s)]
    middle = float(np.median(known))
    word = "later" if middle >= 0 else "earlier"
    return f"half of the actions start {format_seconds(abs(middle), digits=3)} {word} or more"


def _table(pair: tuple[Timeline, Timeline], known: Sequence[Metrics]) -> dict[str, Any]:
    """Figures of both runs, and the second against the first; neither is better for it."""
    rows = [*metric_rows(known), *_durations(*pair)]
    return {
        "names": [*(_called(run) for run in pair), "difference"],
        "rows": [{"label": row.label, "texts": [*row.texts, _change(*row.values)], "best": ()} for row in rows],
    }


def _change(one: float | None, other: float | None) -> str:
    if one is None or other is None or one == 0:
        return "–"
    change = round((other - one) / abs(one), 4)
    return f"{change:+.2%}" if change else "0 %"


def _durations(one: Timeline, other: Timeline) -> list[MetricRow]:
    """Mean duration of each kind."""
    rows = []
    for kind in (Kind.F, Kind.B, Kind.I, Kind.W):
        means: list[float | None] = []
        for run in (one, other):
            mine = (run.program.ops.kind == kind) & ~run.program.ops.fused
            means.append(float((run.end - run.start)[mine].mean()) if mine.any() else None)
        if any(mean is not None for mean in means):
            texts = tuple("–" if mean is None else format_seconds(mean) for mean in means)
            rows.append(MetricRow(f"{KIND_WORDS[kind]}, mean", tuple(means), texts, 0))
    return rows


def _panel(what: Drawn, late: Lateness, *, painted: bool) -> Panel:
    axes = ("x", "y3")
    meta = panel_meta(what, axes) | {
        "values": {
            "late": _packed(late.late_s),
            "longer": _packed(late.longer_s),
            "scale": late.scale_s,
            "colours": [list(colour) for colour in DIVERGING],
        }
    }
    traces = [_scale_trace(late)] if painted else [_scale_trace(late), _bar_trace(what.timeline, late)]
    return Panel([trace | {"xaxis": axes[0], "yaxis": axes[1], "showlegend": False} for trace in traces], [], [], meta)


def _scale_trace(late: Lateness) -> dict[str, Any]:
    """Nothing but the scale of colours."""
    stops = np.linspace(0, 1, len(DIVERGING))
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "difference",
        "meta": "difference",
        "x": [None],
        "y": [None],
        "marker": {
            "color": [0],
            "cmin": -late.scale_s,
            "cmax": late.scale_s,
            "colorscale": [[float(stop), f"rgb{colour}"] for stop, colour in zip(stops, DIVERGING, strict=True)],
            "showscale": True,
            "colorbar": {
                "orientation": "h",
                "x": 1,
                "xanchor": "right",
                "len": 0.25,
                "thickness": 8,
                "y": 0,
                "yanchor": "top",
                "ypad": 26,
                "tickformat": "~s",
                "ticksuffix": "s",
                "nticks": 5,
                "title": {"text": "starts earlier · later", "side": "top", "font": {"size": 11}},
            },
        },
    }


def _bar_trace(timeline: Timeline, late: Lateness) -> dict[str, Any]:
    bars = compute_bars(timeline)
    bars = bars.take(timeline.program.ops.kind[bars.op] <= Kind.W)
    middle = (len(DIVERGING) - 1) / 2
    share = np.clip(np.nan_to_num(late.late_s[bars.op]) / late.scale_s, -1, 1)
    level = np.rint(middle * (1 + share)).astype(int).tolist()
    text = timeline.program.text
    return {
        "type": "bar",
        "orientation": "h",
        "name": "difference",
        "meta": "difference",
        "base": bars.start,
        "x": bars.end - bars.start,
        "y": bars.rank + (bars.low + bars.high) / 2,
        "width": bars.high - bars.low,
        "customdata": bars.op,
        "marker": {
            "color": [f"rgb{DIVERGING[one]}" for one in level],
            "line": {"width": 0.5, "color": "rgba(255,255,255,0.55)"},
        },
        "hovertext": [
            f"<b>{text(op)}</b><br>{said(late.late_s[op], 'starts', 'later', 'earlier')}<br>"
            f"{said(late.longer_s[op], 'takes', 'longer', 'less')}"
            for op in bars.op.tolist()
        ],
        "hoverinfo": "text",
    }


def said(value: float, verb: str, more: str, less: str) -> str:
    """`starts 3.2 ms later`."""
    if np.isnan(value):
        return "only in this run"
    return f"{verb} {format_seconds(abs(float(value)), digits=3)} {more if value >= 0 else less}"


def _packed(values: Floats) -> str:
    return base64.b64encode(zlib.compress(values.astype("<f4").tobytes(), 6)).decode()
