"""A line of JSON a step, that a job which begins again goes on with: no step twice, none missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipesim.files import read_text, write_atomically


class LossFile:
    """The lines of the steps before `step` stay; others are of a run that was lost."""

    def __init__(self, path: Path, step: int) -> None:
        kept = [line for line in _lines(path) if _step(line) is not None and _step(line) < step]  # type: ignore[operator]
        write_atomically(path, "".join(f"{line}\n" for line in kept))
        self._path = path

    def add(self, step: int, **values: Any) -> None:
        """One line, on the disk when this returns or the process is killed."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step} | values) + "\n")


def _lines(path: Path) -> list[str]:
    return read_text(path).splitlines() if path.exists() else []


def _step(line: str) -> int | None:
    """None for half a line."""
    try:
        step = json.loads(line)["step"]
    except (ValueError, TypeError, KeyError):
        return None
    return step if isinstance(step, int) else None
