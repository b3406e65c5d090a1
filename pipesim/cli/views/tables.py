"""Figures as tables for people; the same numbers that --json gives."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from pipesim.cli.options.case import Case, notes
from pipesim.costs.times.parts import add_up
from pipesim.idle import CAUSES
from pipesim.metrics import Metrics
from pipesim.units import format_bytes, format_seconds
from pipesim.viz.sections.table import best_of, metric_rows

_MOST_RANKS = 32
_PIPED_WIDTH = 160


def console() -> Console:
    """Where tables go: as wide as the terminal, or as wide as they need when piped."""
    screen = Console(highlight=False)
    return screen if screen.is_terminal else Console(highlight=False, width=_PIPED_WIDTH)


def summary(name: str, found: Metrics) -> Table:
    """The figures of one step."""
    table = Table(title=name, show_header=False, title_justify="left")
    for label, text in summary_rows(found):
        table.add_row(label, text)
    return table


def summary_rows(found: Metrics) -> list[tuple[str, str]]:
    """Label and text of each figure."""
    rows = [
        ("makespan", format_seconds(found.makespan_s)),
        ("step time", format_seconds(found.step_time_s)),
        ("bubble_fraction (idle / ranks × makespan)", f"{found.bubble_fraction:.2%}"),
        ("bubble_ratio (idle / work)", f"{found.bubble_ratio:.2%}"),
        ("span_bubble_rate (zero-bubble papers)", f"{found.span_bubble_rate:.2%}"),
        (
            "peak activations, microbatches",
            f"{found.peak_activations.max():g} (rank {found.peak_activations.argmax()})",
        ),
    ]
    if found.peak_memory_bytes is not None:
        fits = {True: " — fits", False: " — DOES NOT FIT", None: ""}[found.fits]
        peak = found.peak_memory_bytes
        rows.append(("peak memory", f"{format_bytes(peak.max())} (rank {peak.argmax()}){fits}"))
    exposed = ", ".join(f"{dimension} {format_seconds(time)}" for dimension, time in found.exposed_comm_s.items())
    rows.append(("exposed communication, mean of ranks", exposed))
    if found.tokens_per_s is not None:
        assert found.tokens_per_s_per_gpu is not None
        assert found.flops_per_gpu is not None
        assert found.mfu is not None
        rows += [
            ("tokens/s", f"{found.tokens_per_s:,.0f} ({found.tokens_per_s_per_gpu:,.1f} a GPU)"),
            ("TFLOP/s a GPU (model FLOPs)", f"{found.flops_per_gpu / 1e12:,.1f}"),
            ("MFU", f"{found.mfu:.2%}"),
        ]
    return rows


def rank_table(found: Metrics) -> Table:
    """Bubble, memory and idle time of each rank."""
    per = found.per_rank
    table = Table(title="per rank", title_justify="left")
    causes = [cause for cause in CAUSES if per.idle_s[cause].any()]
    memory = ["peak memory"] if found.peak_memory_bytes is not None else []
    for column in ("rank", "busy", "bubble", "peak act.", *memory, *(cause.replace("_", " ") for cause in causes)):
        table.add_column(column, justify="right")
    for rank in range(min(len(per.busy_s), _MOST_RANKS)):
        cells = [str(rank), format_seconds(per.busy_s[rank]), f"{per.bubble_fraction[rank]:.1%}"]
        cells.append(f"{found.peak_activations[rank]:g}")
        if found.peak_memory_bytes is not None:
            cells.append(format_bytes(found.peak_memory_bytes[rank]))
        table.add_row(*cells, *(format_seconds(per.idle_s[cause][rank]) for cause in causes))
    if len(per.busy_s) > _MOST_RANKS:
        table.caption = f"{len(per.busy_s) - _MOST_RANKS} more ranks: --json has them all"
    return table


def breakdown(case: Case) -> Table | None:
    """Where the time of a middle stage goes, for one microbatch."""
    made = case.estimate
    if made is None:
        return None
    stage = len(made.parts) // 2
    table = Table(title=f"one microbatch on stage {stage} ({made.stages[stage].layers} layers)", title_justify="left")
    for column in ("work", "kind", "forward", "input gradient", "weight gradient", "share"):
        table.add_column(column, justify="left" if column in ("work", "kind") else "right")
    parts = add_up(made.parts[stage])
    whole = sum(part.total_s for part in parts) or 1.0  # a stage may have no layers
    for part in parts:
        times = (format_seconds(value) for value in (part.forward_s, part.input_s, part.weight_s))
        table.add_row(part.name, part.group, *times, f"{part.total_s / whole:.1%}")
    table.caption = "\n".join(notes(case))
    return table


def comparison_table(names: Sequence[str], found: Sequence[Metrics]) -> Table:
    """One column a schedule; the best of each row in bold."""
    table = Table(title="comparison", title_justify="left")
    table.add_column("")
    for name in names:
        table.add_column(name, justify="right")
    for row in metric_rows(found):
        best = best_of(row)
        table.add_row(row.label, *(f"[bold]{text}[/]" if at in best else text for at, text in enumerate(row.texts)))
    return table
