"""`pipesim report`: one page on one step, with figures, what they mean, and where they come from."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from pipesim.cli.options.case import Case, CostOptions, make_case, notes
from pipesim.cli.options.schedule import ScheduleOptions
from pipesim.cli.simulate import EngineName, engine_of, run_case, warn_if_too_large
from pipesim.files import require_writable
from pipesim.metrics import summarize
from pipesim.timeline_file import TIMELINES, load_timeline
from pipesim.viz.report import Report, write_report

Name = Annotated[
    str, typer.Argument(help="A schedule by name, my_module.py:build, a file of orders, or a saved timeline.")
]
Out = Annotated[Path, typer.Option("--out", help="The report, an HTML file.")]


def report(
    name: Name,
    schedule: ScheduleOptions,
    costs: CostOptions,
    engine: EngineName = "auto",
    out: Out = Path("report.html"),
) -> None:
    """Write a report of one step: figures, charts, breakdowns, what to change, and how it was made.

    Example: pipesim report 1f1b --model llama-3-8b --cluster dgx-h100:1 --pp 8 --global-batch 64 --out report.html
    """
    require_writable(out)
    if Path(name).suffix in TIMELINES:
        made = load_timeline(Path(name))
        write_report(Report(made, summarize(made), inputs=_facts(made.facts), command=_command()), out)
        return
    case = make_case(name, schedule, costs)
    timeline, found = run_case(case, engine_of(engine))
    write_report(Report(timeline, found, case.costs, case.estimate, _inputs(case, costs), notes(case), _command()), out)
    print(f"{out}: {case.schedule.name}, step {found.step_time_s:.4g} s, bubble {found.bubble_fraction:.1%}")
    warn_if_too_large(case, found)


def _inputs(case: Case, given: CostOptions) -> dict[str, str]:
    schedule = case.schedule
    found = {
        "schedule": schedule.name,
        "ranks": str(schedule.ranks),
        "stages": f"{schedule.placement.stages} ({schedule.placement.kind()})",
        "microbatches": str(schedule.microbatches),
        "transfers": f"--comm {case.program.comm}",
    }
    if given.costs is not None:
        found["costs"] = given.costs
    if case.estimate is not None:
        found["layers a stage"] = ", ".join(str(stage.layers) for stage in case.estimate.stages)
    return found | _facts(case.facts or {})


def _facts(facts: dict[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in facts.items()}


def _command() -> str:
    return shlex.join(["pipesim", *sys.argv[1:]])
