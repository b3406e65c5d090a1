"""The folder that a job's checkpoints are in: finding the newest, committing one, removing the old.

A checkpoint has the name `step-00000012`. One that is being written or removed has a hidden name of its own, so
what has a step's name is complete. There is no link to the newest: it is found by its name.

A folder has one owner, the job that began last: two halves of a job that have lost sight of each other do not both
go on in it.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pipesim.backends.checkpoint.description import FILE, Description, to_text
from pipesim.errors import PipesimError
from pipesim.files import CannotWrite, write_atomically

_OWNER = ".owner"
_NAME = re.compile(r"step-(\d{8,})")
_HIDDEN = re.compile(r"\.step-\d+\.[0-9a-f]{8}\.(part|old)")


@dataclass(eq=False)
class TakenOver(PipesimError):
    """Another job writes to this one's folder."""

    root: str

    def __str__(self) -> str:
        return f"another job has begun in {self.root}, and this one ends: give each a --checkpoint folder of its own"


def steps_in(root: Path) -> dict[int, Path]:
    """Checkpoints by step, newest first."""
    found = {}
    if root.is_dir():
        for path in root.iterdir():
            name = _NAME.fullmatch(path.name)
            if name and path.is_dir():
                found[int(name[1])] = path
    return dict(sorted(found.items(), reverse=True))


def require_root(root: Path) -> None:
    """Make the folder, and see that it can be written to before hours of training. Raises CannotWrite."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        trial = root / f".{secrets.token_hex(4)}.trial"
        trial.write_bytes(b"")
        trial.unlink()
    except OSError as error:
        raise CannotWrite(str(root), error.strerror or str(error)) from None


def take_over(root: Path) -> str:
    """Become the folder's owner, under a name that nobody else has."""
    owner = secrets.token_hex(8)
    write_atomically(root / _OWNER, owner)
    return owner


def require_owner(root: Path, owner: str) -> None:
    """Raises TakenOver where another job has begun since."""
    with suppress(OSError):  # a file system that cannot be read for now
        if (root / _OWNER).read_text() != owner:
            raise TakenOver(str(root))


def begin(root: Path, step: int) -> Path:
    """A new folder to write a checkpoint into."""
    place = root / f".step-{step:08}.{secrets.token_hex(4)}.part"
    place.mkdir()
    return place


def commit(place: Path, description: Description) -> Path:
    """Make what was written the checkpoint of its step."""
    target = place.parent / f"step-{description.step:08}"
    write_synced(place / FILE, to_text(description).encode())
    _sync_folder(place)
    if target.exists():  # a damaged one that was passed over
        _remove(target)
    place.rename(target)
    _sync_folder(place.parent)
    return target


def keep_last(root: Path, count: int) -> None:
    """Remove all but the newest `count` checkpoints."""
    for path in list(steps_in(root).values())[count:]:
        _remove(path)


def clear_unfinished(root: Path) -> None:
    """Remove what jobs that were killed have left; nobody else may be writing."""
    for path in root.iterdir() if root.is_dir() else ():
        if _HIDDEN.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)


def discard(place: Path) -> None:
    """Remove what could not be finished."""
    shutil.rmtree(place, ignore_errors=True)


def write_synced(path: Path, data: bytes) -> None:
    """Write a file and wait until the disk has it."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems cannot
            os.fsync(handle)
    finally:
        os.close(handle)


def _remove(path: Path) -> None:
    """Take the name away first: half a checkpoint never has it."""
    hidden = path.with_name(f".{path.name}.{secrets.token_hex(4)}.old")
    with suppress(OSError):
        path.rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)
