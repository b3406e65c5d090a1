"""Timelines as files: `.jsonl` (a header, then a line an operation) and `.npz` (the same as arrays).

The two hold the same columns and load back to the same timeline. Nothing in them is executed.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipesim.errors import PipesimError
from pipesim.files import CannotRead, read_text, write_atomically
from pipesim.ir.action import Kind
from pipesim.ir.atoms import Atoms
from pipesim.ir.placement import Placement
from pipesim.ir.program import Program
from pipesim.ir.schedule import Schedule
from pipesim.timeline import MemoryTrace, Timeline
from pipesim.timeline_form import COLUMNS, OP_COLUMNS, VERSION, check_columns, check_header, check_memory

TIMELINES = (".npz", ".jsonl")
"""Endings of the names of timeline files."""
_MOST_TEXT = 10**9  # bytes
_MOST_UNPACKED = 4 * 10**9
_CHUNK = 1 << 14


@dataclass(eq=False)
class BadTimeline(PipesimError):
    """A file that is not a timeline."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path} is not a pipesim timeline: {self.reason}; write one with --timeline OUT.jsonl or OUT.npz"


def save_timeline(timeline: Timeline, path: Path) -> None:
    """Write a timeline as `.npz`, or as `.jsonl` under any other ending. Raises CannotWrite."""
    write_atomically(path, _to_npz(timeline) if path.suffix == ".npz" else _to_jsonl(timeline))


def load_timeline(path: Path) -> Timeline:
    """Read a timeline. Raises BadTimeline, CannotRead."""
    try:
        header, columns = _from_npz(path) if path.suffix == ".npz" else _from_jsonl(path)
        return _timeline(header, columns)
    except (
        KeyError,
        ValueError,
        TypeError,
        IndexError,
        OverflowError,  # a number of more than 64 bits
        AttributeError,  # a list where the header holds an object
        zipfile.BadZipFile,
        zlib.error,
        struct.error,
        NotImplementedError,  # a compression that Python lacks
        MemoryError,  # an array that says it is larger than the file
        RecursionError,
        EOFError,
    ) as error:
        raise BadTimeline(str(path), _reason(error)) from error
    except OSError as error:
        raise CannotRead(str(path), error.strerror or str(error)) from None


def _reason(error: Exception) -> str:
    match error:
        case KeyError(args=(str(name), *_)):
            return f"{name} is missing"
        case ValueError():
            return str(error)
        case _:
            return f"{type(error).__name__}: {error}"


def _header(timeline: Timeline) -> dict[str, Any]:
    program, memory = timeline.program, timeline.memory
    schedule = program.schedule
    header: dict[str, Any] = {
        "format": "pipesim-timeline",
        "version": VERSION,
        "name": schedule.name,
        "source": timeline.source,
        "placement": list(schedule.placement.ranks_of_stages),
        "chains": schedule.placement.chains,
        "microbatches": schedule.microbatches,
        "slices": schedule.slices,
        "slicing": schedule.slicing,
        "update_every": schedule.update_every,
        "refuge": list(schedule.refuge),
        "comm": program.comm,
        "facts": timeline.facts,
        "memory": None,
    }
    if memory is not None:
        header["memory"] = {
            "base_bytes": memory.base.tolist(),
            "limit_bytes": None if memory.limit is None else memory.limit.tolist(),
        }
    return header


def _arrays(timeline: Timeline) -> dict[str, np.ndarray]:
    program = timeline.program
    arrays: dict[str, np.ndarray] = {
        "rank": program.rank,
        "flow": program.flow,
        "peer": program.peer,
        "match": program.match,
    }
    arrays |= {column: getattr(program.ops, column) for column in OP_COLUMNS}
    arrays |= {"start_s": timeline.start, "end_s": timeline.end}
    return arrays


def _to_jsonl(timeline: Timeline) -> str:
    program, arrays = timeline.program, _arrays(timeline)
    header = _header(timeline)
    if timeline.memory is not None:
        header["memory"] |= {
            "offsets": timeline.memory.offsets.tolist(),
            "time_s": timeline.memory.time_s.tolist(),
            "change_bytes": timeline.memory.change_bytes.tolist(),
        }
    lists = {name: arrays[name].tolist() for name in COLUMNS}
    lines = [json.dumps(header)]
    for op in range(len(program)):
        row = {"op": program.text(op)} | {name: lists[name][op] for name in COLUMNS}
        lines.append(json.dumps(row | {"needs": program.needs_of(op).tolist()}))
    return "\n".join(lines) + "\n"


def _from_jsonl(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    first, _, rest = read_text(path, at_most_bytes=_MOST_TEXT).partition("\n")
    header = check_header(json.loads(first or "null"))
    lines = rest.splitlines()
    parts = [_columns_of(lines[place : place + _CHUNK]) for place in range(0, max(1, len(lines)), _CHUNK)]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    columns["need_offsets"] = np.concatenate([[0], np.cumsum(columns.pop("needs"))])
    memory = header["memory"] or {}
    columns |= {f"memory_{name}": np.asarray(memory[name]) for name in ("offsets", "time_s", "change_bytes") if memory}
    return header, columns


def _columns_of(lines: Sequence[str]) -> dict[str, np.ndarray]:
    """Columns of some lines, soon no longer objects: those of all lines would not fit. `needs` says how many each."""
    rows = [json.loads(line) for line in lines]
    columns = {name: np.asarray([row[name] for row in rows]) for name in COLUMNS}
    needs = [need for row in rows for need in row["needs"]]
    columns["need"] = np.asarray(needs, None if needs else np.int64)
    columns["needs"] = np.asarray([len(row["needs"]) for row in rows], np.int64)
    return columns


def _to_npz(timeline: Timeline) -> bytes:
    program, memory = timeline.program, timeline.memory
    arrays = _arrays(timeline) | {"need": program.need, "need_offsets": program.need_offsets}
    if memory is not None:
        arrays |= {
            "memory_offsets": memory.offsets,
            "memory_time_s": memory.time_s,
            "memory_change_bytes": memory.change_bytes,
        }
    text = np.frombuffer(json.dumps(_header(timeline)).encode(), np.uint8)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, header=text, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _from_npz(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
    if unpacked > _MOST_UNPACKED:
        raise ValueError(f"it unpacks to {unpacked} bytes, more than {_MOST_UNPACKED}")
    with np.load(path, allow_pickle=False) as archive:
        columns = {name: archive[name] for name in archive.files}
    return check_header(json.loads(columns.pop("header").tobytes())), columns


def _timeline(header: Mapping[str, Any], columns: dict[str, np.ndarray]) -> Timeline:
    check_columns(header, columns)
    # Unsigned numbers mix badly with others, and an empty list has no kind of its own.
    columns |= {name: each.astype(np.int64) for name, each in columns.items() if each.dtype.kind == "u"}
    columns |= {name: each.astype(np.int64) for name, each in columns.items() if name == "need" or not each.size}
    start, end = (np.asarray(columns[name], np.float64) for name in ("start_s", "end_s"))
    program = _program(header, columns)
    return Timeline(program, start, end, _memory(header, columns), header["source"], header["facts"])


def _program(header: Mapping[str, Any], columns: dict[str, np.ndarray]) -> Program:
    placement = Placement(tuple(header["placement"]), header["chains"])
    ops = Atoms.of(*(columns[name] for name in OP_COLUMNS))
    rank = columns["rank"]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rank, minlength=placement.ranks))])
    return Program(
        _schedule(header, placement, ops, rank),
        ops,
        offsets,
        columns["flow"].astype(np.int8),
        columns["peer"],
        columns["match"],
        columns["need"],
        columns["need_offsets"],
        header["comm"],
    )


def _schedule(header: Mapping[str, Any], placement: Placement, ops: Atoms, rank: np.ndarray) -> Schedule:
    """The actions of a program without what the lowering added."""
    mine = np.flatnonzero(ops.kind <= Kind.L)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rank[mine], minlength=placement.ranks))])
    return Schedule(
        header["name"],
        placement,
        header["microbatches"],
        ops.take(mine),
        offsets,
        header["slices"],
        header["slicing"],
        header["update_every"],
        tuple(header["refuge"]),
    )


def _memory(header: Mapping[str, Any], columns: Mapping[str, np.ndarray]) -> MemoryTrace | None:
    held = header["memory"]
    if held is None:
        return None
    check_memory(held, columns, max(header["placement"]) + 1)
    limit = held["limit_bytes"]
    return MemoryTrace(
        np.asarray(held["base_bytes"], np.float64),
        columns["memory_offsets"],
        columns["memory_time_s"],
        columns["memory_change_bytes"],
        None if limit is None else np.asarray(limit, np.float64),
    )
