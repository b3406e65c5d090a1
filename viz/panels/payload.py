"""A whole timeline inside a figure, exactly and in few bytes, for the page to draw and a reader to read back.

Whole numbers are written as differences, times as the bits that differ from a prediction (an operation
begins when its lane or what it needs has ended, and takes as long as the one before of its kind). A
simulated step of 300,000 operations so takes 40 kB, one with random durations 2 MB; nothing is rounded.
`assets/decode.js` and `unpacked` here do the same thing.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipesim.idle import IdleSpans
from pipesim.ir.action import Kind
from pipesim.timeline import Timeline

Ints = NDArray[np.integer]
Floats = NDArray[np.float64]
Columns = dict[str, NDArray[Any]]

_INTS = ("kind", "stage", "microbatch", "slice", "fused", "flow", "peer", "match", "lane", "needs", "need")
_REST = ("idle_rank", "idle_cause", "idle_box", "critical")


@dataclass(frozen=True)
class _Order:
    """The order in which times are written: boxes, then what sends, then receives, each lane in a row."""

    order: Ints
    place: Ints


def packed(timeline: Timeline, idle: IdleSpans, critical: Sequence[int]) -> dict[str, Any]:
    """The timeline as JSON values: counts, and all columns in one base64 text."""
    columns = _int_columns(timeline)
    order = _order(columns["kind"], columns["lane"])
    times = _time_bits(timeline.start, timeline.end, columns, timeline.program.rank, order)
    box = _box_before(timeline, idle)
    columns |= {
        "idle_rank": idle.rank,
        "idle_cause": idle.cause,
        "idle_box": box,
        "critical": np.asarray(critical, np.int64),
    }
    edges = _idle_bits(timeline, idle, box)
    parts = [_planes(_differences(name, columns).astype(np.int32)) for name in (*_INTS, *_REST)]
    parts += [_planes(bits) for bits in (*times, *edges)]
    return {
        "counts": {name: len(columns[name]) for name in (*_INTS, *_REST)},
        "offsets": timeline.program.offsets.tolist(),
        "until": timeline.step_time_s,
        "data": base64.b64encode(zlib.compress(b"".join(parts), 6)).decode(),
    }


def unpacked(pack: Mapping[str, Any]) -> Columns:
    """All columns of a packed timeline, `start` and `end` bit for bit as they were."""
    data, at = zlib.decompress(base64.b64decode(pack["data"])), 0
    counts, columns = pack["counts"], {}
    for name in (*_INTS, *_REST):
        columns[name] = _from_planes(data, at, counts[name], np.int32)
        at += 4 * counts[name]
        columns[name] = _summed(name, columns)
    bits = []
    for count in (counts["kind"],) * 2 + (counts["idle_rank"],) * 2:
        bits.append(_from_planes(data, at, count, np.uint64))
        at += 8 * count
    rank = np.repeat(np.arange(len(pack["offsets"]) - 1), np.diff(pack["offsets"]))
    columns["rank"] = rank
    columns["start"], columns["end"] = _times(bits[0], bits[1], columns)
    columns["idle_start"], columns["idle_end"] = _idle_times(bits[2], bits[3], columns, pack["until"])
    return columns


def _int_columns(timeline: Timeline) -> Columns:
    program = timeline.program
    return {name: getattr(program.ops, name) for name in ("kind", "stage", "microbatch", "slice")} | {
        "fused": program.ops.fused.astype(np.int32),
        "flow": program.flow,
        "peer": program.peer,
        "match": program.match,
        "lane": timeline.lanes.lane,
        "needs": np.diff(program.need_offsets),
        "need": program.need,
    }


def _differences(name: str, columns: Columns) -> Ints:
    """References from where they stand, the rest from the value before."""
    values = columns[name].astype(np.int64)
    if name == "match":
        return values - np.arange(len(values))
    if name == "need":
        return values - np.repeat(np.arange(len(columns["needs"])), columns["needs"])
    return np.diff(values, prepend=0)


def _summed(name: str, columns: Columns) -> Ints:
    values: Ints = columns[name]
    if name == "match":
        return values + np.arange(len(values))
    if name == "need":
        return values + np.repeat(np.arange(len(columns["needs"])), columns["needs"])
    return np.cumsum(values)


def _order(kind: Ints, lane: Ints) -> _Order:
    turn = np.where(kind == Kind.RECV, 2, np.where((kind <= Kind.W) | (kind == Kind.STEP), 0, 1))
    order = np.lexsort((np.arange(len(kind)), lane, turn))
    place = np.empty(len(kind), np.int64)
    place[order] = np.arange(len(kind))
    return _Order(order, place)


def _before(key: Ints, order: Ints) -> Ints:
    """For each operation the one before it, in the order given, with the same key; itself if there is none."""
    by_key = order[np.argsort(key[order], kind="stable")]
    before = np.arange(len(key))
    same = key[by_key[1:]] == key[by_key[:-1]]
    before[by_key[1:][same]] = by_key[:-1][same]
    return before


def _time_bits(
    start: Floats, end: Floats, columns: Columns, rank: Ints, way: _Order
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Starts and ends, each XORed with its prediction, in writing order."""
    count = len(start)
    lane_before = _before(columns["lane"], way.order)
    guess = np.where(lane_before == np.arange(count), 0.0, end[lane_before])
    needing = np.repeat(np.arange(count), columns["needs"])
    known = way.place[columns["need"]] < way.place[needing]
    np.maximum.at(guess, needing[known], end[columns["need"][known]])
    received = columns["kind"] == Kind.RECV
    sent = columns["match"]
    received &= way.place[sent] < way.place
    guess[received] = start[sent[received]]
    took = end - start
    kind_before = _before(columns["kind"].astype(np.int64) * (int(rank.max(initial=0)) + 1) + rank, way.order)
    guess_end = start + np.where(kind_before == np.arange(count), 0.0, took[kind_before])
    return (_bits(start) ^ _bits(guess))[way.order], (_bits(end) ^ _bits(guess_end))[way.order]


def _times(start_bits: NDArray[np.uint64], end_bits: NDArray[np.uint64], columns: Columns) -> tuple[Floats, Floats]:
    """The way back, one operation after the other."""
    kind, lane, match, need, rank = (columns[name].tolist() for name in ("kind", "lane", "match", "need", "rank"))
    first = np.concatenate([[0], np.cumsum(columns["needs"])]).tolist()
    start, end = np.zeros(len(kind)), np.zeros(len(kind))
    done = [False] * len(kind)
    lane_end: dict[int, float] = {}
    took: dict[tuple[int, int], float] = {}
    for place, op in enumerate(_order(columns["kind"], columns["lane"]).order.tolist()):
        guess = lane_end.get(lane[op], 0.0)
        for needed in need[first[op] : first[op + 1]]:
            if done[needed]:
                guess = max(guess, end[needed])
        if kind[op] == Kind.RECV and done[match[op]]:
            guess = start[match[op]]
        start[op] = _float(start_bits[place], guess)
        end[op] = _float(end_bits[place], start[op] + took.get((kind[op], rank[op]), 0.0))
        lane_end[lane[op]], took[kind[op], rank[op]], done[op] = end[op], end[op] - start[op], True
    return start, end


def _box_before(timeline: Timeline, idle: IdleSpans) -> Ints:
    """How many boxes of its rank have ended when an idle span begins."""
    box = np.zeros(len(idle.rank), np.int64)
    for rank in range(timeline.ranks):
        mine = idle.rank == rank
        ends = np.sort(timeline.end[_rank_boxes(timeline, rank)])
        box[mine] = np.searchsorted(ends, idle.begin[mine], side="right")
    return box


def _rank_boxes(timeline: Timeline, rank: int) -> Ints:
    boxes = timeline.boxes
    low, high = np.searchsorted(boxes, timeline.program.offsets[[rank, rank + 1]])
    return boxes[low:high]


def _idle_bits(timeline: Timeline, idle: IdleSpans, box: Ints) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Begin and end of idle spans, each XORed with the end of the box before and the start of the one after."""
    begin, finish = np.zeros(len(box)), np.full(len(box), timeline.step_time_s)
    for rank in range(timeline.ranks):
        mine = np.flatnonzero(idle.rank == rank)
        boxes, place = _rank_boxes(timeline, rank), box[mine]
        after, before = place < len(boxes), place > 0
        finish[mine[after]] = timeline.start[boxes[place[after]]]
        begin[mine[before]] = timeline.end[boxes[place[before] - 1]]
    follows = np.zeros(len(box), np.bool_)
    follows[1:] = (box[1:] == box[:-1]) & (idle.rank[1:] == idle.rank[:-1])
    begin[follows] = idle.end[:-1][follows[1:]]
    return _bits(idle.begin) ^ _bits(begin), _bits(idle.end) ^ _bits(finish)


def _idle_times(
    begin_bits: NDArray[np.uint64], end_bits: NDArray[np.uint64], columns: Columns, until: float
) -> tuple[Floats, Floats]:
    is_box = (columns["kind"] <= Kind.W) & (columns["fused"] == 0)
    boxes = [np.flatnonzero(is_box & (columns["rank"] == rank)) for rank in range(int(columns["rank"].max()) + 1)]
    begin, finish = np.zeros(len(begin_bits)), np.zeros(len(begin_bits))
    last = (-1, -1)
    for at, (rank, box) in enumerate(zip(columns["idle_rank"].tolist(), columns["idle_box"].tolist(), strict=True)):
        mine = boxes[rank]
        guess = float(columns["end"][mine[box - 1]]) if box > 0 else 0.0
        if last == (rank, box):
            guess = finish[at - 1]
        begin[at] = _float(begin_bits[at], guess)
        finish[at] = _float(end_bits[at], float(columns["start"][mine[box]]) if box < len(mine) else until)
        last = (rank, box)
    return begin, finish


def _bits(values: Floats) -> NDArray[np.uint64]:
    return np.ascontiguousarray(values, np.float64).view(np.uint64)


def _float(bits: np.uint64, guess: float) -> float:
    return float((bits ^ np.float64(guess).view(np.uint64)).view(np.float64))


def _planes(values: NDArray[Any]) -> bytes:
    """All lowest bytes, then all second bytes, and so on: equal bytes beside each other compress well."""
    little = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<")))
    return np.ascontiguousarray(little.view(np.uint8).reshape(len(values), values.itemsize).T).tobytes()


def _from_planes(data: bytes, at: int, count: int, kind: type) -> NDArray[Any]:
    size = np.dtype(kind).itemsize
    planes = np.frombuffer(data, np.uint8, count * size, at).reshape(size, count)
    return np.ascontiguousarray(planes.T).view(np.dtype(kind).newbyteorder("<")).ravel().astype(kind)
