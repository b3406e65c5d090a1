"""The chart of one timeline: a row a rank, its memory beneath on the same time axis."""

from __future__ import annotations

import plotly.graph_objects as go

from pipesim.metrics import Metrics
from pipesim.timeline import Timeline
from pipesim.viz.look.layout import (
    about,
    as_figure,
    base_layout,
    figures,
    memory_axis,
    rank_axis,
    rows_height,
    shape,
    short,
    time_axis,
    title,
)
from pipesim.viz.look.palette import ThemeName
from pipesim.viz.panels.bars import drawn
from pipesim.viz.panels.memory_curves import memory_traces
from pipesim.viz.panels.meta import figure_meta
from pipesim.viz.panels.panel import MOST_BARS, is_painted, panel
from pipesim.viz.panels.traces import themed
from pipesim.viz.sections.summary import summary

_TOP, _BOTTOM, _MEMORY, _GAP = 112, 40, 150, 36  # pixels


def chart(
    timeline: Timeline,
    metrics: Metrics,
    *,
    theme: ThemeName = "light",
    most_bars: int = MOST_BARS,
    picture: bool = True,
) -> go.Figure:
    """Boxes by kind, idle time by cause, transfers, critical path and memory; times in seconds.

    Up to `most_bars` boxes and idle spans are bars of plotly. More are a picture, which the page of `write_html`
    replaces by every single box; picture=False leaves it out.
    """
    what = drawn(timeline)
    painted = is_painted([what], most_bars)
    main = panel(what, ("x", "y"), painted=painted, picture=picture)
    rows = rows_height(timeline)
    whole = rows + _GAP + _MEMORY
    layout = base_layout(theme, height=whole + _TOP + _BOTTOM, top=_TOP, bottom=_BOTTOM)
    layout["legend"] |= {"y": 1 - 62 / layout["height"], "yanchor": "top"}
    layout["legend2"] = {
        "orientation": "h",
        "x": 0,
        "xanchor": "left",
        "y": (_MEMORY + 2) / whole,
        "yanchor": "bottom",
        "font": {"size": 10},
    }
    layout |= {
        "title": title(f"{short(timeline.name)}, {shape(timeline)}", figures(metrics), layout["height"]),
        "xaxis": time_axis(theme, timeline.step_time_s, anchor="y2"),
        "yaxis": rank_axis(theme, timeline.ranks, domain=[1 - rows / whole, 1.0]),
        "yaxis2": memory_axis(theme, timeline, domain=[0.0, _MEMORY / whole]),
        "images": main.images,
        "annotations": main.notes,
        "meta": figure_meta(
            [main.meta],
            painted=painted,
            theme=theme,
            headline=[timeline.name, about(timeline)],
            summary=summary(timeline, metrics),
        ),
    }
    data = themed([*main.traces, *memory_traces(timeline, axes=("x", "y2"))], theme)
    return as_figure({"data": data, "layout": layout})
