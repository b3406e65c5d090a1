"""Where the time of a long job goes, and goodput over the interval between checkpoints."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import plotly.graph_objects as go

from pipesim.engine.goodput import Goodput, Reliability, expected_goodput

_COLOURS = {
    "progress": "#3a923a",
    "lost work": "#c44e52",
    "checkpoints": "#e1a23b",
    "detection": "#8172b3",
    "restart": "#4c72b0",
}


def goodput_chart(job: Reliability, found: Goodput, best_s: float) -> go.Figure:
    """Left: share of time by cause. Right: expected goodput (Daly) over the interval, and the simulated point."""
    shares = {"progress": found.goodput} | {cause: time / found.total_s for cause, time in found.lost_s.items()}
    bars: list[dict[str, Any]] = [
        {
            "type": "bar", "name": name, "x": [share], "y": [""], "orientation": "h",
            "marker": {"color": _COLOURS[name]},
            "text": f"{share:.2%}", "hovertemplate": f"{name} {share:.3%}<extra></extra>", "xaxis": "x", "yaxis": "y",
        }
        for name, share in shares.items()
    ]  # fmt: skip
    every = np.geomspace(best_s / 20, best_s * 20, 121)
    curve = [expected_goodput(replace(job, checkpoint_every_s=float(one))) for one in every]
    points: list[dict[str, Any]] = [
        {
            "type": "scatter", "name": "expected (Daly)", "x": (every / 60).tolist(), "y": curve,
            "xaxis": "x2", "yaxis": "y2",
        },
        {
            "type": "scatter", "name": "simulated", "mode": "markers", "x": [job.checkpoint_every_s / 60],
            "y": [found.goodput], "marker": {"size": 10}, "xaxis": "x2", "yaxis": "y2",
            "error_y": {"type": "data", "array": [found.interval[1] - found.goodput]},
        },
        {
            "type": "scatter", "name": "best interval", "mode": "lines", "line": {"dash": "dot"},
            "xaxis": "x2", "yaxis": "y2", "x": [best_s / 60] * 2, "y": [0, 1],
        },
    ]  # fmt: skip
    layout = {
        "title": {
            "text": f"{job.gpus} GPUs, a failure in {job.between_failures_s / 3600:.2f} h: {found.goodput:.2%} goodput"
        },
        "barmode": "stack",
        "xaxis": {"domain": [0, 1], "range": [0, 1], "tickformat": ".0%"},
        "yaxis": {"domain": [0.8, 1], "showticklabels": False},
        "xaxis2": {"domain": [0, 1], "type": "log", "title": {"text": "minutes between checkpoints"}, "anchor": "y2"},
        "yaxis2": {"domain": [0, 0.62], "tickformat": ".0%", "title": {"text": "goodput"}, "range": [0, 1]},
        "height": 560,
        "template": "plotly_white",
    }
    return go.Figure({"data": [*bars, *points], "layout": layout})
