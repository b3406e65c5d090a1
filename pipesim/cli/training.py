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

from pipesim.backends.launch.ssh import GOES_ON_LATER
from pipesim.cli.options import job
from pipesim.cli.options.case import BadCase
from pipesim.cli.options.schedule import schedule_from_options
from pipesim.cli.train import Asked, first_layout, layout_of, train_of
from pipesim.costs.catalog_files import UnknownName
from pipesim.costs.clusters.cluster_catalogue import plain_cluster
from pipesim.costs.clusters.gpu import find_gpu
from pipesim.costs.layouts.layout import Layout
from pipesim.schedules.lookup import is_file
from pipesim.units import format_seconds, parse_seconds

_USUAL_GPU = "h100-sxm"  # for CPUs, and GPUs that the catalogue does not have
_GBIT_PER_S = 400.0  # of each GPU to other nodes
log = logging.getLogger("pipesim.training")


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
        typer.Option(
            "--fallback", metavar="LAYOUT", help="Layout for another number of processes (else the fastest simulated)."
        ),
    ] = None
    max_restarts: Annotated[int, typer.Option("--max-restarts", min=0, help="Of local processes, when one fails.")] = 0

    def require_none(self) -> None:
        """Raises BadCase where something is given that only works with checkpoints."""
        given = next((name for name, value in vars(self).items() if value != getattr(Kept(), name)), None)
        if given is not None:
            raise BadCase(f"--{given.replace('_', '-')} without --checkpoint", "give one, such as --checkpoint run/")


def train_through_failures(asked: Asked, kept: Kept) -> tuple[Any, Any]:
    """Train to the end from the newest checkpoint, on local processes or as one of torchrun's.

    The task, and what rank 0 knows of it (None on others). Ends the process with status 75 where the job was asked
    to end before. Raises what the job raises.
    """
    from pipesim.backends.job.local import JobOptions, run_local
    from pipesim.backends.job.signals import Stopped
    from pipesim.backends.training.train import train

    logging.basicConfig(format="pipesim: %(message)s", stream=sys.stderr)
    logging.getLogger("pipesim").setLevel(logging.INFO)
    if job.under_torchrun():
        return _as_member(asked, _layouts(asked, kept), _keep(asked, kept))
    task = check_kept(asked, kept)
    choice = asked.choice
    local = JobOptions(choice.device, choice.timeout, choice.port, task.program, kept.max_restarts, keeps=True)
    try:
        found = run_local(task.layout.gpus, train, task, options=local)[0]
    except Stopped as stopped:
        found = stopped
    if isinstance(found, Stopped):
        raise _ended_early(found)
    return task, found


def check_kept(asked: Asked, kept: Kept) -> Any:
    """The task at the layout that is asked for. Raises what is wrong with it, or with those to fall back to."""
    keep = _keep(asked, kept)
    first, *_ = [train_of(asked, layout, keep) for layout in _layouts(asked, kept)]
    return first


def on_layout(asked: Asked) -> Asked:
    """With the layout of a single pipeline where none is given."""
    if asked.parallel.layout is not None:
        return asked
    made = schedule_from_options(asked.name, asked.schedule)
    return replace(asked, parallel=replace(asked.parallel, layout=f"pp={made.ranks}"))


def _ended_early(stopped: Any) -> typer.Exit:
    print(f"pipesim: {stopped}", file=sys.stderr, flush=True)
    return typer.Exit(GOES_ON_LATER)


def _as_member(asked: Asked, given: list[Layout], keep: Any) -> tuple[Any, Any]:
    """A worker of torchrun: ends at once when something is wrong, without a farewell that nobody answers."""
    from pipesim.backends.checkpoint.folder import TakenOver
    from pipesim.backends.elastic.layouts import agreed, choose_layout
    from pipesim.backends.elastic.stop import status_of_stopped
    from pipesim.backends.execute.failures import one_line
    from pipesim.backends.job.signals import Stopped, answer
    from pipesim.backends.job.worker import end_with_parent, join, leave
    from pipesim.backends.training.train import train

    end_with_parent(signal.SIGKILL)  # a launcher that was killed outright takes its workers along
    rank, choice = os.environ["RANK"], asked.choice
    try:
        context = join(choice.device, choice.timeout)
        others = agreed(lambda: _others(asked, given, context))
        _, task = choose_layout(given, others, context.ranks, lambda one: train_of(asked, one, keep))
        found = train(context, task)
        leave()
    except Exception as error:  # whatever it is, the launcher decides what comes next
        print(f"pipesim: rank {rank}: {one_line(error)}", file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(0 if isinstance(error, TakenOver) and answer("replaced") else 1)
    if isinstance(found, Stopped):
        status = status_of_stopped()
        if rank == "0":
            _ended_early(found)
        raise typer.Exit(status)
    return task, found


def _keep(asked: Asked, kept: Kept) -> Any:
    """What is kept, and when. Raises what parsing a time raises."""
    from pipesim.backends.checkpoint.saver import Checkpoints
    from pipesim.backends.training.task import Keep

    assert kept.checkpoint is not None
    made = Checkpoints(kept.checkpoint, keep=kept.keep)
    if kept.checkpoint_every.isascii() and kept.checkpoint_every.isdigit():
        made = replace(made, every_steps=int(kept.checkpoint_every))
    else:
        made = replace(made, every_s=parse_seconds(kept.checkpoint_every))
    return Keep(made, asked.choice.timeout)


def _layouts(asked: Asked, kept: Kept) -> list[Layout]:
    """The one asked for and the fallbacks, all with the batch of the first. Raises BadCase, BadLayout."""
    first = first_layout(asked)
    found = [first]
    for text in kept.fallback or ():
        other = layout_of(asked.choice, replace(asked.parallel, layout=text), microbatches=1)
        found.append(replace(other, global_batch=first.global_batch))
    return found


def _others(asked: Asked, given: list[Layout], context: Any) -> list[Layout]:
    """Where no given layout has so many processes: those that fit, the fastest in simulation first."""
    from pipesim.backends.elastic.layouts import alike

    if any(layout.gpus == context.ranks for layout in given):
        return []
    timed = _timed(asked, given[0], context)
    if timed:
        best = timed[0]
        log.info(
            "%d processes: of %d layouts that fit, pp=%d,tp=%d,dp=%d takes least time in simulation, %s a step",
            context.ranks, len(timed), best.layout.pp, best.layout.tp, best.layout.dp,
            format_seconds(best.step_time_s),
        )  # fmt: skip
    else:
        log.info("%d processes: none of their layouts can be simulated or fits: the most alike is tried", context.ranks)
    simulated = [one.layout for one in timed]
    return simulated + [layout for layout in alike(given[0], context.ranks) if layout not in simulated]


def _timed(asked: Asked, layout: Layout, context: Any) -> list[Any]:
    """Layouts for all processes by their simulated time on GPUs as this process has, or on usual ones."""
    from pipesim.backends.elastic.layouts import gpu_name
    from pipesim.backends.model.config import load_decoder
    from pipesim.plan.relayout import layouts_by_time

    if asked.choice.model is None or ".py:" in asked.choice.model or is_file(asked.name):
        return []
    nodes = int(os.environ.get("GROUP_WORLD_SIZE", "1"))
    nodes = nodes if context.ranks % nodes == 0 else 1
    per_node = context.ranks // nodes
    try:
        gpu = find_gpu(gpu_name(context.device) or _USUAL_GPU)
    except UnknownName:
        gpu = find_gpu(_USUAL_GPU)
    cluster = plain_cluster(gpu, nodes=nodes, gpus_per_node=per_node, node_gbit_per_s=_GBIT_PER_S * per_node)
    model = load_decoder(asked.choice.model).model
    return layouts_by_time(layout, model, cluster, schedule=asked.name, virtual=asked.schedule.virtual)
