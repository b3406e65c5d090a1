"""What a timeline file may hold: its header and columns are checked before anything is made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pipesim.ir.action import Kind
from pipesim.ir.needs import Flow
from pipesim.ir.program import COMM_POLICIES

VERSION = 1
OP_COLUMNS = ("kind", "stage", "microbatch", "slice", "fused")
COLUMNS = ("rank", *OP_COLUMNS, "flow", "peer", "match", "start_s", "end_s")
_SOURCES = ("simulated", "measured", "emulated", "imported")
_SLICINGS = ("causal", "autoregressive")
_MOST = 1e15  # seconds and bytes: far beyond any run, and far from where sums overflow
_MOST_COUNT = 1 << 31


def check_header(header: Any) -> dict[str, Any]:
    """The header of a timeline file, if it is one. Raises ValueError, KeyError."""
    if not isinstance(header, dict) or header.get("format") != "pipesim-timeline":
        raise ValueError("no header with format pipesim-timeline")
    if header.get("version") != VERSION:
        raise ValueError(f"version {header.get('version')!r}, this program reads {VERSION}")
    for key, (fits, expected) in _FIELDS.items():
        if not fits(header[key]):
            raise ValueError(f"{key} {header[key]!r:.60} is not {expected}")
    stages, chains = len(header["placement"]), header["chains"]
    ranks = max(header["placement"]) + 1
    if stages % chains:
        raise ValueError(f"{stages} stages are not {chains} replicas of one model")
    if ranks > stages:
        raise ValueError(f"a stage on rank {ranks - 1}, but only {stages} stages")
    if len(header["refuge"]) not in (0, ranks) or any(to is not None and to >= ranks for to in header["refuge"]):
        raise ValueError(f"refuge {header['refuge']!r:.60} is not a rank or null for each of {ranks} ranks")
    return header


def check_columns(header: Mapping[str, Any], columns: Mapping[str, np.ndarray]) -> None:
    """Raises ValueError, KeyError for columns that are of no program."""
    count, ranks = len(columns["kind"]), max(header["placement"]) + 1
    for name, past in (
        ("kind", len(Kind)),
        ("stage", len(header["placement"])),
        ("microbatch", header["microbatches"]),
        ("slice", header["slices"]),
        ("rank", ranks),
        ("flow", len(Flow)),
        ("peer", ranks),
        ("match", count),
    ):
        _check_whole(name, columns[name], count, past)
    if columns["fused"].dtype != np.bool_ or columns["fused"].shape != (count,):
        raise ValueError(f"fused is not true or false for each of {count} operations")
    _check_offsets("need_offsets", columns["need_offsets"], count, len(columns["need"]))
    _check_whole("need", columns["need"], len(columns["need"]), count)
    if (np.diff(columns["rank"]) < 0).any():
        raise ValueError("operations are not in the order of their ranks")
    idle = np.setdiff1d(np.arange(ranks), columns["rank"])
    if len(idle):
        raise ValueError(f"rank {idle[0]} has no operation")
    _check_transfers(columns)
    start, end = (_finite(name, columns[name], count) for name in ("start_s", "end_s"))
    if (end < start).any():
        raise ValueError("an operation ends before it starts")


def check_memory(held: Mapping[str, Any], columns: Mapping[str, np.ndarray], ranks: int) -> None:
    """Raises ValueError, KeyError for bytes over time that are of no ranks."""
    times = columns["memory_time_s"]
    _check_offsets("memory offsets", columns["memory_offsets"], ranks, len(times))
    _finite("memory time_s", times, len(times))
    _finite("memory change_bytes", columns["memory_change_bytes"], len(times))
    for name in ("base_bytes", "limit_bytes"):
        if name == "base_bytes" or held[name] is not None:
            _finite(f"memory {name}", np.asarray(held[name]), ranks)


def _check_whole(name: str, values: np.ndarray, count: int, past: int) -> None:
    """Whole numbers from 0 to `past` - 1, one for each of `count`."""
    if values.shape != (count,):
        raise ValueError(f"columns differ in length: {name} {values.shape}, kind has {count}")
    if count and values.dtype.kind not in "iu":
        raise ValueError(f"{name} is not whole numbers{' or too large' if values.dtype == object else ''}")
    if count and (values.min() < 0 or values.max() >= past):
        raise ValueError(f"{name} is not within 0 … {past - 1}")


def _check_offsets(name: str, values: np.ndarray, count: int, total: int) -> None:
    """Where each of `count` lists begins in one of `total` values."""
    _check_whole(name, values, count + 1, total + 1)
    if values[0] != 0 or values[-1] != total or (np.diff(values) < 0).any():
        raise ValueError(f"{name} do not rise from 0 to {total}")


def _check_transfers(columns: Mapping[str, np.ndarray]) -> None:
    """Every send has its receive, and both know what flows."""
    kind, match, flow = columns["kind"], columns["match"], columns["flow"]
    for one, other in ((Kind.SEND, Kind.RECV), (Kind.RECV, Kind.SEND)):
        mine = np.flatnonzero(kind == one)
        if (kind[match[mine]] != other).any() or (match[match[mine]] != mine).any():
            raise ValueError(f"a {one.name} without its {other.name}")
        if (flow[mine] == Flow.LOCAL).any():
            raise ValueError(f"a {one.name} of nothing")


def _finite(name: str, values: np.ndarray, count: int) -> np.ndarray:
    if values.shape != (count,) or (count and values.dtype.kind not in "iuf"):
        raise ValueError(f"{name} is not {count} numbers")
    found = values.astype(np.float64)
    if not (np.abs(found) <= _MOST).all():
        raise ValueError(f"{name} is not finite numbers up to {_MOST:g}")
    return found


def _is_whole(value: object, least: int = 1) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < _MOST_COUNT


def _one_of(words: tuple[str, ...]) -> tuple[Callable[[Any], bool], str]:
    return lambda value: isinstance(value, str) and value in words, f"one of {', '.join(words)}"


_COUNT: tuple[Callable[[Any], bool], str] = (_is_whole, "a whole number of at least 1")
_FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "name": (lambda value: isinstance(value, str) and value.isprintable() and len(value) <= 200, "a short text"),
    "comm": _one_of(COMM_POLICIES),
    "source": _one_of(_SOURCES),
    "slicing": _one_of(_SLICINGS),
    "chains": _COUNT,
    "microbatches": _COUNT,
    "slices": _COUNT,
    "update_every": (lambda value: value is None or _is_whole(value), "null or a whole number of at least 1"),
    "placement": (
        lambda value: isinstance(value, list) and bool(value) and all(_is_whole(rank, 0) for rank in value),
        "a list of ranks",
    ),
    "refuge": (
        lambda value: isinstance(value, list) and all(to is None or _is_whole(to, 0) for to in value),
        "a list of ranks or null",
    ),
    "facts": (lambda value: isinstance(value, dict), "an object"),
    "memory": (lambda value: value is None or isinstance(value, dict), "null or an object"),
}
