"""Predicts many rows on all cores, in order; a bad row says what is wrong in its own line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pipesim.errors import PipesimError
from pipesim.plan.predict import predict_row
from pipesim.plan.processes import pool
from pipesim.serving.rows import is_inference, predict_inference

Line = dict[str, Any]

FEW = 64
"""Rows that are predicted before another process has started."""
_CHUNK = 32


def predict_lines(lines: Sequence[str], *, workers: int = 1) -> Iterator[Line]:
    """One prediction (or error) for each line of JSON, in order. `workers`: processes."""
    if workers <= 1 or len(lines) <= FEW:
        yield from map(predict_line, lines)
        return
    chunks = [lines[start : start + _CHUNK] for start in range(0, len(lines), _CHUNK)]
    with pool(min(workers, len(chunks))) as processes:
        for found in processes.map(_predict_chunk, chunks):
            yield from found


def _predict_chunk(lines: Sequence[str]) -> list[Line]:
    return [predict_line(line) for line in lines]


def predict_line(line: str) -> Line:
    """What a row is predicted to take, with its `id`; or its `id` and an `error`."""
    row_id: Any = None
    try:
        row = json.loads(line)
        if not isinstance(row, Mapping):
            return {"id": None, "error": f"a row is a JSON object, not {type(row).__name__}"}
        row_id = _id_of(row)
        if is_inference(row):
            return {"id": row_id, **predict_inference(row)}
        found = asdict(predict_row(row))
        return {"id": row_id, **found, "assumed": list(found["assumed"])}
    except PipesimError as error:
        return {"id": row_id, "error": str(error)}
    except json.JSONDecodeError as error:
        return {"id": row_id, "error": f"not JSON: {error.msg} at character {error.pos}"}
    except Exception as error:  # one row that nobody thought of must not cost the others theirs
        return {"id": row_id, "error": f"{type(error).__name__}: {error}"}


def _id_of(row: Mapping[str, Any]) -> Any:
    """The id as it is; one that is no JSON (NaN, a number beyond all) as its text."""
    try:
        json.dumps(row.get("id"), allow_nan=False)
    except ValueError:
        return repr(row["id"])
    return row.get("id")
