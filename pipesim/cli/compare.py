"""`pipesim compare`: several schedules on the same costs, side by side on one time axis."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from pipesim.cli.options.case import CostOptions, make_case
from pipesim.cli.options.groups import Without
from pipesim.cli.options.outputs import Outputs
from pipesim.cli.options.schedule import ScheduleOptions
from pipesim.cli.simulate import EngineName, engine_of, run_case, to_json, warn_if_too_large

Names = Annotated[list[str], typer.Argument(help="Schedules by name, my_module.py:build, or files.")]


def compare(
    names: Names,
    schedule: ScheduleOptions,
    costs: CostOptions,
    outputs: Annotated[Outputs, Without("trace", "timeline", "metrics")],
    engine: EngineName = "auto",
) -> None:
    """Compare schedules on the same costs; an option counts for the schedules that have it.

    Example: pipesim compare gpipe 1f1b interleaved -p 4 -m 8 -v 2 --costs F=1,I=1,W=1 --out compare.html
    """
    outputs.require_writable()
    chosen, out = engine_of(engine), outputs.out
    cases = [make_case(name, schedule, costs, lenient=True) for name in names]
    runs = [run_case(case, chosen) for case in cases]
    if out is not None:
        from pipesim.viz.comparison import comparison
        from pipesim.viz.output import drawing_for, write_figure

        figure = comparison([made for made, _ in runs], [found for _, found in runs], **drawing_for(out))
        write_figure(figure, out)
    if outputs.as_json:
        print(json.dumps([to_json(case, found) for case, (_, found) in zip(cases, runs, strict=True)]))
    else:
        from pipesim.cli.views.tables import comparison_table, console

        console().print(comparison_table([case.schedule.name for case in cases], [found for _, found in runs]))
    for case, (_, found) in zip(cases, runs, strict=True):
        warn_if_too_large(case, found)
