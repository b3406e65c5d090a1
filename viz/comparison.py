"""Several timelines under each other on one time axis, with a table of their figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from pipesim.metrics import Metrics, summarize
from pipesim.timeline import Timeline
from pipesim.viz.chart import as_figure
from pipesim.viz.layout import base_layout, figures, rank_axis, rows_height, shape, short, time_axis, title
from pipesim.viz.palette import THEMES, ThemeName
from pipesim.viz.table import best_of, metric_rows
from pipesim.viz.traces import timeline_traces

_TOP, _BOTTOM, _HEADING, _ROW = 96, 20, 40, 26  # pixels


@dataclass(frozen=True)
class _Place:
    """Pixels from the top of the plot area to a panel, and the panel's height."""

    top: int
    height: int

    def domain(self, whole: int) -> list[float]:
        return [max(0.0, 1 - (self.top + self.height) / whole), 1 - self.top / whole]


def comparison(
    timelines: Sequence[Timeline], found: Sequence[Metrics] | None = None, *, theme: ThemeName = "light"
) -> go.Figure:
    """Stack timelines, aligned at time 0, and mark the best figure in each row of the table.

    found: the metrics of each timeline, where they are known already (with throughput, say).
    """
    known = list(found) if found is not None else [summarize(timeline) for timeline in timelines]
    rows = metric_rows(known)
    table = _ROW * (len(rows) + 2)
    places, whole = _places([timeline.ranks for timeline in timelines], table)
    layout = base_layout(theme, height=whole + _TOP + _BOTTOM, top=_TOP, bottom=_BOTTOM)
    layout["legend"] |= {"y": 1 - 44 / layout["height"], "yanchor": "top"}
    layout["title"] = title(f"{len(timelines)} timelines on one time axis", "")
    layout["annotations"] = []
    until = max(timeline.step_time_s for timeline in timelines)
    data: list[dict[str, Any]] = []
    seen: set[str] = set()
    last = f"y{len(timelines)}" if len(timelines) > 1 else "y"
    for at, (timeline, figure) in enumerate(zip(timelines, known, strict=True)):
        axis = f"y{at + 1}" if at else "y"
        traces = timeline_traces(timeline, axes=("x", axis))
        for trace in traces:
            trace["showlegend"] = trace["name"] not in seen
            seen.add(trace["name"])
        data += traces
        layout["yaxis" + axis[1:]] = rank_axis(theme, timeline.ranks, domain=places[at].domain(whole))
        layout["annotations"].append(_heading(timeline, figure, places[at], whole))
    layout["xaxis"] = time_axis(theme, until, anchor=last)
    data.append(_table(theme, timelines, rows, _Place(whole - table, table).domain(whole)))
    return as_figure({"data": data, "layout": layout})


def _places(ranks: Sequence[int], table: int) -> tuple[list[_Place], int]:
    """Where each panel goes, and the height of all with the table beneath."""
    places, at = [], 0
    for count in ranks:
        places.append(_Place(at + _HEADING, max(90, rows_height(count) * 2 // 3)))
        at += _HEADING + places[-1].height
    return places, at + _HEADING + table


def _heading(timeline: Timeline, found: Metrics, place: _Place, whole: int) -> dict[str, Any]:
    return {
        "text": f"<b>{short(timeline.name)}</b>  {shape(timeline)}  ·  {figures(found)}",
        "xref": "paper",
        "yref": "paper",
        "x": 0,
        "y": 1 - (place.top - 6) / whole,
        "xanchor": "left",
        "yanchor": "bottom",
        "showarrow": False,
        "align": "left",
    }


def _table(theme: ThemeName, timelines: Sequence[Timeline], rows: Sequence[Any], domain: list[float]) -> dict[str, Any]:
    colours = THEMES[theme]
    columns = [[row.label for row in rows]]
    for at in range(len(timelines)):
        columns.append([f"<b>{row.texts[at]} ●</b>" if at in best_of(row) else row.texts[at] for row in rows])
    return {
        "type": "table",
        "domain": {"x": [0, 1], "y": domain},
        "header": {
            "values": ["", *(f"<b>{short(timeline.name)}</b>" for timeline in timelines)],
            "align": ["left", "right"],
            "fill": {"color": colours.panel},
            "line": {"color": colours.grid},
            "font": {"color": colours.ink},
            "height": _ROW,
        },
        "cells": {
            "values": columns,
            "align": ["left", "right"],
            "fill": {"color": colours.paper},
            "line": {"color": colours.grid},
            "font": {"color": colours.ink},
            "height": _ROW,
        },
    }
