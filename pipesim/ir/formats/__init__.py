"""Schedules as files: `.json` (ours, complete), `.csv` (PyTorch's), `.txt` (orders as people write them)."""

from __future__ import annotations

import os
from pathlib import Path

from pipesim.files import CannotRead, CannotWrite, read_text, write_atomically
from pipesim.ir.formats.json_format import dumps as dumps_json
from pipesim.ir.formats.json_format import loads as loads_json
from pipesim.ir.formats.parts import CannotExpress, MalformedFile
from pipesim.ir.formats.text_format import dumps as dumps_text
from pipesim.ir.formats.text_format import loads as loads_text
from pipesim.ir.formats.torch_csv import dumps as dumps_csv
from pipesim.ir.formats.torch_csv import dumps_with_transfers, loads_program
from pipesim.ir.formats.torch_csv import loads as loads_csv
from pipesim.ir.program import Comm, Program
from pipesim.ir.schedule import Schedule

SUFFIXES = (".json", ".csv", ".txt")
MOST_BYTES = 1 << 28

_READ = {".json": loads_json, ".csv": loads_csv, ".txt": loads_text}
_WRITE = {".json": dumps_json, ".csv": dumps_csv, ".txt": dumps_text}

__all__ = [
    "MOST_BYTES",
    "SUFFIXES",
    "CannotExpress",
    "MalformedFile",
    "read_program",
    "read_schedule",
    "write_schedule",
]


def read_schedule(path: str | os.PathLike[str]) -> Schedule:
    """The schedule in a file; it is well-formed, but not checked. Raises CannotRead, MalformedFile.

    Of a CSV with communication, the compute actions only: see `read_program`.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in _READ:
        raise CannotRead(os.fspath(path), f"a schedule is a {', '.join(SUFFIXES)} file")
    return _READ[suffix](read_text(path, at_most_bytes=MOST_BYTES), os.fspath(path))


def read_program(path: str | os.PathLike[str], *, comm: Comm = "edge") -> Program | None:
    """The program in a CSV with communication, transfers as they stand there; None for any other file.

    comm: the lanes that its transfers go through.
    Raises CannotRead, MalformedFile, BrokenSchedule where transfers do not fit the actions.
    """
    if Path(path).suffix.lower() != ".csv":
        return None
    return loads_program(read_text(path, at_most_bytes=MOST_BYTES), os.fspath(path), comm=comm)


def write_schedule(schedule: Schedule, path: str | os.PathLike[str], *, transfers: bool = False) -> None:
    """Write a schedule in the format of the file's suffix.

    transfers: in a CSV, also the sends, receives and gradient reductions.
    Raises CannotWrite, CannotExpress where the format has no way to say what the schedule does.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in _WRITE:
        raise CannotWrite(os.fspath(path), f"a schedule is a {', '.join(SUFFIXES)} file")
    if transfers and suffix != ".csv":
        raise CannotWrite(os.fspath(path), "only a .csv file holds transfers")
    text = dumps_with_transfers(schedule) if transfers else _WRITE[suffix](schedule)
    write_atomically(path, text)
