"""Timelines as files: `.jsonl` (a header, then a line an operation) and `.npz` (the same as arrays).

The two hold the same columns and load back to the same timeline. Nothing in them is executed.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipesim.errors import PipesimError
from pipesim.files import write_atomically
from pipesim.ir.action import Kind
from pipesim.ir.atoms import Atoms
from pipesim.ir.placement import Placement
from pipesim.ir.program import COMM_POLICIES, Program
from pipesim.ir.schedule import Schedule
from pipesim.timeline import MemoryTrace, Timeline

VERSION = 1
TIMELINES = (".npz", ".jsonl")
"""Endings of the names of timeline files."""
_MOST_BYTES = 2 * 10**9
_OP_COLUMNS = ("kind", "stage", "microbatch", "slice", "fused")
_COLUMNS = ("rank", *_OP_COLUMNS, "flow", "peer", "match", "start_s", "end_s")
_SOURCES = ("simulated", "measured", "emulated", "imported")


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
    """Read a timeline. Raises BadTimeline, or OSError where there is no such file."""
    size = path.stat().st_size
    if size > _MOST_BYTES:
        raise BadTimeline(str(path), f"it has {size} bytes, more than {_MOST_BYTES}")
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
        RecursionError,
        EOFError,
    ) as error:
        raise BadTimeline(str(path), f"{type(error).__name__}: {error}") from error


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
    arrays |= {column: getattr(program.ops, column) for column in _OP_COLUMNS}
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
    lists = {name: arrays[name].tolist() for name in _COLUMNS}
    lines = [json.dumps(header)]
    for op in range(len(program)):
        row = {"op": program.text(op)} | {name: lists[name][op] for name in _COLUMNS}
        lines.append(json.dumps(row | {"needs": program.needs_of(op).tolist()}))
    return "\n".join(lines) + "\n"


def _from_jsonl(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    with path.open(encoding="utf-8") as file:
        header = _checked_header(json.loads(next(file, "") or "null"))
        rows = [json.loads(line) for line in file]
    columns = {name: np.asarray([row[name] for row in rows]) for name in _COLUMNS}
    needs = [row["needs"] for row in rows]
    columns["need"] = np.asarray([need for each in needs for need in each], np.int64)
    columns["need_offsets"] = np.cumsum([0, *map(len, needs)])
    memory = header["memory"] or {}
    columns |= {f"memory_{name}": np.asarray(memory[name]) for name in ("offsets", "time_s", "change_bytes") if memory}
    return header, columns


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
    if unpacked > 2 * _MOST_BYTES:
        raise ValueError(f"it unpacks to {unpacked} bytes")
    with np.load(path, allow_pickle=False) as archive:
        columns = {name: archive[name] for name in archive.files}
    return _checked_header(json.loads(columns.pop("header").tobytes())), columns


def _checked_header(header: Any) -> dict[str, Any]:
    if not isinstance(header, dict) or header.get("format") != "pipesim-timeline":
        raise ValueError("no header with format pipesim-timeline")
    if header.get("version") != VERSION:
        raise ValueError(f"version {header.get('version')!r}, this program reads {VERSION}")
    for key, allowed in (
        ("comm", COMM_POLICIES),
        ("source", _SOURCES),
        ("slicing", ("causal", "autoregressive")),
    ):
        if header[key] not in allowed:
            raise ValueError(f"{key} {header[key]!r} is not one of {', '.join(allowed)}")
    return header


def _timeline(header: Mapping[str, Any], columns: dict[str, np.ndarray]) -> Timeline:
    program = _program(header, columns)
    start, end = (np.asarray(columns[name], np.float64) for name in ("start_s", "end_s"))
    if not (np.isfinite(start).all() and np.isfinite(end).all() and (end >= start).all()):
        raise ValueError("an operation ends before it starts, or its times are not finite")
    return Timeline(program, start, end, _memory(header, columns), header["source"], dict(header["facts"]))


def _program(header: Mapping[str, Any], columns: dict[str, np.ndarray]) -> Program:
    placement = Placement(tuple(int(rank) for rank in header["placement"]), int(header["chains"]))
    if placement.chains < 1 or placement.stages % placement.chains:
        raise ValueError(f"{placement.stages} stages are not {placement.chains} replicas of one model")
    if placement.ranks > placement.stages:
        raise ValueError(f"a stage on rank {placement.ranks - 1}, but only {placement.stages} stages")
    ops = Atoms.of(*(columns[name] for name in _OP_COLUMNS))
    count = len(ops)
    for name, low, high in (
        ("kind", 0, len(Kind)),
        ("stage", 0, placement.stages),
        ("rank", 0, placement.ranks),
        ("microbatch", 0, int(header["microbatches"])),
        ("slice", 0, int(header["slices"])),
        ("peer", 0, placement.ranks),
        ("match", 0, count),
        ("need", 0, count),
    ):
        values = columns[name]
        if len(values) and (values.min() < low or values.max() >= high):
            raise ValueError(f"{name} is not within {low} … {high - 1}")
    if len({len(columns[name]) for name in _COLUMNS}) != 1 or len(columns["need_offsets"]) != count + 1:
        raise ValueError("columns differ in length")
    rank = columns["rank"]
    if (np.diff(rank) < 0).any():
        raise ValueError("operations are not in the order of their ranks")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rank, minlength=placement.ranks))])
    schedule = _schedule(header, placement, ops, rank)
    return Program(
        schedule,
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
        str(header["name"]),
        placement,
        int(header["microbatches"]),
        ops.take(mine),
        offsets,
        int(header["slices"]),
        header["slicing"],
        header["update_every"],
        tuple(header["refuge"]),
    )


def _memory(header: Mapping[str, Any], columns: Mapping[str, np.ndarray]) -> MemoryTrace | None:
    held = header["memory"]
    if held is None:
        return None
    limit = held["limit_bytes"]
    return MemoryTrace(
        np.asarray(held["base_bytes"], np.float64),
        columns["memory_offsets"],
        columns["memory_time_s"],
        columns["memory_change_bytes"],
        None if limit is None else np.asarray(limit, np.float64),
    )
