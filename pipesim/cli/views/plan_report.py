"""A plan as tables for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from pipesim.cli.views.tables import console
from pipesim.plan.detail import REMEDY, Detail, difference, layers_text
from pipesim.plan.planner import Found
from pipesim.plan.relief import name_of
from pipesim.plan.request import Request
from pipesim.units import format_bytes, format_seconds

_SHOWN = 0.001  # parts of the step time below this are left out


def show(request: Request, found: Found, ranking: Sequence[Detail], words: dict[str, str], took_s: float) -> None:
    """Print counts, the ranking, where the winner's time goes, and how to run it."""
    screen, counts = console(), found.counts
    screen.print(
        f"{counts.enumerated:,} choices: {counts.too_large:,} too large, {counts.bounded:,} excluded by their bound, "
        f"{counts.unsuitable:,} unsuitable, {counts.simulated:,} simulated, in {took_s:.1f} s"
        + ("" if found.complete else " (interrupted: the best so far)")
    )
    screen.print(_table(request, ranking))
    best = ranking[0]
    screen.print(_spent(best))
    if best.shared_step_time_s is not None:
        screen.print(f"with links shared by transfers, reference engine: {format_seconds(best.shared_step_time_s)}")
    screen.print(f"its largest loss is {best.limit}; what would help: {REMEDY[best.loss]}")
    if len(ranking) > 1:
        screen.print(f"the runner-up is {difference(best, ranking[1])}")
    print()
    print(f"see it:        {words['simulate']}")
    print(f"run it:        {words['launch']}")
    print(f"Megatron-LM:   {words['megatron']}")
    print("torchtitan:")
    print("".join(f"    {line}\n" for line in words["torchtitan"].splitlines()), end="")


def _table(request: Request, ranking: Sequence[Detail]) -> Table:
    table = Table(title=f"{request.model.name} on {request.cluster.name}", title_justify="left")
    for head in ("#", "layout", "layers", "step", "tokens/s/GPU", "MFU", "memory", "bubble", "exposed comm.", "why"):
        table.add_column(head, justify="left" if head in ("layout", "layers", "why") else "right", overflow="fold")
    for place, one in enumerate(ranking):
        figures = one.figures
        assert figures.tokens_per_s_per_gpu is not None
        assert figures.mfu is not None
        table.add_row(
            str(place + 1),
            name_of(one.choice),
            layers_text([stage.layers for stage in one.estimate.stages]),
            format_seconds(one.step_time_s),
            f"{figures.tokens_per_s_per_gpu:,.0f}",
            f"{figures.mfu:.1%}",
            format_bytes(one.peak_bytes),
            f"{figures.bubble_fraction:.1%}",
            f"{one.communication_part:.1%}",
            f"{one.limit} is its largest loss" if place == 0 else difference(ranking[0], one),
        )
    return table


def _spent(best: Detail) -> Table:
    table = Table(title="where the step of the first goes, mean over GPUs", title_justify="left")
    for head in ("", "seconds", "part"):
        table.add_column(head, justify="right" if head else "left")
    for name, seconds in sorted(best.spent.items(), key=lambda one: -one[1]):
        if seconds >= _SHOWN * best.step_time_s:
            table.add_row(name, format_seconds(seconds), f"{seconds / best.step_time_s:.1%}")
    return table
