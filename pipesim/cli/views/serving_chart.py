"""The page of a serving run: a window of it, latency distributions, or a load curve."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np

from pipesim.cli.views.serving_tables import overload_text
from pipesim.files import write_atomically
from pipesim.serving.load import Load
from pipesim.serving.serve import Service
from pipesim.serving.simulator import Run
from pipesim.units import format_seconds
from pipesim.viz.page import figure_strip, graph, page
from pipesim.viz.serving import Levels, StepBoxes, latency_chart, load_chart, window_chart

_MOST_BOXES = 4000


def write_run(path: Path, headline: str, found: Service) -> None:
    """A page with a window of the run and the distribution of latencies. Raises CannotWrite."""
    run = next((run for run in reversed(found.runs) if run.stages_s), None)
    each = found.served.each
    body = [f"<header><div><h1>{escape(headline)}</h1></div></header>", figure_strip(_strip(found))]
    if run is not None:
        boxes, levels = window_of(run)
        figure = window_chart("A window of the run", _below(run, boxes), boxes, levels)
        body.append(graph("window", figure.to_plotly_json()))
    if found.served.overload is None:
        kinds = {"time to first token": each.ttft_s, "time per output token": each.tpot_s, "latency": each.latency_s}
        body.append(graph("latencies", latency_chart("Latencies", kinds).to_plotly_json()))
    write_atomically(path, page(headline, "".join(body)))


def write_curve(path: Path, headline: str, points: Sequence[Load]) -> None:
    """A page with latencies over rates. Raises CannotWrite."""
    curves = {
        f"{name} {percentile}": [_value(point, attribute, percentile) for point in points]
        for name, attribute in (("TTFT", "ttft"), ("TPOT", "tpot"))
        for percentile in ("p50", "p99")
    }
    figure = load_chart("Latency over load", [point.rate for point in points], curves)
    body = f"<header><div><h1>{escape(headline)}</h1></div></header>{graph('load', figure.to_plotly_json())}"
    write_atomically(path, page(headline, body))


def _value(point: Load, attribute: str, percentile: str) -> float | None:
    spread = getattr(point.served, attribute)
    return None if spread is None else float(getattr(spread, percentile))


def _strip(found: Service) -> list[tuple[str, str, str]]:
    """Name, figure and note of what matters most."""
    figures = found.served
    if figures.overload is not None:
        return [("OVERLOADED", f"+{figures.overload.growth_per_s:.3g}/s", overload_text(figures.overload))]
    latencies = (("time to first token", figures.ttft), ("time per output token", figures.tpot),
                 ("latency", figures.latency))  # fmt: skip
    cells = [
        (name, format_seconds(spread.p50, digits=3),
         f"p90 {format_seconds(spread.p90, digits=3)} · p99 {format_seconds(spread.p99, digits=3)}")
        for name, spread in latencies
        if spread is not None
    ]  # fmt: skip
    rate = f"{figures.output_tokens_per_s_per_gpu:,.1f} a GPU"
    cells.append(("output tokens/s", f"{figures.output_tokens_per_s:,.0f}", rate))
    cells.append(("bubble", f"{figures.bubble:.1%}", "stages idle while requests are there"))
    cells.append(("cache at the peak", f"{figures.cache_peak:.1%}", f"{figures.preemptions:,} preemptions"))
    return cells


def window_of(run: Run) -> tuple[StepBoxes, Levels]:
    """Boxes of the steps in the middle of those that were kept, and the levels of all of them."""
    stages = len(run.busy_s)
    count = min(len(run.stages_s), max(1, _MOST_BOXES // stages))
    first = (len(run.stages_s) - count) // 2
    times = np.array(run.stages_s[first : first + count]).reshape(count, stages, 2)
    steps, chosen = run.steps, slice(first, first + count)

    def of(values: Sequence[int]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        return np.repeat(np.asarray(values[chosen], np.int64), stages)

    boxes = StepBoxes(
        stage=np.tile(np.arange(stages), count), start_s=times[:, :, 0].ravel(), end_s=times[:, :, 1].ravel(),
        group=of(steps.group), decoding=of(steps.decoding), prompt_tokens=of(steps.prompt_tokens),
    )  # fmt: skip
    levels = Levels(
        np.asarray(steps.start_s[chosen]),
        np.asarray(steps.running[chosen], np.float64),
        np.asarray(steps.waiting[chosen], np.float64),
        np.asarray(steps.blocks[chosen], np.float64) / run.batcher.cache.blocks,
    )
    return boxes, levels


def _below(run: Run, boxes: StepBoxes) -> str:
    shown = len(boxes.stage) // len(run.busy_s)
    return f"{shown:,} of {len(run.steps.end_s):,} steps; drag to move, scroll to zoom"
