"""Chrome trace-event files, for ui.perfetto.dev: a process a rank, a thread a lane.

Format: Trace Event Format, https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
Complete events of one thread must nest, so each lane has a thread of its own, and one more where its messages
overlap on the way. Times are microseconds, to the nanosecond.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipesim.files import write_atomically
from pipesim.ir.action import Kind
from pipesim.ir.lanes import LaneKind
from pipesim.ir.needs import Flow
from pipesim.timeline import Timeline
from pipesim.viz.look.palette import FLOW_WORDS, KIND_WORDS

Event = dict[str, Any]
Ints = NDArray[np.integer]

_PHASES = {"X": 0, "s": 1, "f": 2, "C": 3}  # order of events at one moment


def write_trace(timeline: Timeline, path: str | os.PathLike[str]) -> None:
    """Write a trace file, whole or not at all. Raises CannotWrite."""
    write_atomically(path, trace_json(timeline))


def trace_json(timeline: Timeline) -> str:
    """The file's text: an event a line."""
    lines = ",\n".join(json.dumps(event, separators=(",", ":"), allow_nan=False) for event in events(timeline))
    about = json.dumps({"schedule": timeline.name, "source": timeline.source}, separators=(",", ":"))
    return f'{{"displayTimeUnit":"ms","otherData":{about},"traceEvents":[\n{lines}\n]}}\n'


def events(timeline: Timeline) -> list[Event]:
    """Names first, then all events in the order of their times; of those that begin together the longest first."""
    threads = _threads(timeline)
    timed = [*_slices(timeline, threads), *_flows(timeline, threads), *_memory(timeline), *_messages(timeline)]
    timed.sort(key=lambda event: (event["ts"], _PHASES[event["ph"]], -event.get("dur", 0.0), event["pid"]))
    return [*_names(timeline, threads), *timed]


@dataclass(frozen=True, eq=False)
class _Threads:
    """Thread number of each operation (-1: not shown, as it takes no time or is told by another), and their names."""

    of_op: Ints
    names: dict[tuple[int, int], str]  # (rank, thread)
    start_ns: Ints
    end_ns: Ints


def _threads(timeline: Timeline) -> _Threads:
    """Give each lane a thread, and more to those whose operations overlap."""
    start, end = (np.rint(times * 1e9).astype(np.int64) for times in (timeline.start, timeline.end))
    lanes, program = timeline.lanes, timeline.program
    shown = ~program.ops.fused & ((end > start) | program.is_compute)
    of_op = np.full(len(program), -1)
    names: dict[tuple[int, int], str] = {}
    order = np.lexsort((start, lanes.lane))
    order = order[shown[order]]
    next_thread = [1] * timeline.ranks
    ends: list[int] = []  # of the last operation of each thread of the lane in hand
    first = before = -1
    for op, lane in zip(order.tolist(), lanes.lane[order].tolist(), strict=True):
        rank = int(lanes.rank[lane])
        if lane != before:
            before, ends, first = lane, [], next_thread[rank]
        place = next((at for at, until in enumerate(ends) if until <= start[op]), len(ends))
        if place == len(ends):
            ends.append(0)
            names[rank, first + place] = _lane_name(timeline, lane, op) + (f" ({place + 1})" if place else "")
            next_thread[rank] = first + place + 1
        ends[place] = int(end[op])
        of_op[op] = first + place
    return _Threads(of_op, names, start, end)


def _lane_name(timeline: Timeline, lane: int, op: int) -> str:
    """With the flow, where lanes to the same rank would otherwise have one name."""
    name = timeline.lane_name(lane)
    if timeline.lanes.kind[lane] not in (LaneKind.SEND, LaneKind.RECV):
        return name
    return f"{name}: {FLOW_WORDS[Flow(int(timeline.program.flow[op]))]}"


def _names(timeline: Timeline, threads: _Threads) -> Iterator[Event]:
    for rank in range(timeline.ranks):
        yield _meta("process_name", rank, 0, name=f"rank {rank}")
        yield _meta("process_sort_index", rank, 0, sort_index=rank)
    for (rank, thread), name in sorted(threads.names.items()):
        yield _meta("thread_name", rank, thread, name=name)
        yield _meta("thread_sort_index", rank, thread, sort_index=thread)


def _meta(what: str, pid: int, tid: int, **args: Any) -> Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "ts": 0, "args": args}


def _slices(timeline: Timeline, threads: _Threads) -> Iterator[Event]:
    """A complete event an operation; a fused pair is one, named for both."""
    program = timeline.program
    columns = (program.ops.kind, program.ops.stage, program.ops.microbatch, program.ops.slice, program.rank,
               threads.of_op, threads.start_ns, threads.end_ns)  # fmt: skip
    lists = [column.tolist() for column in columns]
    for op in np.flatnonzero(threads.of_op >= 0).tolist():
        kind, stage, microbatch, slice_, rank, thread, start, end = (column[op] for column in lists)
        word = KIND_WORDS[Kind(kind)]
        yield {
            "ph": "X", "name": timeline.label(op), "cat": word, "pid": rank, "tid": thread,
            "ts": start / 1e3, "dur": (end - start) / 1e3,
            "args": {"kind": word, "stage": stage, "microbatch": microbatch, "slice": slice_},
        }  # fmt: skip


def _flows(timeline: Timeline, threads: _Threads) -> Iterator[Event]:
    """An arrow to each receive that takes time, from its send or, where that takes none, from what it sends."""
    program = timeline.program
    receives = np.flatnonzero((program.ops.kind == Kind.RECV) & (threads.of_op >= 0))
    for number, op in enumerate(receives.tolist()):
        source = _shown_source(timeline, threads, int(program.match[op]))
        if source is None:
            continue
        begin = int(threads.end_ns[source]) - 1 if program.is_compute[source] else int(threads.start_ns[source])
        shared: Event = {"name": FLOW_WORDS[Flow(int(program.flow[op]))], "cat": "message", "id": number}
        yield shared | _end_of_arrow("s", program.rank[source], threads.of_op[source], begin)
        yield shared | _end_of_arrow("f", program.rank[op], threads.of_op[op], max(begin, int(threads.start_ns[op])))


def _shown_source(timeline: Timeline, threads: _Threads, send: int) -> int | None:
    for op in (send, *(int(need) for need in timeline.program.needs_of(send))):
        if threads.of_op[op] >= 0 and threads.end_ns[op] > threads.start_ns[op]:
            return op
    return None


def _end_of_arrow(phase: str, rank: int, thread: int, at_ns: int) -> Event:
    end: Event = {"ph": phase, "pid": int(rank), "tid": int(thread), "ts": at_ns / 1e3}
    return end if phase == "s" else end | {"bp": "e"}


def _memory(timeline: Timeline) -> Iterator[Event]:
    """Bytes held, a counter a rank; of several changes at one moment the last one counts."""
    if timeline.memory is None:
        return
    for rank in range(timeline.ranks):
        time, held = timeline.memory.curve(rank)
        yield from _counter("memory", "bytes", rank, np.rint(time * 1e9).astype(np.int64), held)


def _messages(timeline: Timeline) -> Iterator[Event]:
    """Messages that a rank has on the way: how much its links are used."""
    program = timeline.program
    sends = np.flatnonzero((program.ops.kind == Kind.SEND) & (timeline.end > timeline.start))
    arrive = np.maximum(timeline.end[sends], timeline.end[program.match[sends]])
    for rank in range(timeline.ranks):
        mine = program.rank[sends] == rank
        if not mine.any():
            continue
        times = np.rint(np.concatenate([timeline.start[sends[mine]], arrive[mine]]) * 1e9).astype(np.int64)
        change = np.repeat([1, -1], int(mine.sum()))
        order = np.lexsort((change, times))
        yield from _counter("messages on the way", "messages", rank, times[order], np.cumsum(change[order]))


def _counter(name: str, unit: str, rank: int, time_ns: Ints, value: NDArray[Any]) -> Iterator[Event]:
    last = np.append(np.diff(time_ns) > 0, True)
    for at, count in zip(time_ns[last].tolist(), value[last].tolist(), strict=True):
        yield {"ph": "C", "name": name, "pid": rank, "tid": 0, "ts": at / 1e3, "args": {unit: count}}
