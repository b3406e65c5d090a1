"""`pipesim profile`: what each stage and link takes, into a costs file that `simulate` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pipesim.cli.options import job
from pipesim.cli.options.groups import Without
from pipesim.cli.options.job import JobChoice, require_torch
from pipesim.cli.options.schedule import Name, ScheduleOptions
from pipesim.costs.costs_file import write_costs_file
from pipesim.files import require_writable

Out = Annotated[Path, typer.Option("--out", help="The costs file, JSON.")]
Repeats = Annotated[int, typer.Option("--repeats", min=1, help="How often each stage is timed.")]


def profile(
    name: Name,
    out: Out,
    schedule: ScheduleOptions,
    choice: Annotated[JobChoice, Without("steps", "lr", "comm", "dynamic_shapes", "no_check")],
    repeats: Repeats = 9,
) -> None:
    """Measure seconds, bytes and links of a schedule's stages, for `simulate --costs`.

    Example: pipesim profile 1f1b -p 2 -m 8 --model tiny-llama --out costs.json
    """
    require_torch()
    require_writable(out)
    program, _ = job.program_of(name, choice, schedule)
    task = job.task_of(program, choice)
    found = measure(task, choice, repeats)
    if found is None:
        return
    from pipesim.backends.job.profile import to_costs_file

    lists, numbers, facts = to_costs_file(program, found)
    write_costs_file(out, lists, numbers, facts)
    _print(lists, numbers)


def measure(task: Any, choice: JobChoice, repeats: int, *, run: bool = False) -> Any:
    """What `profile` (and, with `run`, some steps) measured; None on a worker that is not rank 0."""
    from functools import partial

    from pipesim.backends.job.profile import profile as worker

    return job.run_job(partial(worker, repeats=repeats, run=run), task, choice)


def _print(lists: dict[str, list[float]], numbers: dict[str, float]) -> None:
    from rich.table import Table

    from pipesim.cli.views.tables import console
    from pipesim.units import format_bytes, format_seconds

    table = Table(title="one microbatch on each stage", title_justify="left")
    kinds = [kind for kind in "FBIW" if kind in lists]
    for column in ("stage", *kinds, "activation", "released at I", "message"):
        table.add_column(column, justify="right")
    for stage in range(len(lists["F"])):
        times = (format_seconds(lists[kind][stage]) for kind in kinds)
        table.add_row(
            str(stage), *times, format_bytes(lists["activation_bytes"][stage]),
            f"{lists['released_at_input'][stage]:.0%}", format_bytes(lists["message_bytes"][stage]),
        )  # fmt: skip
    rate = numbers.get("bytes_per_s")
    table.caption = (
        f"host {format_seconds(numbers['host_s'])} an action, message {format_seconds(numbers['latency_s'])}"
        + (f" + bytes at {format_bytes(rate)}/s" if rate else "")
    )
    console().print(table)
