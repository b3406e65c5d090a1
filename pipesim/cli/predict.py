"""`pipesim predict`: step time, throughput and memory of many configurations."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from pipesim.cli.options.outputs import Workers
from pipesim.files import read_text, require_writable, write_atomically

Rows = Annotated[Path, typer.Argument(metavar="ROWS.jsonl", help="One configuration a line (docs/rows.md).")]
Out = Annotated[Path | None, typer.Option("--out", help="Predictions, one line a row (default: standard output).")]


def predict(rows: Rows, out: Out = None, workers: Workers = None) -> None:
    """Predict step time, throughput, MFU, memory and bubble of each row; a bad row gets an error of its own.

    Rows of inference (with `input_len` and `output_len`) get latency, time of a token and throughput.

    Example: pipesim predict rows.jsonl --out predictions.jsonl
    """
    from rich.console import Console
    from rich.progress import track

    from pipesim.plan.batch import predict_lines
    from pipesim.plan.processes import cores

    if out is not None:
        require_writable(out)
    lines = [line for line in read_text(rows).splitlines() if line.strip()]
    found = predict_lines(lines, workers=workers or cores())
    screen = Console(stderr=True)
    shown = track(found, "predicting", total=len(lines), console=screen, disable=not screen.is_terminal)
    made = [json.dumps(one, allow_nan=False) for one in shown]
    text = "".join(f"{one}\n" for one in made)
    if out is None:
        print(text, end="")
        return
    write_atomically(out, text)
    wrong = sum('"error":' in one and '"step_time_s":' not in one for one in made)
    print(f"{out}: {len(made)} rows" + (f", {wrong} of them with an error" if wrong else ""), file=sys.stderr)
