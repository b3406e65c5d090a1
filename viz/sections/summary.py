"""The strip of figures above a chart: (name, value, note) each."""

from __future__ import annotations

import numpy as np

from pipesim.metrics import Metrics
from pipesim.timeline import Timeline
from pipesim.units import format_bytes, format_count, format_flops, format_fraction, format_seconds

Entry = tuple[str, str, str]


def summary(timeline: Timeline, metrics: Metrics) -> list[Entry]:
    """What an engineer asks first: how long, how much idle, how much memory, how fast."""
    entries: list[Entry] = [
        ("step time", format_seconds(metrics.step_time_s), f"compute ends at {format_seconds(metrics.makespan_s)}"),
        ("bubble fraction", format_fraction(metrics.bubble_fraction), "idle ÷ (ranks × makespan)"),
        ("bubble ratio", format_fraction(metrics.bubble_ratio), "idle ÷ compute"),
        ("span bubble rate", format_fraction(metrics.span_bubble_rate), "in the longest span of a rank"),
        _memory(timeline, metrics),
    ]
    if metrics.tokens_per_s_per_gpu is not None and metrics.tokens_per_s is not None:
        whole = f"{format_count(metrics.tokens_per_s)} on all GPUs"
        entries.append(("tokens/s per GPU", format_count(metrics.tokens_per_s_per_gpu), whole))
    if metrics.mfu is not None and metrics.flops_per_gpu is not None:
        entries.append(("MFU", format_fraction(metrics.mfu), f"{format_flops(metrics.flops_per_gpu)} a GPU"))
    return entries


def _memory(timeline: Timeline, metrics: Metrics) -> Entry:
    memory = timeline.memory
    if metrics.peak_memory_bytes is None or memory is None:
        peak = float(metrics.peak_activations.max())
        return ("peak activations", f"{peak:.4g}", f"microbatches, rank {int(metrics.peak_activations.argmax())}")
    worst = int(np.argmax(metrics.peak_memory_bytes))
    value = format_bytes(float(metrics.peak_memory_bytes[worst]), digits=3)
    if memory.limit is None:
        return ("peak memory", value, f"rank {worst}")
    limit = float(memory.limit[worst])
    over = "OVER the limit of" if metrics.fits is False else "of"
    return ("peak memory", value, f"rank {worst}, {over} {format_bytes(limit, digits=3)}")
