"""What a search has found, as JSON and as tables."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.table import Table

from pipesim.cli.views.tables import console
from pipesim.ir.memory import peak_activations
from pipesim.plan.search.find import Result
from pipesim.plan.search.rivals import Rival
from pipesim.units import format_bytes, format_seconds

_SHOWN = 12  # families in the table


def to_json(result: Result, *, interrupted: bool) -> dict[str, Any]:
    """The stable object of --json. interrupted: whether Ctrl-C ended the search."""
    found, best, setting = result.found, result.best, result.setting
    peak = peak_activations(best.schedule, setting.release)
    return {
        "name": best.name,
        "ranks": setting.placement.ranks,
        "microbatches": setting.microbatches,
        "placement": {"kind": setting.placement.kind(), "ranks_of_stages": list(setting.placement.ranks_of_stages)},
        "memory_limit": None if setting.limit is None else str(setting.limit),
        "makespan_s": best.makespan_s,
        "step_time_s": best.step_time_s,
        "lower_bound_s": found.bounds.best_s,
        "bound_by": found.bounds.reason,
        "bounds_s": dict(found.bounds.seconds),
        "gap": result.gap,
        "optimal": result.gap <= 1e-6,
        "peak_activations": peak.tolist(),
        "peak_memory_bytes": None if best.peak_bytes is None else best.peak_bytes.tolist(),
        "recomputed": {
            str(stage): np.flatnonzero(row).tolist() for stage, row in enumerate(result.recomputed) if row.any()
        },
        "origin": found.origin,
        "interrupted": interrupted,
        "search_s": found.spent_s,
        "notes": list(found.notes),
        "families": [_family(one, best) for one in result.rivals],
    }


def _family(one: Rival, best: Rival) -> dict[str, Any]:
    return {
        "name": one.name,
        "placement": one.placement,
        "makespan_s": one.makespan_s,
        "step_time_s": one.step_time_s,
        "fits": one.fits,
        "ratio": one.step_time_s / best.step_time_s,
    }


def print_result(result: Result, *, interrupted: bool) -> None:
    """Tables for people."""
    found, best, setting = result.found, result.best, result.setting
    screen = console()
    table = Table(title=f"search: {setting.placement.kind()} placement", show_header=False, title_justify="left")
    bounds = ", ".join(f"{word} {format_seconds(value)}" for word, value in found.bounds.seconds.items())
    peak = peak_activations(best.schedule, setting.release)
    limit = "no limit" if setting.limit is None else f"limit {setting.limit}"
    proof = "proven optimal" if result.gap <= 1e-6 else f"at most {result.gap:.2%} above the optimum"
    for row in (
        ("makespan", format_seconds(best.makespan_s)),
        ("step time", format_seconds(best.step_time_s)),
        ("lower bound", f"{format_seconds(found.bounds.best_s)} ({found.bounds.reason}): {proof}"),
        ("bounds", bounds),
        ("peak activations", f"{peak.max():g} microbatches (rank {peak.argmax()}), {limit}"),
        *((("peak memory", format_bytes(float(best.peak_bytes.max()))),) if best.peak_bytes is not None else ()),
        *((("recomputed", _recomputed(result)),) if result.recomputed.any() else ()),
        ("made from", found.origin + (" (interrupted)" if interrupted else "")),
        *(("note", note) for note in found.notes),
    ):
        table.add_row(*row)
    screen.print(table)
    screen.print(_families(result))


def _recomputed(result: Result) -> str:
    """Stage by stage, how many microbatches are recomputed."""
    count = result.setting.microbatches
    return ", ".join(f"stage {stage}: {row.sum()}/{count}" for stage, row in enumerate(result.recomputed) if row.any())


def _families(result: Result) -> Table:
    table = Table(title="families on the same costs", title_justify="left")
    for column in ("family", "placement", "step time", "to the search", "fits"):
        table.add_column(column, justify="left" if column in ("family", "placement") else "right")
    for one in result.rivals[:_SHOWN]:
        ratio = one.step_time_s / result.best.step_time_s - 1.0
        table.add_row(
            one.name, one.placement, format_seconds(one.step_time_s), f"{ratio:+.1%}", "yes" if one.fits else "no"
        )
    if len(result.rivals) > _SHOWN:
        table.caption = f"{len(result.rivals) - _SHOWN} more: --json has them all"
    return table
