"""`pipesim sweep`: `simulate` over every combination of some arguments; a table, CSV and chart of what comes out."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from pipesim.cli.options.groups import ungrouped
from pipesim.cli.options.outputs import Json, Workers, require_outputs
from pipesim.cli.simulate import simulate
from pipesim.cli.views.tables import console
from pipesim.errors import PipesimError
from pipesim.files import write_atomically
from pipesim.plan.processes import cores, pool
from pipesim.plan.sweep import BadVary, Vary, combinations, parse_vary
from pipesim.units import format_bytes, format_seconds

sweep = typer.Typer(add_completion=False)

_ALONE = 24  # runs that this process does while others would still be starting
_POSITIONAL = ("schedule", "name")
_FIGURES = {
    "step_time_s": "step time, s",
    "makespan_s": "makespan, s",
    "bubble_fraction": "bubble fraction",
    "tokens_per_s_per_gpu": "tokens/s a GPU",
    "mfu": "MFU",
    "peak_memory_bytes": "peak memory, bytes",
    "peak_activations": "peak activations, microbatches",
}

Varied = Annotated[
    list[str], typer.Option("--vary", metavar="NAME=VALUES", help="E.g. microbatches=8:256:x2 or schedule=1f1b,zb-v.")
]
Csv = Annotated[Path | None, typer.Option("--csv", help="A row a combination, a CSV file.")]
Out = Annotated[Path | None, typer.Option("--out", "--chart", help="Chart of one figure, an HTML file.")]
Metric = Annotated[str, typer.Option("--metric", help=f"What the chart shows: {', '.join(_FIGURES)}.")]


@dataclass(frozen=True)
class Row:
    """One combination: what it gave, or why it cannot be."""

    values: Mapping[str, str]
    figures: Mapping[str, Any]
    problem: str | None = None


@sweep.command("sweep", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run_sweep(
    context: typer.Context,
    vary: Varied,
    table: Csv = None,
    out: Out = None,
    metric: Metric = "step_time_s",
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Simulate every combination; all other arguments are those of `pipesim simulate`.

    Example: pipesim sweep --vary schedule=1f1b,interleaved --vary microbatches=8:64:x2 -p 8 --costs F=1,B=2,C=0.1
    """
    require_outputs(csv=table, out=out)
    if metric not in _FIGURES:
        raise BadVary(f"… --metric {metric}", f"no such figure; there are {', '.join(_FIGURES)}")
    varied = [parse_vary(text) for text in vary]
    rows = run_all(context.args, varied, workers)
    done = [row for row in rows if row.problem is None]
    if not done:
        raise BadVary(vary[0], f"none of {len(rows)} combinations can be; the first: {rows[0].problem}")
    if table is not None:
        write_atomically(table, _csv(varied, rows))
    if out is not None:
        _chart(done, metric, out)
    if as_json:
        print(json.dumps([{**row.values, **row.figures, "problem": row.problem} for row in rows]))
    else:
        _print(varied, rows)


def run_all(base: Sequence[str], varied: Sequence[Vary], workers: int | None = None) -> list[Row]:
    """A row for each combination, in order; what a combination cannot do is said in its row."""
    every = list(combinations(varied))
    arguments = [arguments_of(base, values) for values in every]
    count = workers or cores()
    if count == 1 or len(every) <= _ALONE:
        found = list(map(run_one, arguments))
    else:
        with pool(count) as processes:
            found = list(processes.map(run_one, arguments, chunksize=4))
    return [
        Row(values, {} if isinstance(one, str) else one, one if isinstance(one, str) else None)
        for values, one in zip(every, found, strict=True)
    ]


def arguments_of(base: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """The command line of one combination: the last mention of an option counts."""
    first = [value for name, value in values.items() if name in _POSITIONAL]
    rest = [text for name, value in values.items() if name not in _POSITIONAL for text in _option(name, value)]
    return [*first, *base, *rest]


def _option(name: str, value: str) -> list[str]:
    option = f"--{name.replace('_', '-')}"
    if value.lower() in ("true", "false"):  # a switch
        return [option if value.lower() == "true" else option.replace("--", "--no-", 1)]
    return [option, value]


def run_one(arguments: list[str]) -> dict[str, Any] | str:
    """Figures of one `simulate`, or why it cannot be."""
    alone = typer.Typer(add_completion=False)
    alone.command("simulate")(ungrouped(simulate))
    command = typer.main.get_command(alone)
    output = io.StringIO()
    try:
        with redirect_stdout(output), redirect_stderr(io.StringIO()):
            command.main([*arguments, "--json"], prog_name="pipesim simulate", standalone_mode=False)
    except typer.TyperException as error:
        return error.format_message()
    except PipesimError as error:
        return str(error)
    found = json.loads(output.getvalue())
    largest = {name: max(found[name]) for name in ("peak_activations", "peak_memory_bytes") if name in found}
    return {name: value for name, value in (found | largest).items() if name in (*_FIGURES, "fits")}


def _csv(varied: Sequence[Vary], rows: Sequence[Row]) -> str:
    text = io.StringIO()
    names = [*(vary.name for vary in varied), *_FIGURES, "fits", "problem"]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({**row.values, **row.figures, "problem": row.problem or ""} for row in rows)
    return text.getvalue()


def _chart(rows: Sequence[Row], metric: str, out: Path) -> None:
    from pipesim.viz.page import write_html
    from pipesim.viz.sweep import sweep_chart

    points = [(row.values, float(row.figures[metric])) for row in rows if metric in row.figures]
    write_html(sweep_chart(points, label=_FIGURES[metric]), out)


def _print(varied: Sequence[Vary], rows: Sequence[Row]) -> None:
    from rich.table import Table

    best = min(rows, key=lambda row: row.figures.get("step_time_s", float("inf")))
    there = [name for name in _FIGURES if any(name in row.figures for row in rows)]
    shown = Table()
    for name in (*(vary.name for vary in varied), *(_FIGURES[name].split(",")[0] for name in there), ""):
        shown.add_column(name, justify="right" if name else "left")
    for row in rows:
        note = row.problem or ("does not fit" if row.figures.get("fits") is False else "")
        figures = [_text(name, row.figures[name]) if name in row.figures else "" for name in there]
        note = "fastest" if row is best and not note else note
        shown.add_row(*(row.values[vary.name] for vary in varied), *figures, note)
    console().print(shown)
    if any(row.problem for row in rows):
        print(f"{sum(row.problem is not None for row in rows)} combinations cannot be", file=sys.stderr)


def _text(name: str, value: float) -> str:
    if name.endswith("_s"):
        return format_seconds(value)
    if name.endswith("_bytes"):
        return format_bytes(value)
    return f"{value:.1%}" if name in ("bubble_fraction", "mfu") else f"{value:,.4g}"
