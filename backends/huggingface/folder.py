"""A folder of safetensors files: which file holds which tensor, and what can be wrong with it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from pipesim.errors import PipesimError
from pipesim.files import CannotRead, read_text

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
CONFIG = "config.json"


@dataclass(eq=False)
class BadCheckpoint(PipesimError):
    """A checkpoint that does not have what a model needs."""

    folder: str
    problem: str

    def __str__(self) -> str:
        return f"checkpoint {self.folder}: {self.problem}"


@dataclass(frozen=True)
class Folder:
    """Where each tensor of a checkpoint is."""

    path: Path
    file_of: Mapping[str, str]

    @contextmanager
    def opened(self, file: str) -> Iterator[Any]:
        """One of its files, mapped into memory. Raises CannotRead."""
        with reading(self.path / file), safe_open(self.path / file, framework="pt") as found:
            yield found


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what safetensors raises into CannotRead."""
    try:
        yield
    except (SafetensorError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise CannotRead(str(path), f"not a whole safetensors file ({reason})") from None


def open_folder(path: str | Path) -> Folder:
    """The checkpoint in a folder: `model.safetensors`, or several files with an index. Raises CannotRead,
    BadCheckpoint.
    """
    place = Path(path)
    if (place / INDEX).is_file():
        return Folder(place, _index(place / INDEX))
    if not (place / SINGLE).is_file():
        raise BadCheckpoint(str(path), f"there is neither {SINGLE} nor {INDEX} in it; expected a folder with one")
    with reading(place / SINGLE), safe_open(place / SINGLE, framework="pt") as file:
        return Folder(place, dict.fromkeys(file.keys(), SINGLE))


def has_weights(path: str | Path) -> bool:
    """Whether there is a checkpoint in a folder."""
    return (Path(path) / INDEX).is_file() or (Path(path) / SINGLE).is_file()


def _index(path: Path) -> dict[str, str]:
    try:
        given = json.loads(read_text(path))
        files = given["weight_map"]
    except (ValueError, KeyError, TypeError):
        raise CannotRead(str(path), 'not an index: expected an object with "weight_map"') from None
    if not isinstance(files, dict) or not all(isinstance(name, str) for pair in files.items() for name in pair):
        raise CannotRead(str(path), '"weight_map" must give a file for each tensor')
    for file in sorted(set(files.values())):
        if Path(file).name != file:
            raise CannotRead(str(path), f"{file!r} is not the name of a file in the same folder")
        if not (path.parent / file).is_file():
            raise BadCheckpoint(str(path.parent), f"its index names {file}, which is not there")
    return files
