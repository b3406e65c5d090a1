"""`pipesim goodput`: what failures, restarts and checkpoints leave of days of training."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from pipesim.cli.options.outputs import ChartFile, Json
from pipesim.engine.goodput import (
    Goodput,
    Reliability,
    best_interval_s,
    expected_goodput,
    simulate_goodput,
    young_daly_s,
)
from pipesim.errors import PipesimError
from pipesim.files import require_writable
from pipesim.units import parse_seconds


@dataclass(eq=False)
class BadRate(PipesimError):
    """A mean time between failures that says neither of what."""

    given: str

    def __str__(self) -> str:
        return f"--mtbf {self.given}: say of what, e.g. 50000h/gpu, or 3h/job for the whole job"


def goodput(
    gpus: Annotated[int, typer.Option("--gpus", min=1, help="GPUs of the job.")],
    mtbf: Annotated[str, typer.Option("--mtbf", help="Mean time between failures: 50000h/gpu or 3h/job.")],
    checkpoint_every: Annotated[
        str, typer.Option(metavar="TIME", help="Work between two checkpoints, or `best`.")
    ] = "best",
    checkpoint_stall: Annotated[
        str, typer.Option(metavar="TIME", help="How long training stands still for one.")
    ] = "10s",
    checkpoint_write: Annotated[
        str, typer.Option(metavar="TIME", help="Until one is complete (asynchronous: above the stall).")
    ] = "60s",
    detect: Annotated[str, typer.Option(metavar="TIME", help="Until a failure is noticed.")] = "60s",
    restart: Annotated[str, typer.Option(metavar="TIME", help="Until training goes on, loading included.")] = "5min",
    days: Annotated[float, typer.Option(min=0.01, max=10_000, help="Length of the run.")] = 30.0,
    samples: Annotated[int, typer.Option(min=2, max=100_000, help="Simulated runs.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same numbers.")] = 0,
    out: ChartFile = None,
    as_json: Json = False,
) -> None:
    """Simulate failures over days of training: goodput, lost time by cause, best checkpoint interval.

    Example: pipesim goodput --gpus 4096 --mtbf 50000h/gpu --checkpoint-every 10min --restart 5min
    """
    if out is not None:
        require_writable(out)
    job = Reliability(
        gpus=gpus,
        mtbf_s=_mtbf(mtbf, gpus),
        checkpoint_every_s=1.0,
        checkpoint_stall_s=parse_seconds(checkpoint_stall, name="--checkpoint-stall", positive=True),
        checkpoint_write_s=parse_seconds(checkpoint_write, name="--checkpoint-write"),
        detect_s=parse_seconds(detect, name="--detect"),
        restart_s=parse_seconds(restart, name="--restart"),
    )
    best = best_interval_s(job)
    given = (
        None
        if checkpoint_every == "best"
        else parse_seconds(checkpoint_every, name="--checkpoint-every", positive=True)
    )
    job = replace(job, checkpoint_every_s=best if given is None else given)
    found = simulate_goodput(job, duration_s=days * 86400, samples=samples, seed=seed)
    at_best = simulate_goodput(
        replace(job, checkpoint_every_s=best), duration_s=days * 86400, samples=samples, seed=seed
    )
    result = _to_json(job, found, best, at_best.goodput)
    if out is not None:
        from pipesim.viz.goodput import goodput_chart
        from pipesim.viz.page import write_html

        write_html(goodput_chart(job, found, best), out)
    if as_json:
        print(json.dumps(result))
    else:
        _print(job, found, result)


def _mtbf(text: str, gpus: int) -> float:
    """Seconds between failures of one GPU."""
    time, slash, of = text.partition("/")
    if not slash or of.strip().lower() not in ("gpu", "job"):
        raise BadRate(text)
    seconds = parse_seconds(time, name="--mtbf", positive=True)
    return seconds * gpus if of.strip().lower() == "job" else seconds


def _to_json(job: Reliability, found: Goodput, best: float, at_best: float) -> dict[str, Any]:
    return {
        "goodput": found.goodput,
        "goodput_interval_95": list(found.interval),
        "goodput_p5_p95": list(found.spread),
        "expected_goodput_daly": expected_goodput(job),
        "failures": found.failures,
        "between_failures_s": job.between_failures_s,
        "lost_s": dict(found.lost_s),
        "lost_share": {cause: seconds / found.total_s for cause, seconds in found.lost_s.items()},
        "checkpoint_every_s": job.checkpoint_every_s,
        "best_checkpoint_every_s": best,
        "goodput_at_best": at_best,
        "young_daly_s": young_daly_s(job),
        "total_s": found.total_s,
        "samples": len(found.runs),
    }


def _print(job: Reliability, found: Goodput, result: dict[str, Any]) -> None:
    from rich.table import Table

    from pipesim.cli.views.tables import console
    from pipesim.units import format_seconds

    table = Table(
        title=f"goodput of {job.gpus} GPUs, {found.total_s / 86400:g} days", show_header=False, title_justify="left"
    )
    low, high = found.interval
    table.add_row("goodput", f"{found.goodput:.2%} (95 % interval {low:.2%} … {high:.2%})")
    table.add_row("single runs, 5th … 95th percentile", f"{found.spread[0]:.2%} … {found.spread[1]:.2%}")
    table.add_row("failures", f"{found.failures:.1f}, one every {job.between_failures_s / 3600:.2f} h")
    for cause, seconds in found.lost_s.items():
        table.add_row(cause, f"{seconds / 3600:.2f} h ({seconds / found.total_s:.2%})")
    table.add_row("checkpoint every", format_seconds(job.checkpoint_every_s))
    best = result["best_checkpoint_every_s"]
    table.add_row("best interval", f"{format_seconds(best)}: goodput {result['goodput_at_best']:.2%}")
    table.add_row("√(2δM), Young 1974", format_seconds(result["young_daly_s"]))
    console().print(table)
