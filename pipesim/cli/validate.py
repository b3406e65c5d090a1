"""`pipesim validate`: profile, simulate and run one schedule, and lay the two timelines side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from pipesim.agreement import Agreement, agree
from pipesim.cli.options import job
from pipesim.cli.options.groups import Without
from pipesim.cli.options.job import JobChoice, require_torch
from pipesim.cli.options.outputs import Outputs, require_outputs
from pipesim.cli.options.schedule import Name, ScheduleOptions
from pipesim.cli.profile import Repeats, measure
from pipesim.cli.run import measured_timeline
from pipesim.costs.costs_file import CostsFile, write_costs_file
from pipesim.engine.choose import simulate
from pipesim.metrics import summarize
from pipesim.timeline import Timeline
from pipesim.units import parse_fraction

Tolerance = Annotated[str, typer.Option("--tolerance", help="Largest error of the step time before status 1.")]
CostsOut = Annotated[Path | None, typer.Option("--costs-out", help="Keep the profile as a costs file.")]


_USUAL = JobChoice(steps=7, lr=0.0)
_TABLES = Outputs()


def validate(
    name: Name,
    schedule: ScheduleOptions,
    choice: Annotated[JobChoice, Without("lr", "dynamic_shapes", "no_check")] = _USUAL,
    repeats: Repeats = 9,
    tolerance: Tolerance = "5%",
    outputs: Annotated[Outputs, Without("trace", "timeline", "metrics")] = _TABLES,
    costs_out: CostsOut = None,
) -> int:
    """Predict a schedule's step from a profile, run it, and compare; status 1 beyond the tolerance.

    Example: pipesim validate 1f1b -p 4 -m 16 --emulate F=20ms,I=20ms,W=10ms --tolerance 5%
    """
    require_torch()
    allowed = parse_fraction(tolerance, name="tolerance")
    require_outputs(out=outputs.out, costs_out=costs_out)
    program, _ = job.program_of(name, choice, schedule)
    from pipesim.backends.job.profile import to_costs_file

    task = job.task_of(program, choice, weigh_memory=False)
    profiled = measure(task, choice, repeats, run=True)
    if profiled is None:
        return 0
    lists, numbers, facts = to_costs_file(program, profiled)
    if costs_out is not None:
        write_costs_file(costs_out, lists, numbers, facts)
    file = CostsFile("the profile", {key: tuple(values) for key, values in lists.items()}, numbers)
    predicted = simulate(program, file.of(program.schedule))
    measured = measured_timeline(task, profiled.outcome)
    if outputs.out is not None:
        _draw(predicted, measured, outputs.out)
    return _judge(agree(predicted, measured, step_s=profiled.outcome.step_s), allowed, outputs.as_json)


def _draw(predicted: Timeline, measured: Timeline, path: Path) -> None:
    from pipesim.viz.comparison import comparison
    from pipesim.viz.page import write_html

    write_html(comparison([predicted, measured], [summarize(predicted), summarize(measured)]), path)


def _judge(found: Agreement, allowed: float, as_json: bool) -> int:
    """Print the comparison; the exit status."""
    within = abs(found.step_time_error) <= allowed
    if as_json:
        print(json.dumps(found.to_json() | {"within_tolerance": within, "tolerance": allowed}))
    else:
        _print(found, within, allowed)
    return 0 if within else 1


def _print(found: Agreement, within: bool, allowed: float) -> None:
    from rich.table import Table

    from pipesim.cli.views.tables import console
    from pipesim.units import format_seconds

    table = Table(title=found.title, title_justify="left")
    for column in ("", "simulated", found.source, "error"):
        table.add_column(column, justify="left" if not column else "right")
    table.add_row(
        "step time (median)", format_seconds(found.predicted_s), format_seconds(found.measured_s),
        f"{found.step_time_error:+.1%}",
    )  # fmt: skip
    table.add_row(
        "bubble_fraction", f"{found.predicted_bubble:.1%}", f"{found.measured_bubble:.1%}",
        f"{found.predicted_bubble - found.measured_bubble:+.1%}",
    )  # fmt: skip
    for kind, (predicted, measured) in found.kinds.items():
        table.add_row(
            f"{kind}, mean", format_seconds(predicted), format_seconds(measured),
            f"{predicted / measured - 1:+.1%}" if measured else "",
        )  # fmt: skip
    for rank, (predicted, measured) in enumerate(found.rank_busy):
        table.add_row(
            f"rank {rank}, busy", format_seconds(predicted), format_seconds(measured),
            f"{predicted / measured - 1:+.1%}" if measured else "",
        )  # fmt: skip
    verdict = "within" if within else "BEYOND"
    table.caption = (
        f"{verdict} the tolerance of {allowed:.1%}; starts in the same order: {found.same_order:.1%} of the pairs "
        f"of actions; action ends off by {format_seconds(found.end_error_s)} in the mean"
    )
    console().print(table)
