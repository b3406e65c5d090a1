"""`pipesim show`: saved timelines and torch.profiler traces, drawn and measured by the same figures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from pipesim.cli.simulate import Json, TimelineFile, Trace
from pipesim.cli.tables import comparison_table, console, rank_table, summary
from pipesim.errors import PipesimError
from pipesim.files import require_writable
from pipesim.metrics import Metrics, summarize
from pipesim.timeline import Timeline
from pipesim.timeline_file import load_timeline, save_timeline
from pipesim.viz.chart import chart
from pipesim.viz.comparison import comparison
from pipesim.viz.difference import NothingInCommon, difference
from pipesim.viz.kineto import read_profiler_traces
from pipesim.viz.output import drawing_for, write_figure
from pipesim.viz.trace import write_trace

Files = Annotated[
    list[Path], typer.Argument(help="Timelines (.npz, .jsonl); torch.profiler traces (.json, .json.gz), one a rank.")
]
Out = Annotated[Path | None, typer.Option("--out", help="Chart: .html, .png, .svg or .pdf.")]
Step = Annotated[int, typer.Option("--step", help="Which step of the profiler traces; -1 is the last.")]
_SAVED = (".npz", ".jsonl")


@dataclass(eq=False)
class TooMany(PipesimError):
    """An output that holds one run, asked for several."""

    runs: int

    def __str__(self) -> str:
        return f"these files hold {self.runs} runs, --trace and --timeline take one: give the files of one run"


def show(
    files: Files,
    step: Step = -1,
    out: Out = None,
    trace: Trace = None,
    timeline: TimelineFile = None,
    as_json: Json = False,
) -> None:
    """Draw saved timelines and profiler traces: one alone, two of one schedule with their difference, or several.

    Example: pipesim show simulated.npz rank0.json rank1.json --out difference.html
    """
    for path in (out, trace, timeline):
        if path is not None:
            require_writable(path)
    runs = _runs(files, step)
    found = [summarize(run) for run in runs]
    if len(runs) > 1 and (trace is not None or timeline is not None):
        raise TooMany(len(runs))
    if out is not None:
        _draw(runs, found, out)
    if trace is not None:
        write_trace(runs[0], trace)
    if timeline is not None:
        save_timeline(runs[0], timeline)
    _print(runs, found, as_json)


def _runs(files: Sequence[Path], step: int) -> list[Timeline]:
    """Each saved timeline, and all profiler traces together as one run."""
    saved = [load_timeline(path) for path in files if path.suffix in _SAVED]
    traces = [path for path in files if path.suffix not in _SAVED]
    name = "profile" if not traces else traces[0].name.split(".")[0]
    return [*saved, *([read_profiler_traces(traces, step=step, name=name)] if traces else [])]


def _draw(runs: Sequence[Timeline], found: Sequence[Metrics], out: Path) -> None:
    if len(runs) == 1:
        write_figure(chart(runs[0], found[0], **drawing_for(out)), out)
        return
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
