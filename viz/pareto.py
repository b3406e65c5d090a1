"""Choices of a plan by step time and memory: one point each, and the front of those that nothing beats in both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

_COLOURS = ("#4c72b0", "#dd8452", "#55a868", "#c44e52", "#8172b3", "#937860", "#da8bc3", "#8c8c8c")
_GIB = float(1 << 30)


@dataclass(frozen=True)
class Point:
    """One choice: its group (a colour), seconds and bytes, and what hovering says."""

    group: str
    step_time_s: float
    peak_bytes: float
    hover: str


def pareto_chart(points: Sequence[Point], *, heading: str, limit_bytes: float | None = None) -> go.Figure:
    """Step time over memory. limit_bytes: what a GPU may hold, a line."""
    groups = list(dict.fromkeys(point.group for point in points))
    data = [
        _markers(group, [point for point in points if point.group == group], _COLOURS[index % len(_COLOURS)])
        for index, group in enumerate(groups)
    ]
    best = front(points)
    data.append({
        "type": "scatter", "mode": "lines", "name": "front", "x": [point.peak_bytes / _GIB for point in best],
        "y": [point.step_time_s for point in best], "line": {"color": "#333333", "dash": "dot", "shape": "hv"},
        "hoverinfo": "skip",
    })  # fmt: skip
    layout: dict[str, Any] = {
        "title": {"text": heading},
        "xaxis": {"title": {"text": "peak memory of the fullest GPU, GiB"}},
        "yaxis": {"title": {"text": "step time, s"}},
        "template": "plotly_white",
        "hovermode": "closest",
        "height": 620,
    }
    if limit_bytes is not None:
        layout["shapes"] = [{
            "type": "line", "xref": "x", "yref": "paper", "x0": limit_bytes / _GIB, "x1": limit_bytes / _GIB,
            "y0": 0, "y1": 1, "line": {"color": "#c44e52", "dash": "dash"},
        }]  # fmt: skip
    return go.Figure({"data": data, "layout": layout}, skip_invalid=False)


def front(points: Sequence[Point]) -> list[Point]:
    """The points that no other beats in one and equals in the other, by growing memory."""
    found: list[Point] = []
    for point in sorted(points, key=lambda one: (one.peak_bytes, one.step_time_s)):
        if not found or point.step_time_s < found[-1].step_time_s:
            found.append(point)
    return found


def _markers(group: str, points: Sequence[Point], colour: str) -> dict[str, Any]:
    return {
        "type": "scattergl" if len(points) > 2000 else "scatter",
        "mode": "markers",
        "name": group,
        "x": [point.peak_bytes / _GIB for point in points],
        "y": [point.step_time_s for point in points],
        "text": [point.hover for point in points],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"color": colour, "size": 8, "opacity": 0.8},
    }
