"""One timeline in a figure: as plotly's own bars while they are few, else as a picture that the page paints over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipesim.viz.panels.bars import Drawn
from pipesim.viz.panels.meta import panel_meta
from pipesim.viz.panels.raster import WIDTH, raster
from pipesim.viz.panels.traces import bar_traces, legend_traces

MOST_BARS = 1500  # plotly's bars with labels take a browser 0.5 ms each at every zoom


@dataclass(frozen=True)
class Panel:
    """Traces, pictures behind them with a note that says so, and what the page needs to know."""

    traces: list[dict[str, Any]]
    images: list[dict[str, Any]]
    notes: list[dict[str, Any]]
    meta: dict[str, Any]


def is_painted(timelines: Sequence[Drawn], most_bars: int = MOST_BARS) -> bool:
    """Whether there are too many boxes for plotly."""
    return sum(len(one.timeline.program) + len(one.idle) for one in timelines) > most_bars


def panel(drawn: Drawn, axes: tuple[str, str], *, painted: bool, picture: bool = True) -> Panel:
    """painted: leave the boxes to the page; picture: with a picture of them for whoever is not our page."""
    meta = panel_meta(drawn, axes)
    if not painted:
        return Panel([*legend_traces(drawn, axes), *bar_traces(drawn, axes)], [], [], meta)
    if not picture:
        return Panel(legend_traces(drawn, axes), [], [], meta)
    return Panel(legend_traces(drawn, axes), [_image(drawn, axes)], [_note(drawn, axes)], meta)


def _image(drawn: Drawn, axes: tuple[str, str]) -> dict[str, Any]:
    timeline = drawn.timeline
    return {
        "source": raster(drawn),
        "xref": axes[0],
        "yref": axes[1],
        "x": 0.0,
        "y": -0.5,
        "xanchor": "left",
        "yanchor": "top",
        "sizex": timeline.step_time_s,
        "sizey": timeline.ranks,
        "sizing": "stretch",
        "layer": "above",
        "name": "raster",
    }


def _note(drawn: Drawn, axes: tuple[str, str]) -> dict[str, Any]:
    boxes = len(drawn.timeline.boxes)
    return {
        "text": f"{boxes:,} boxes in a picture of {WIDTH:,} pixels; the HTML page draws each of them",
        "name": "raster",
        "xref": "paper",
        "yref": f"{axes[1]} domain",
        "x": 1,
        "y": 1,
        "xanchor": "right",
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"size": 10},
    }
