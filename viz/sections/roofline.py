"""The roofline of one layer: what each of its products could reach, and what it is estimated to reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from pipesim.costs.layouts.flops import attention, gemms
from pipesim.costs.times.compute import attention_seconds, gemm_seconds
from pipesim.costs.times.site import Site
from pipesim.units import format_bytes_per_s, format_count, format_flops
from pipesim.viz.look.layout import as_figure, base_layout
from pipesim.viz.look.palette import THEMES, ThemeName
from pipesim.viz.panels.meta import figure_meta

_BYTES = {"fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "fp4": 0.5}
_HEIGHT, _TOP, _BOTTOM = 380, 24, 56  # pixels


@dataclass(frozen=True)
class Point:
    """One kernel: FLOP per byte of memory traffic, and FLOP/s."""

    name: str
    intensity: float
    flops_per_s: float


def points(site: Site) -> list[Point]:
    """The forward products and the attention of the model's first kind of layer, on one rank."""
    model, layout = site.model, site.layout
    kind, form = model.kinds()[-1], layout.number_format.matrix
    width, found = _BYTES.get(form, 2.0), []
    for gemm in gemms(model, layout, kind):
        seconds = gemm_seconds(site.gpu, gemm.m, gemm.n, gemm.k, precision=form, batch=gemm.count)
        moved = width * gemm.count * (gemm.m * gemm.k + gemm.k * gemm.n + gemm.m * gemm.n)
        if seconds > 0:
            found.append(Point(gemm.name.replace("_", " "), gemm.flops / moved, gemm.flops / seconds))
    shape = attention(model, layout, kind)
    seconds = attention_seconds(
        site.gpu, batch=shape.batch, heads=shape.heads, seq_q=shape.seq_q, seq_k=shape.seq_k, head_dim=shape.head_dim,
        value_dim=shape.value_dim, causal=shape.causal, window=shape.window,
    )  # fmt: skip
    rows = shape.batch * (shape.heads * shape.seq_q * (shape.head_dim + shape.value_dim)
                          + shape.kv_heads * shape.seq_k * (shape.head_dim + shape.value_dim))  # fmt: skip
    if seconds > 0:
        found.append(Point("attention", shape.attended_flops / (2.0 * rows), shape.attended_flops / seconds))
    return found


def roofline(site: Site, *, theme: ThemeName = "light") -> go.Figure:
    """Points under the roof of the GPU's peak and memory bandwidth, both axes logarithmic."""
    gpu, found = site.gpu, points(site)
    peak, bandwidth = gpu.peak(site.layout.number_format.matrix), gpu.memory_bytes_per_s
    ridge = peak / bandwidth
    reach = np.asarray([one.intensity for one in found] + [ridge])
    low, high = float(reach.min()) / 4, float(reach.max()) * 4
    colours, roof = THEMES[theme], f"{gpu.name}: {format_flops(peak)}, {format_bytes_per_s(bandwidth)}"
    data: list[dict[str, Any]] = [
        {
            "type": "scatter", "mode": "lines", "name": roof,
            "x": [low, ridge, high], "y": [low * bandwidth, peak, peak], "line": {"color": colours.faint, "width": 2},
            "hoverinfo": "skip",
        },
        {
            "type": "scatter", "mode": "markers+text", "name": "estimated", "showlegend": False,
            "x": [one.intensity for one in found], "y": [one.flops_per_s for one in found],
            "text": [one.name for one in found], "textposition": "bottom center", "textfont": {"size": 11},
            "marker": {"color": "#3672b9", "size": 10, "line": {"color": colours.paper, "width": 1}},
            "hovertext": [_hover(one, peak, bandwidth) for one in found], "hoverinfo": "text",
        },
    ]  # fmt: skip
    axis = {"type": "log", "gridcolor": colours.grid, "tickfont": {"color": colours.faint}, "fixedrange": True}
    layout = base_layout(theme, height=_HEIGHT, top=_TOP, bottom=_BOTTOM)
    layout["legend"] |= {"y": 1, "yanchor": "top"}
    layout |= {
        "dragmode": False,
        "xaxis": axis | {"title": {"text": "FLOP per byte"}, "dtick": 1},
        "yaxis": axis | {"title": {"text": "FLOP/s"}, "tickformat": "~s"},
        "meta": figure_meta([], painted=False, theme=theme, headline=["", ""]),
    }
    return as_figure({"data": data, "layout": layout})


def _hover(point: Point, peak: float, bandwidth: float) -> str:
    roof = min(peak, point.intensity * bandwidth)
    bound = "compute" if point.intensity * bandwidth >= peak else "memory"
    return (
        f"<b>{point.name}</b>, bound by {bound}<br>{format_flops(point.flops_per_s)}, "
        f"{point.flops_per_s / roof:.0%} of what is possible<br>{format_count(point.intensity)} FLOP a byte"
    )
