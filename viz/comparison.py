"""Several timelines under each other on one time axis, with a table of their figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from pipesim.metrics import Metrics, summarize
from pipesim.timeline import Timeline
from pipesim.units import format_fraction, format_seconds
from pipesim.viz.look.layout import as_figure, base_layout, rank_axis, rows_height, shape, short, time_axis, title
from pipesim.viz.look.palette import ThemeName
from pipesim.viz.panels.bars import drawn
from pipesim.viz.panels.meta import figure_meta
from pipesim.viz.panels.panel import MOST_BARS, Panel, is_painted, panel
from pipesim.viz.panels.traces import themed
from pipesim.viz.sections.table import best_of, metric_rows

_TOP, _BOTTOM, _HEADING, _SCALE = 106, 44, 40, 50  # pixels


@dataclass(frozen=True)
class _Place:
    """Pixels from the top of the plot area to a panel, and the panel's height."""

    top: int
    height: int

    def domain(self, whole: int) -> list[float]:
        return [max(0.0, 1 - (self.top + self.height) / whole), 1 - self.top / whole]


def comparison(
    timelines: Sequence[Timeline],
    found: Sequence[Metrics] | None = None,
    *,
    theme: ThemeName = "light",
    most_bars: int = MOST_BARS,
    picture: bool = True,
) -> go.Figure:
    """Stack timelines, aligned at time 0; the page adds a table with the best figure of each row marked.

    found: the metrics of each timeline, where they are known already (with throughput, say). most_bars,
    picture: as in `chart`.
    """
    known = list(found) if found is not None else [summarize(timeline) for timeline in timelines]
    return stacked(timelines, known, theme=theme, rows=table(timelines, known), most_bars=most_bars, picture=picture)


def stacked(
    timelines: Sequence[Timeline],
    known: Sequence[Metrics],
    *,
    theme: ThemeName,
    rows: dict[str, Any],
    extra: tuple[Panel, str] | None = None,
    most_bars: int = MOST_BARS,
    picture: bool = True,
) -> go.Figure:
    """A panel a timeline, and one more of the last timeline's ranks with its heading, if given."""
    what = [drawn(timeline) for timeline in timelines]
    painted = is_painted(what if extra is None else [*what, what[-1]], most_bars)
    shown = [*timelines, *([timelines[-1]] if extra else [])]
    places, whole = _places(shown)
    axes = [f"y{at + 1}" if at else "y" for at in range(len(shown))]
    panels = [panel(one, ("x", axis), painted=painted, picture=picture) for one, axis in zip(what, axes, strict=False)]
    headings = [_headline(timeline, one) for timeline, one in zip(timelines, known, strict=True)]
    if extra is not None:
        panels.append(extra[0])
        headings.append(extra[1])
    bottom = _BOTTOM + (_SCALE if extra else 0)
    layout = base_layout(theme, height=whole + _TOP + bottom, top=_TOP, bottom=bottom)
    layout["legend"] |= {"y": 1 - 56 / layout["height"], "yanchor": "top"}
    for timeline, axis, place in zip(shown, axes, places, strict=True):
        layout["yaxis" + axis[1:]] = rank_axis(theme, timeline.ranks, domain=place.domain(whole))
    headline = [" · ".join(rows["names"]), "on one time axis"]
    layout |= {
        "title": title(short(headline[0]), headline[1], layout["height"]),
        "xaxis": time_axis(theme, max(timeline.step_time_s for timeline in timelines), anchor=axes[-1]),
        "annotations": [
            *(_heading(text, place, whole) for text, place in zip(headings, places, strict=True)),
            *(note for one in panels for note in one.notes),
        ],
        "images": [image for one in panels for image in one.images],
        "meta": figure_meta([one.meta for one in panels], painted=painted, theme=theme, headline=headline, table=rows),
    }
    data = themed(_shared_legend([one.traces for one in panels]), theme)
    return as_figure({"data": data, "layout": layout})


def table(timelines: Sequence[Timeline], found: Sequence[Metrics]) -> dict[str, Any]:
    """The figures side by side: names, and rows of label, texts, and which columns are best."""
    rows = [{"label": row.label, "texts": row.texts, "best": best_of(row)} for row in metric_rows(found)]
    return {"names": [timeline.name for timeline in timelines], "rows": rows}


def _shared_legend(panels: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """One entry a name: it switches the traces of all panels."""
    seen: set[str] = set()
    traces = []
    for trace in (trace for panel_traces in panels for trace in panel_traces):
        traces.append(trace if trace["name"] not in seen else trace | {"showlegend": False})
        seen.add(trace["name"])
    return traces


def _places(timelines: Sequence[Timeline]) -> tuple[list[_Place], int]:
    """Where each panel goes, and the height of all."""
    places, at = [], 0
    for timeline in timelines:
        places.append(_Place(at + _HEADING, max(90, rows_height(timeline) * 2 // 3)))
        at += _HEADING + places[-1].height
    return places, at


def _headline(timeline: Timeline, found: Metrics) -> str:
    step, bubble = format_seconds(found.step_time_s), format_fraction(found.bubble_fraction)
    return f"<b>{short(timeline.name)}</b>  {shape(timeline)}  ·  step {step}  ·  bubble fraction {bubble}"


def _heading(text: str, place: _Place, whole: int) -> dict[str, Any]:
    return {
        "text": text,
        "xref": "paper",
        "yref": "paper",
        "x": 0,
        "y": 1 - (place.top - 6) / whole,
        "xanchor": "left",
        "yanchor": "bottom",
        "showarrow": False,
        "align": "left",
    }
