"""A small file that all processes of a job map: what each rank is at, for the message when something is wrong."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

_ENTRY = struct.Struct("<q")
_NOWHERE = -1


class FileBoard:
    """One rank's entry on the board: writing it is one store into shared memory."""

    def __init__(self, path: Path, rank: int) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._at = rank * _ENTRY.size

    def at(self, op: int) -> None:
        """This rank begins the operation."""
        _ENTRY.pack_into(self._map, self._at, op)


def make_board(path: Path, ranks: int) -> None:
    """An empty board."""
    path.write_bytes(_ENTRY.pack(_NOWHERE) * ranks)


def read_board(path: Path) -> list[int | None]:
    """The operation that each rank began last; None before the first."""
    if not path.exists():
        return []
    found = [entry for (entry,) in _ENTRY.iter_unpack(path.read_bytes())]
    return [None if op == _NOWHERE else op for op in found]
