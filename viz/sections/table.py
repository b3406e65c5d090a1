"""Figures of several timelines side by side, as rows of text with the best of each row known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipesim.metrics import Metrics
from pipesim.units import format_bytes, format_count, format_flops, format_fraction, format_seconds

_SAME = 1e-9  # relative: closer than that is a tie


@dataclass(frozen=True)
class MetricRow:
    """One figure of all timelines. sign: 1 where more is better, -1 where less is, 0 where neither."""

    label: str
    values: tuple[float | None, ...]
    texts: tuple[str, ...]
    sign: int


@dataclass(frozen=True)
class _Figure:
    label: str
    sign: int
    value: Callable[[Metrics], float | None]
    text: Callable[[float], str]


_FIGURES = (
    _Figure("step time", -1, lambda m: m.step_time_s, format_seconds),
    _Figure("makespan", -1, lambda m: m.makespan_s, format_seconds),
    _Figure("bubble fraction", -1, lambda m: m.bubble_fraction, format_fraction),
    _Figure("bubble ratio", -1, lambda m: m.bubble_ratio, format_fraction),
    _Figure("span bubble rate", -1, lambda m: m.span_bubble_rate, format_fraction),
    _Figure("peak activations, microbatches", -1, lambda m: float(m.peak_activations.max()), lambda x: f"{x:.4g}"),
    _Figure(
        "peak memory",
        -1,
        lambda m: None if m.peak_memory_bytes is None else float(m.peak_memory_bytes.max()),
        format_bytes,
    ),
    _Figure("fits", 1, lambda m: None if m.fits is None else float(m.fits), lambda x: "yes" if x else "NO"),
    _Figure("exposed pipeline communication", -1, lambda m: m.exposed_comm_s.get("pipeline"), format_seconds),
    _Figure("exposed gradient sync", -1, lambda m: m.exposed_comm_s.get("data"), format_seconds),
    _Figure("tokens/s", 1, lambda m: m.tokens_per_s, format_count),
    _Figure("tokens/s/GPU", 1, lambda m: m.tokens_per_s_per_gpu, format_count),
    _Figure("model FLOP/s per GPU", 1, lambda m: m.flops_per_gpu, format_flops),
    _Figure("MFU", 1, lambda m: m.mfu, format_fraction),
)


def metric_rows(found: Sequence[Metrics]) -> list[MetricRow]:
    """The figures that any of the timelines has."""
    rows = []
    for figure in _FIGURES:
        values = tuple(figure.value(one) for one in found)
        if any(value is not None for value in values):
            texts = tuple("–" if value is None else figure.text(value) for value in values)
            rows.append(MetricRow(figure.label, values, texts, figure.sign))
    return rows


def best_of(row: MetricRow) -> tuple[int, ...]:
    """Columns with the best value; none where all are equal, or better has no meaning."""
    known = {at: value * row.sign for at, value in enumerate(row.values) if value is not None}
    if row.sign == 0 or len(known) < 2:
        return ()
    best, worst = max(known.values()), min(known.values())
    slack = _SAME * max(abs(best), abs(worst))
    if best - worst <= slack:
        return ()
    return tuple(at for at, value in known.items() if value >= best - slack)
