"""`pipesim plan`: the best layouts and schedules for a model on a cluster, why, and how to run the winner."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from pipesim.cli.options.groups import changed
from pipesim.cli.options.outputs import Json, Workers
from pipesim.cli.options.plan_request import JobOptions, SpaceOptions, request_of, required
from pipesim.cli.plan_serving import ServiceOptions, plan_service
from pipesim.cli.views.plan_report import show
from pipesim.files import require_folder, require_writable, write_atomically, written_together
from pipesim.ir.formats import write_schedule
from pipesim.plan.detail import Detail, detail, difference
from pipesim.plan.evaluate import Outcome
from pipesim.plan.handover import launch_command, megatron_arguments, simulate_command, torchtitan_toml
from pipesim.plan.planner import Counts, Found, search
from pipesim.plan.processes import cores as usable_cores
from pipesim.plan.processes import pool
from pipesim.plan.relief import name_of, nothing_fits
from pipesim.plan.request import ImpossibleRequest, Request
from pipesim.plan.space import choices, cores
from pipesim.units import format_bytes, format_seconds

_SMALL = 4_000  # choices that this process goes through while others would still be starting
_CHARTED = 60  # best choices that a chart is made from

Top = Annotated[int, typer.Option("--top", min=1, help="How many to rank.")]
Save = Annotated[Path | None, typer.Option("--save", help="A folder for the winner: schedule, commands, configs.")]
Out = Annotated[Path | None, typer.Option("--out", "--chart", help="Chart of step time against memory, an HTML file.")]
Serving = Annotated[bool, typer.Option("--serving", help="Plan serving: the most requests within --slo.")]


def plan(
    job: JobOptions,
    space: SpaceOptions,
    service: ServiceOptions,
    top: Top = 10,
    workers: Workers = None,
    save: Save = None,
    out: Out = None,
    serving: Serving = False,
    as_json: Json = False,
) -> None:
    """Find the fastest layouts and schedules that fit, and say why.

    Example: pipesim plan --model llama-3-70b --cluster dgx-h100:128 --global-batch 2048 --seq 8192
    """
    _require(job, space, service, serving=serving)
    if out is not None:
        require_writable(out)
    if save is not None:
        require_folder(save)
    if serving:
        model = required("--model", job.model, "llama-3-8b")
        plan_service(model, required("--cluster", job.cluster, "dgx-h100:1"), service, as_json=as_json)
        return
    request = request_of(job, space)
    begun = time.perf_counter()
    found = _search(request, max(top, _CHARTED if out else top), workers)
    took_s = time.perf_counter() - begun
    if not found.best:
        if not found.complete:
            raise KeyboardInterrupt
        raise nothing_fits(request, found)
    ranking = [detail(request, outcome, shared=place == 0) for place, outcome in enumerate(found.best[:top])]
    words = handover(request, ranking[0], str(job.model), str(job.cluster))
    if save is not None:
        _save(save, ranking[0], words)
    if out is not None:
        _chart(request, found, out)
    if as_json:
        print(json.dumps(_to_json(found, ranking, words)))
    else:
        show(request, found, ranking, words, took_s)


def _require(job: JobOptions, space: SpaceOptions, service: ServiceOptions, *, serving: bool) -> None:
    """Raises ImpossibleRequest for an option of the other kind of plan, which would do nothing."""
    training = changed(space) or changed(job, but=("model", "cluster"))
    if serving and training is not None:
        raise ImpossibleRequest(f"{training} with --serving", "it is of training: leave one of them out")
    if not serving and changed(service) is not None:
        raise ImpossibleRequest(f"{changed(service)} without --serving", "it is of serving: give --serving, too")


def _search(request: Request, top: int, workers: int | None) -> Found:
    count = workers or usable_cores()
    size = sum(1 for core in cores(request) for _ in choices(request, core))
    with _progress(size) as report:
        if count == 1 or size <= _SMALL:
            return search(request, top=top, progress=report)
        with pool(count) as processes:
            return search(request, top=top, executor=processes, workers=count, progress=report)


@contextmanager
def _progress(size: int) -> Iterator[Any]:
    """What tells a terminal how the search goes; nothing where stderr is none."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    screen = Console(stderr=True)
    if not screen.is_terminal:
        yield lambda counts, best: None
        return
    with Progress(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=screen) as bar:
        task = bar.add_task(f"{size:,} choices")

        def report(counts: Counts, best: Outcome | None) -> None:
            words = f"{size:,} choices, {counts.too_large:,} too large, {counts.simulated:,} simulated"
            so_far = "" if best is None else f", best {format_seconds(best.step_time_s)}: {name_of(best.choice)}"
            bar.update(task, description=words + so_far)

        yield report


def handover(request: Request, best: Detail, model: str, cluster: str) -> dict[str, str]:
    """The winner as other programs want it."""
    layers = [stage.layers for stage in best.estimate.stages]
    nodes = request.cluster.nodes
    return {
        "simulate": simulate_command(best.choice, best.layout, model, cluster),
        "launch": launch_command(
            best.choice, best.layout, nodes=len(nodes), gpus_per_node=nodes[0].gpus, schedule=None
        ),
        "megatron": shlex.join(megatron_arguments(request.model, best.choice, best.layout, layers)),
        "torchtitan": torchtitan_toml(request.model, best.choice, best.layout, layers, schedule_csv="schedule.csv"),
    }


def _save(folder: Path, best: Detail, words: dict[str, str]) -> None:
    """Write the winner's files, all or none. Raises CannotWrite."""
    with written_together(folder) as part:
        write_schedule(best.schedule, part / "schedule.json")
        write_schedule(best.schedule, part / "schedule.csv")
        write_atomically(part / "commands.sh", f"{words['simulate']}\n{words['launch']}\n")
        write_atomically(part / "megatron.args", words["megatron"] + "\n")
        write_atomically(part / "torchtitan.toml", words["torchtitan"])
        write_atomically(part / "plan.json", json.dumps(best.to_json(), indent=1) + "\n")


def _chart(request: Request, found: Found, out: Path) -> None:
    from pipesim.viz.page import write_html
    from pipesim.viz.pareto import Point, pareto_chart

    points = [
        Point(
            one.choice.schedule if one.choice.pp > 1 else "no pipeline", one.step_time_s, one.peak_bytes,
            f"{name_of(one.choice)}<br>{format_seconds(one.step_time_s)}, {format_bytes(one.peak_bytes)}",
        )
        for one in found.seen
    ]  # fmt: skip
    heading = f"{request.model.name} on {request.cluster.devices} GPUs: {len(points)} choices simulated"
    write_html(pareto_chart(points, heading=heading, limit_bytes=request.memory_bytes), out)


def _to_json(found: Found, ranking: list[Detail], words: dict[str, str]) -> dict[str, Any]:
    return {
        "complete": found.complete,
        "counts": asdict(found.counts),
        "ranking": [
            one.to_json() | {"name": name_of(one.choice), "against_best": difference(ranking[0], one)}
            for one in ranking
        ],
        "commands": words,
    }
