"""Training through failures: what `pipesim run --layout … --checkpoint FOLDER` does."""

from __future__ import annotations

import logging
import os
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from pipesim.cli import job
from pipesim.cli.case import BadCase
from pipesim.cli.job import JobChoice
from pipesim.cli.options import ScheduleOptions, schedule_from_options
from pipesim.cli.outputs import Outputs
from pipesim.cli.train import ParallelChoice, layout_of
from pipesim.costs.layouts.layout import Layout
from pipesim.files import read_text
from pipesim.ir.lower import lower
from pipesim.units import parse_seconds


@dataclass(frozen=True)
class Kept:
    """What goes with `--checkpoint`. fallback: layouts for other numbers of processes, in order."""

    panel: ClassVar[str] = "Checkpoints"

    checkpoint: Annotated[Path | None, typer.Option("--checkpoint", help="Folder of checkpoints; goes on from it.")] = (
        None
    )
    checkpoint_every: Annotated[str, typer.Option("--checkpoint-every", help="Steps, or a time such as 10min.")] = "100"
    keep: Annotated[int, typer.Option("--keep", min=1, help="How many of the newest checkpoints stay.")] = 2
    fallback: Annotated[
        list[str] | None,
        typer.Option("--fallback", metavar="LAYOUT", help="Layout for another number of processes."),
    ] = None
    max_restarts: Annotated[int, typer.Option("--max-restarts", min=0, help="Of local processes, when one fails.")] = 0


def train_through_failures(
    name: str, choice: JobChoice, parallel: ParallelChoice, kept: Kept, schedule: ScheduleOptions, outputs: Outputs
) -> None:
    """Train to the end from the newest checkpoint, on local processes or as one of torchrun's.

    Raises what the job raises.
    """
    from pipesim.backends.elastic.layouts import choose_layout
    from pipesim.backends.elastic.train import train_on
    from pipesim.backends.job.local import JobOptions, run_local

    _require(parallel, outputs)
    given = _layouts(choice, parallel, kept, schedule)
    member = job.under_torchrun()
    processes = int(os.environ["WORLD_SIZE"]) if member else given[0].gpus
    layout, task = choose_layout(
        given, processes, lambda one: _task(name, one, choice, parallel, kept, schedule, outputs)
    )
    logging.basicConfig(format="pipesim: %(message)s", stream=sys.stderr)
    logging.getLogger("pipesim").setLevel(logging.INFO)
    if member:
        losses = _as_member(layout.gpus, choice, task)
    else:
        local = JobOptions(choice.device, choice.timeout, choice.port, task.program, kept.max_restarts)
        losses = run_local(processes, train_on, task, options=local)[0]
    if losses and int(os.environ.get("RANK", "0")) == 0:
        first, last = min(losses), max(losses)
        print(f"{name} at pp={layout.pp},tp={layout.tp},dp={layout.dp}: steps {first}-{last}, ", end="")
        print(f"loss {losses[first]:.4f} → {losses[last]:.4f}")


def _require(parallel: ParallelChoice, outputs: Outputs) -> None:
    """Raises BadCase for what a job that may begin anew does not give."""
    if parallel.layout is None:
        raise BadCase("--checkpoint without --layout", "give one, such as --layout pp=2,tp=2,dp=2")
    for what, given in (
        ("--timeline", outputs.timeline), ("--out", outputs.out), ("--trace", outputs.trace),
        ("--save", parallel.save), ("--accumulate", parallel.accumulate > 1),
    ):  # fmt: skip
        if given:
            raise BadCase(f"{what} with --checkpoint", f"leave one of them out: {what} is of runs in one piece")


def _as_member(processes: int, choice: JobChoice, task: Any) -> dict[int, float]:
    """A worker of torchrun: ends at once when something is wrong, without a farewell that nobody answers."""
    from pipesim.backends.elastic.stop import Stopped, status_of_stopped
    from pipesim.backends.elastic.train import train_on
    from pipesim.backends.execute.failures import one_line
    from pipesim.backends.job.worker import as_member, end_with_parent

    end_with_parent(signal.SIGKILL)  # a launcher that was killed outright takes its workers along
    try:
        found: dict[int, float] = as_member(processes, choice.device, choice.timeout, train_on, task)
        return found
    except Exception as error:  # whatever it is, the launcher decides what comes next
        print(f"pipesim: rank {os.environ['RANK']}: {one_line(error)}", file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(status_of_stopped() if isinstance(error, Stopped) else 1)


def _layouts(choice: JobChoice, parallel: ParallelChoice, kept: Kept, schedule: ScheduleOptions) -> list[Layout]:
    """The one asked for and the fallbacks, all with the batch of the first. Raises BadCase, BadLayout."""
    microbatches = schedule.microbatches
    if microbatches is None:
        raise BadCase("how many samples has a step?", "give --microbatches, of one pipeline at --layout")
    first = layout_of(choice, parallel, microbatches=microbatches)
    found = [first]
    for text in kept.fallback or ():
        other = layout_of(choice, replace(parallel, layout=text), microbatches=1)
        found.append(replace(other, global_batch=first.global_batch))
    return found


def _task(
    name: str,
    layout: Layout,
    choice: JobChoice,
    parallel: ParallelChoice,
    kept: Kept,
    schedule: ScheduleOptions,
    outputs: Outputs,
) -> Any:
    """The job at a layout. Raises what model, schedule and batch do not allow."""
    from pipesim.backends.elastic.train import TrainTask
    from pipesim.backends.model.config import load_decoder
    from pipesim.backends.model.stage import stages_of
    from pipesim.backends.parallel.places import check_layout, of_stages
    from pipesim.backends.parallel.rates import Rates
    from pipesim.backends.parallel.tensor import check_tensor_parallel

    if choice.model is None or ".py:" in choice.model:
        raise BadCase("--checkpoint needs a decoder", "--model tiny-llama, or a folder with a config.json")
    check_layout(layout, layout.gpus)
    config = load_decoder(choice.model)
    program = lower(schedule_from_options(name, replace(schedule, ranks=layout.pp, microbatches=layout.microbatches)))
    length = program.schedule.placement.length
    check_tensor_parallel(config.model, of_stages(layout, length))
    stages_of(config, layout, length)
    return TrainTask(
        program=program,
        layout=layout,
        config=config,
        steps=choice.steps,
        samples=choice.micro_batch,
        seq=choice.seq,
        seed=choice.seed,
        dtype=choice.dtype,
        rate=Rates(choice.lr, parallel.warmup, parallel.lr_shape, choice.steps),  # type: ignore[arg-type]  # it checks
        clip_norm=parallel.clip or None,
        split_backward=choice.split_backward,
        text=None if parallel.data is None else read_text(parallel.data),
        tokenizer=parallel.tokenizer,
        losses=outputs.metrics,
        checkpoints=_checkpoints(kept),
        hang_s=choice.timeout,
    )


def _checkpoints(kept: Kept) -> Any:
    from pipesim.backends.checkpoint.saver import Checkpoints

    assert kept.checkpoint is not None
    made = Checkpoints(kept.checkpoint, keep=kept.keep)
    if kept.checkpoint_every.isascii() and kept.checkpoint_every.isdigit():
        return replace(made, every_steps=int(kept.checkpoint_every))
    return replace(made, every_s=parse_seconds(kept.checkpoint_every))
