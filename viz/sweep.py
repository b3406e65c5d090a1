"""One figure over a varied number, a line for each combination of what else was varied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go


def sweep_chart(rows: Sequence[tuple[Mapping[str, str], float]], *, label: str) -> go.Figure:
    """rows: what was varied, and the figure it gave. Over the first number that varies; bars where none does."""
    names = list(rows[0][0]) if rows else []
    across = next((name for name in names if all(_number(row[name]) is not None for row, _ in rows)), None)
    lines: dict[str, list[tuple[str, float]]] = {}
    for values, figure in rows:
        others = ", ".join(f"{name} {values[name]}" for name in names if name != across)
        lines.setdefault(others if across else label, []).append((values[across] if across else others, figure))
    data: list[dict[str, Any]] = [
        {
            "type": "scatter" if across else "bar",
            "name": name or label,
            "x": [_number(x) if across else x for x, _ in points],
            "y": [y for _, y in points],
        }
        for name, points in lines.items()
    ]
    layout = {
        "xaxis": {"title": {"text": across or ""}},
        "yaxis": {"title": {"text": label}, "rangemode": "tozero"},
        "template": "plotly_white",
        "hovermode": "x unified" if across else "closest",
        "height": 560,
    }
    return go.Figure({"data": data, "layout": layout}, skip_invalid=False)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
