"""`pipesim run`: a schedule on real processes, and what they took as a timeline like any other."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Literal

import typer

from pipesim.cli import train
from pipesim.cli.options import job
from pipesim.cli.options.case import BadCase
from pipesim.cli.options.groups import Without
from pipesim.cli.options.job import JobChoice, require_torch
from pipesim.cli.options.outputs import Outputs
from pipesim.cli.options.schedule import Name, ScheduleOptions
from pipesim.cli.train import Asked, ParallelChoice
from pipesim.cli.training import Kept, check_kept, on_layout, train_through_failures
from pipesim.metrics import summarize
from pipesim.timeline import Timeline
from pipesim.units import format_seconds

Runtime = Annotated[str, typer.Option("--runtime", help="pipesim, or torch (its own pipelining runtime).")]


def run(
    name: Name,
    schedule: Annotated[ScheduleOptions, Without("offload")],
    choice: JobChoice,
    outputs: Outputs,
    parallel: ParallelChoice,
    kept: Kept,
    runtime: Runtime = "pipesim",
) -> None:
    """Run a schedule on local processes (or, under torchrun, as one of them).

    Example: pipesim run 1f1b --ranks 4 --microbatches 16 --model tiny-llama --steps 20 --out run.html
    Example: pipesim run 1f1b --layout pp=2,tp=2,dp=2 --microbatches 4 --model tiny-llama --steps 20
    """
    require_torch()
    asked = Asked(name, choice, parallel, schedule, outputs.metrics)
    if _require(outputs, parallel, kept, runtime) == "stages":
        _run_stages(name, choice, schedule, runtime, outputs)
        return
    if kept.checkpoint is None:
        task, found = train.run_layout(asked)
    else:
        task, found = train_through_failures(on_layout(asked), kept)
    if found is not None:
        train.tell(task, found, outputs)


def check_run(
    name: Name,
    schedule: Annotated[ScheduleOptions, Without("offload")],
    choice: JobChoice,
    outputs: Outputs,
    parallel: ParallelChoice,
    kept: Kept,
    runtime: Runtime = "pipesim",
) -> tuple[int, bool]:
    """How many processes a run would have, and whether it also runs on another number. Raises what `run` would."""
    asked = Asked(name, choice, parallel, schedule, outputs.metrics)
    if _require(outputs, parallel, kept, runtime) == "stages":
        program, strict = job.program_of(name, choice, schedule)
        job.task_of(program, choice, strict=strict)
        return program.ranks, False
    if kept.checkpoint is None:
        layout = train.first_layout(asked)
        train.train_of(asked, layout)
        return layout.gpus, False
    return check_kept(on_layout(asked), kept).layout.gpus, True


def _require(outputs: Outputs, parallel: ParallelChoice, kept: Kept, runtime: str) -> Literal["stages", "layout"]:
    """What a run is of. Raises CannotWrite, and BadCase for options that do not go together."""
    outputs.require_writable()
    if kept.checkpoint is None:
        kept.require_none()
        if parallel.layout is None:
            parallel.require_none()
            return "stages"
    if runtime != "pipesim":
        option = "--layout" if parallel.layout is not None else "--checkpoint"
        raise BadCase(f"--runtime {runtime} with {option}", "torch's runtime runs stages of one pipeline only")
    return "layout"


def _run_stages(name: str, choice: JobChoice, schedule: ScheduleOptions, runtime: str, outputs: Outputs) -> None:
    """Run the stages of one pipeline, one process a rank."""
    program, strict = job.program_of(name, choice, schedule)
    task = job.task_of(program, choice, strict=strict)
    if runtime != "pipesim":
        from pipesim.backends.job.torch_runtime import require_runtime, train_with_torch

        require_runtime(runtime, task)
        if outputs.timeline is not None or outputs.out is not None or outputs.trace is not None:
            raise BadCase("torch's runtime gives no timeline", "leave --timeline, --out and --trace out")
        outcome = job.run_job(train_with_torch, task, choice)
    else:
        from pipesim.backends.job.train import train as train_stages

        outcome = job.run_job(train_stages, task, choice)
    if outcome is not None:
        _report(task, outcome, choice, outputs)


def _report(task: Any, outcome: Any, choice: JobChoice, outputs: Outputs) -> None:
    if outputs.metrics is not None:
        _write_metrics(outputs.metrics, outcome)
    if not outcome.records:
        _print_without_timeline(outcome, outputs.as_json)
        return
    made = measured_timeline(task, outcome)
    found = summarize(made)
    outputs.write(made, found)
    schedule = task.program.schedule
    if outputs.as_json:
        head = {"name": schedule.name, "ranks": schedule.ranks, "microbatches": schedule.microbatches}
        tail = {"source": made.source, "losses": outcome.losses, "step_s": outcome.step_s}
        print(json.dumps(head | found.to_json() | tail))
        return
    from pipesim.cli.views.tables import console, rank_table, summary

    screen = console()
    word = "emulated" if choice.emulate is not None else f"measured on {choice.device}"
    title = f"{schedule.name}: {schedule.ranks} ranks, {schedule.microbatches} microbatches, {word}"
    if choice.emulate is None:
        title += f"\nloss {outcome.losses[0]:.4f} → {outcome.losses[-1]:.4f} in {len(outcome.losses)} steps"
    screen.print(summary(title, found))
    screen.print(rank_table(found))
    sys.stdout.flush()


def _write_metrics(path: Path, outcome: Any) -> None:
    from pipesim.files import write_atomically

    rows = [
        {"step": step, "loss": loss, "step_s": seconds}
        for step, (loss, seconds) in enumerate(zip(outcome.losses, outcome.step_s, strict=True), 1)
    ]
    write_atomically(path, "".join(json.dumps(row) + "\n" for row in rows))


def _print_without_timeline(outcome: Any, as_json: bool) -> None:
    """torch's runtime tells nothing of its actions."""
    found = {"losses": outcome.losses, "step_s": outcome.step_s, "median_step_s": median(outcome.step_s)}
    if as_json:
        print(json.dumps({"runtime": "torch"} | found))
    else:
        print(f"torch's runtime: loss {outcome.losses[0]:.4f} → {outcome.losses[-1]:.4f}, ", end="")
        print(f"median step {format_seconds(median(outcome.step_s))}")


def measured_timeline(task: Any, outcome: Any) -> Timeline:
    """The step of median time; its memory is that of the step in which bytes were noted."""
    from pipesim.backends.measure.timelines import assemble_with_memory

    return assemble_with_memory(
        task.program, outcome.records, outcome.weighed, source="measured" if task.emulate is None else "emulated"
    )
