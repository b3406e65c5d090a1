"""A line of JSON a step, that a job which begins again goes on with: no step twice, none missing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipesim.files import read_text, write_atomically


class LossFile:
    """The lines of the first `done` steps stay; others are of a run that was lost."""

    def __init__(self, path: Path, done: int) -> None:
        lines = read_text(path).splitlines() if done and path.is_file() else []
        write_atomically(path, "".join(f"{line}\n" for line in lines if 0 < _step(line) <= done))
        self._path = path

    def add(self, values: Mapping[str, Any]) -> None:
        """One line, in the file when this returns or the process is killed. values: `step` among them, from 1."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")


def _step(line: str) -> int:
    """0 for half a line."""
    try:
        step = json.loads(line)["step"]
    except (ValueError, TypeError, KeyError):
        return 0
    return step if isinstance(step, int) else 0
