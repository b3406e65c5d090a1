"""Charts of serving: a window of a run, latency distributions, load curves. Plain arrays in, figures out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from pipesim.viz.look.layout import as_figure, base_layout, time_axis, title
from pipesim.viz.look.palette import RANK_COLOURS, THEMES, ThemeName

Floats = NDArray[np.float64]

PROMPT, DECODE, MIXED = "#e8a33d", "#3672b9", "#4aa277"
_TOP, _BOTTOM, _ROW = 112, 44, 44
_CURVES = 150  # pixels of the curves below the boxes
_SHOWN = 60  # steps in view at first
_LOG_SECONDS = {"type": "log", "dtick": "D2", "tickformat": "~s", "ticksuffix": "s"}


@dataclass(frozen=True, eq=False)
class StepBoxes:
    """Steps on stages: one entry a box. Times in seconds."""

    stage: NDArray[np.int64]
    start_s: Floats
    end_s: Floats
    group: NDArray[np.int64]
    decoding: NDArray[np.int64]
    """Requests that decode in it."""
    prompt_tokens: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Levels:
    """What was there when each step began."""

    time_s: Floats
    running: Floats
    waiting: Floats
    cache: Floats
    """Share of the blocks in use."""


def window_chart(
    headline: str, below: str, boxes: StepBoxes, levels: Levels, *, theme: ThemeName = "light"
) -> go.Figure:
    """Steps of a window of a run by stage, coloured by what they do; under it requests and cache."""
    stages = int(boxes.stage.max()) + 1
    rows = max(120, stages * _ROW)
    height = rows + _CURVES + 36 + _TOP + _BOTTOM
    whole = height - _TOP - _BOTTOM
    until = float(boxes.end_s.max())
    shown = boxes.start_s[: _SHOWN * stages]
    layout = base_layout(theme, height=height, top=_TOP, bottom=_BOTTOM)
    layout["legend"] |= {"y": 1 - 62 / height, "yanchor": "top"}
    faint, grid = THEMES[theme].faint, THEMES[theme].grid
    curve = {"domain": [0.0, _CURVES / whole], "rangemode": "tozero", "gridcolor": grid, "tickfont": {"color": faint}}
    layout |= {
        "title": title(headline, below, height),
        "xaxis": time_axis(theme, until, anchor="y2") | {"range": [float(shown.min()), float(shown.max())]},
        "yaxis": {
            "domain": [1 - rows / whole, 1.0], "range": [stages - 0.5, -0.5], "showgrid": False, "zeroline": False,
            "tickvals": list(range(stages)), "ticktext": [f"stage {stage}" for stage in range(stages)],
            "tickfont": {"color": faint},
        },
        "yaxis2": curve | {"title": {"text": "requests", "font": {"size": 11}}},
        "yaxis3": curve | {"overlaying": "y2", "side": "right", "tickformat": ".0%", "range": [0, 1.02],
                           "title": {"text": "cache", "font": {"size": 11}}, "showgrid": False},
    }  # fmt: skip
    layout["margin"]["r"] = 64
    return as_figure({"data": [*_boxes(boxes), *_levels(levels)], "layout": layout})


def _boxes(boxes: StepBoxes) -> list[dict[str, Any]]:
    """A trace for steps that decode, one for those that read prompts, one for both."""
    reads, decodes = boxes.prompt_tokens > 0, boxes.decoding > 0
    kinds = (("decode", DECODE, "", decodes & ~reads), ("prompts", PROMPT, "/", reads & ~decodes),
             ("decode and prompts", MIXED, ".", reads & decodes))  # fmt: skip
    traces = []
    for name, colour, pattern, mask in kinds:
        if not mask.any():
            continue
        hover = [
            f"group {group}: {decoding} decode, {tokens} tokens of prompts<br>{1e3 * start:.3f} to {1e3 * end:.3f} ms"
            for group, decoding, tokens, start, end in zip(
                boxes.group[mask], boxes.decoding[mask], boxes.prompt_tokens[mask], boxes.start_s[mask],
                boxes.end_s[mask], strict=True,
            )
        ]  # fmt: skip
        traces.append({
            "type": "bar", "orientation": "h", "name": name, "y": boxes.stage[mask], "base": boxes.start_s[mask],
            "x": (boxes.end_s - boxes.start_s)[mask], "hovertext": hover, "hoverinfo": "text", "width": 0.82,
            "marker": {"color": colour, "line": {"width": 0.5, "color": "rgba(255,255,255,0.6)"},
                       "pattern": {"shape": pattern, "size": 6, "solidity": 0.15}},
        })  # fmt: skip
    return traces


def _levels(levels: Levels) -> list[dict[str, Any]]:
    curves = (("running", levels.running, "y2", RANK_COLOURS[2], "solid"),
              ("waiting", levels.waiting, "y2", RANK_COLOURS[1], "dot"),
              ("cache", levels.cache, "y3", RANK_COLOURS[3], "dash"))  # fmt: skip
    return [
        {"type": "scatter", "mode": "lines", "name": name, "x": levels.time_s, "y": values, "yaxis": axis,
         "line": {"shape": "hv", "width": 1.5, "color": colour, "dash": dash}}
        for name, values, axis, colour, dash in curves
    ]  # fmt: skip


def latency_chart(headline: str, latencies: Mapping[str, Floats], *, theme: ThemeName = "light") -> go.Figure:
    """How many requests saw at most which time, on a log scale: one curve for each kind of latency, in seconds."""
    traces = []
    for index, (name, values) in enumerate(latencies.items()):
        ordered = np.sort(values[values > 0])
        if not len(ordered):
            continue
        shares = np.linspace(0.0, 1.0, min(500, len(ordered)))
        traces.append({
            "type": "scatter", "mode": "lines", "name": name, "x": np.quantile(ordered, shares), "y": shares,
            "line": {"width": 2, "color": RANK_COLOURS[index], "dash": ("solid", "dash", "dot")[index % 3]},
        })  # fmt: skip
    return _plain(headline, traces, theme, _LOG_SECONDS,
                  {"tickformat": ".0%", "range": [0, 1.01], "title": {"text": "requests"}})  # fmt: skip


def load_chart(
    headline: str, rates: Sequence[float], curves: Mapping[str, Sequence[float | None]], *, theme: ThemeName = "light"
) -> go.Figure:
    """Latencies in seconds over the rate of requests; a gap where the system was overloaded."""
    traces: list[dict[str, Any]] = [
        {"type": "scatter", "mode": "lines+markers", "name": name, "x": list(rates), "y": list(values),
         "line": {"width": 2, "color": RANK_COLOURS[index % len(RANK_COLOURS)],
                  "dash": ("solid", "dash")[index % 2]}}
        for index, (name, values) in enumerate(curves.items())
    ]  # fmt: skip
    return _plain(
        headline, traces, theme, {"title": {"text": "requests a second"}, "rangemode": "tozero"}, _LOG_SECONDS
    )


def _plain(
    headline: str, traces: list[dict[str, Any]], theme: ThemeName, across: dict[str, Any], up: dict[str, Any]
) -> go.Figure:
    layout = base_layout(theme, height=420, top=84, bottom=56)
    layout["legend"] |= {"y": 1 - 50 / 420, "yanchor": "top"}
    grid = {"gridcolor": THEMES[theme].grid, "tickfont": {"color": THEMES[theme].faint}, "zeroline": False}
    layout |= {"title": title(headline, "", 420), "xaxis": grid | across, "yaxis": grid | up}
    return as_figure({"data": traces, "layout": layout})
