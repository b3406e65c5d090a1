"""`pipesim show`: saved timelines and torch.profiler traces, drawn and measured by the same figures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from pipesim.cli.options.case import BadCase
from pipesim.cli.options.groups import Without
from pipesim.cli.options.outputs import Outputs
from pipesim.cli.views.tables import comparison_table, console, rank_table, summary
from pipesim.errors import PipesimError
from pipesim.metrics import Metrics, summarize
from pipesim.timeline import Timeline
from pipesim.timeline_file import TIMELINES, load_timeline
from pipesim.viz.comparison import comparison
from pipesim.viz.difference import NothingInCommon, difference
from pipesim.viz.kineto import read_profiler_traces
from pipesim.viz.output import drawing_for, write_figure

Files = Annotated[
    list[Path], typer.Argument(help="Timelines (.npz, .jsonl); torch.profiler traces (.json, .json.gz), one a rank.")
]
Step = Annotated[int | None, typer.Option("--step", help="Which step of the profiler traces; -1 is the last (usual).")]


@dataclass(eq=False)
class TooMany(PipesimError):
    """An output that holds one run, asked for several."""

    runs: int

    def __str__(self) -> str:
        return f"these files hold {self.runs} runs, --trace and --timeline take one: give the files of one run"


def show(files: Files, outputs: Annotated[Outputs, Without("metrics")], step: Step = None) -> None:
    """Draw saved timelines and profiler traces: one alone, two of one schedule with their difference, or several.

    Example: pipesim show simulated.npz rank0.json rank1.json --out difference.html
    """
    outputs.require_writable()
    runs = _runs(files, step)
    found = [summarize(run) for run in runs]
    if len(runs) == 1:
        outputs.write(runs[0], found[0])
    elif outputs.trace is not None or outputs.timeline is not None:
        raise TooMany(len(runs))
    elif outputs.out is not None:
        _draw(runs, found, outputs.out)
    _print(runs, found, outputs.as_json)


def _runs(files: Sequence[Path], step: int | None) -> list[Timeline]:
    """Each saved timeline, and all profiler traces together as one run. Raises BadCase and what reading raises."""
    saved = [load_timeline(path) for path in files if path.suffix in TIMELINES]
    traces = [path for path in files if path.suffix not in TIMELINES]
    if not traces:
        if step is not None:
            raise BadCase(f"--step {step} without a profiler trace", "leave it out: a saved timeline is of one step")
        return saved
    name = traces[0].name.split(".")[0]
    return [*saved, read_profiler_traces(traces, step=-1 if step is None else step, name=name)]


def _draw(runs: Sequence[Timeline], found: Sequence[Metrics], out: Path) -> None:
    """Several runs: the difference of two, if they have something in common, else under each other."""
    try:
        figure = difference(runs[0], runs[1], found) if len(runs) == 2 else None
    except NothingInCommon:
        figure = None
    write_figure(figure or comparison(runs, found, **drawing_for(out)), out)


def _print(runs: Sequence[Timeline], found: Sequence[Metrics], as_json: bool) -> None:
    names = [f"{run.name}, {run.source}" for run in runs]
    if as_json:
        rows = [{"name": run.name, "source": run.source} | one.to_json() for run, one in zip(runs, found, strict=True)]
        print(json.dumps(rows[0] if len(rows) == 1 else rows))
    elif len(runs) == 1:
        console().print(summary(names[0], found[0]))
        console().print(rank_table(found[0]))
    else:
        console().print(comparison_table(names, found))
