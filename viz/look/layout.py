"""Axes, titles and sizes that all figures share."""

from __future__ import annotations

from html import escape
from typing import Any

import plotly.graph_objects as go

from pipesim.metrics import Metrics
from pipesim.timeline import Timeline
from pipesim.units import format_bytes, format_fraction, format_seconds
from pipesim.viz.look.palette import FONT, THEMES, ThemeName

Layout = dict[str, Any]

_MOST_ROWS = 128  # ranks that are tall enough without zoom
LEFT, RIGHT = 72, 24  # pixels beside the plot
_LONGEST_NAME = 60


def base_layout(theme: ThemeName, *, height: int, top: int, bottom: int) -> Layout:
    """Everything but axes and title."""
    colours = THEMES[theme]
    return {
        "height": height,
        "margin": {"l": LEFT, "r": RIGHT, "t": top, "b": bottom},
        "paper_bgcolor": colours.paper,
        "plot_bgcolor": colours.panel,
        "font": {"family": FONT, "size": 12, "color": colours.ink},
        "barmode": "overlay",
        "hovermode": "closest",
        "hoverlabel": {
            "align": "left",
            "bgcolor": "#17202b",
            "bordercolor": "#17202b",
            "font": {"family": FONT, "size": 12, "color": "#f2f5f8"},
        },
        "dragmode": "pan",
        "uniformtext": {"mode": "hide", "minsize": 8},
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "yref": "container", "itemsizing": "constant"},
    }


def time_axis(theme: ThemeName, until_s: float, **more: Any) -> Layout:
    """Seconds with SI prefixes: 20ms, 1.5s."""
    colours = THEMES[theme]
    return {
        "range": [0.0, until_s * 1.005 or 1.0],
        "tickformat": "~s",
        "ticksuffix": "s",
        "gridcolor": colours.grid,
        "zeroline": False,
        "showspikes": False,
        "tickfont": {"color": colours.faint},
        **more,
    }


def rank_axis(theme: ThemeName, ranks: int, **more: Any) -> Layout:
    """Rank 0 on top."""
    every = next(step for step in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1 << 20) if ranks / step <= 34)
    shown = list(range(0, ranks, every))
    return {
        "range": [ranks - 0.5, -0.5],
        "tickvals": shown,
        "ticktext": [f"rank {rank}" for rank in shown],
        "showgrid": False,
        "zeroline": False,
        "ticks": "outside",
        "ticklen": 6,
        "tickcolor": "rgba(0,0,0,0)",
        "tickfont": {"color": THEMES[theme].faint},
        "fixedrange": ranks <= _MOST_ROWS,
        **more,
    }


def memory_axis(theme: ThemeName, timeline: Timeline, **more: Any) -> Layout:
    """Bytes with SI prefixes, or microbatches of activations."""
    colours = THEMES[theme]
    known = timeline.memory is not None
    return {
        "rangemode": "tozero",
        "tickformat": "~s" if known else ".4~g",
        "ticksuffix": "B" if known else "",
        "title": {"text": "memory" if known else "microbatches<br>in flight", "font": {"size": 11}, "standoff": 4},
        "gridcolor": colours.grid,
        "zeroline": False,
        "nticks": 5,
        "fixedrange": True,
        "tickfont": {"color": colours.faint},
        **more,
    }


def rows_height(timeline: Timeline) -> int:
    """Pixels of the boxes: generous for few ranks, within two screens for many; more where pairs share a row."""
    ranks, each = timeline.ranks, 58 if timeline.program.ops.fused.any() else 44
    return int(min(max(150, ranks * each), 420 + ranks * 6, 1400))


def title(headline: str, below: str, height: int) -> Layout:
    """A line in bold and one of figures beneath it, in a figure of that height in pixels."""
    return {
        "text": f"<b>{headline}</b><br><span style='font-size:12px'>{below}</span>",
        "x": 0,
        "xref": "paper",
        "xanchor": "left",
        "y": 1 - 22 / height,
        "yref": "container",
        "yanchor": "top",
        "font": {"size": 17},
    }


def short(name: str) -> str:
    """A name as plotly may print it: no markup, not too long."""
    cut = name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
    return escape(" ".join(cut.split()))


def shape(timeline: Timeline) -> str:
    """`8 ranks × 2 stages, 32 microbatches`, and `measured` where it was."""
    schedule = timeline.program.schedule
    per_rank = schedule.placement.stages // schedule.ranks
    stages = f" × {per_rank} stages" if per_rank > 1 else ""
    source = "" if timeline.source == "simulated" else f", {timeline.source}"
    return f"{schedule.ranks} ranks{stages}, {schedule.microbatches} microbatches{source}"


def about(timeline: Timeline) -> str:
    """The shape, and of what: model, cluster and layout where they are known."""
    known = [str(timeline.facts[key]) for key in ("model", "cluster", "layout") if key in timeline.facts]
    return " · ".join([shape(timeline), *known])


def figures(metrics: Metrics) -> str:
    """The figures that matter most, in one line."""
    parts = [
        f"step {format_seconds(metrics.step_time_s)}",
        f"bubble fraction {format_fraction(metrics.bubble_fraction)}",
        f"bubble ratio {format_fraction(metrics.bubble_ratio)}",
        f"span bubble rate {format_fraction(metrics.span_bubble_rate)}",
    ]
    if metrics.peak_memory_bytes is not None:
        over = "" if metrics.fits is not False else " <b>(over the limit)</b>"
        parts.append(f"peak memory {format_bytes(float(metrics.peak_memory_bytes.max()), digits=3)}{over}")
    else:
        parts.append(f"peak activations {float(metrics.peak_activations.max()):.4g} microbatches")
    if metrics.mfu is not None:
        parts.append(f"MFU {format_fraction(metrics.mfu)}")
    return "  ·  ".join(parts)


def as_figure(figure: dict[str, Any]) -> go.Figure:
    """Without validation, which takes longer than all the rest."""
    return go.Figure(figure, _validate=False)
