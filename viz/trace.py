"""Chrome trace-event files, for ui.perfetto.dev: a process a rank, a thread a lane.

Format: Trace Event Format, https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
Complete events of one thread must nest, so each lane has a thread of its own; times are microseconds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from pipesim.files import write_atomically
from pipesim.ir.action import Kind
from pipesim.ir.lanes import LaneKind
from pipesim.ir.needs import Flow
from pipesim.timeline import Timeline
from pipesim.viz.palette import FLOW_WORDS, KIND_WORDS

Event = dict[str, Any]

_MICRO = 1e6
_COLOURS = {  # names of Chrome's palette; Perfetto goes by the name of the slice
    Kind.F: "thread_state_running",
    Kind.B: "thread_state_iowait",
    Kind.I: "thread_state_uninterruptible",
    Kind.W: "thread_state_runnable",
    Kind.STEP: "rail_load",
    Kind.REDUCE: "rail_animation",
}


def write_trace(timeline: Timeline, path: str | os.PathLike[str]) -> None:
    """Write a trace file, whole or not at all. Raises CannotWrite."""
    write_atomically(path, trace_json(timeline))


def trace_json(timeline: Timeline) -> str:
    """The file's text: an event a line."""
    lines = ",\n".join(json.dumps(event, separators=(",", ":"), allow_nan=False) for event in events(timeline))
    about = json.dumps({"schedule": timeline.name, "source": timeline.source}, separators=(",", ":"))
    return f'{{"displayTimeUnit":"ms","otherData":{about},"traceEvents":[\n{lines}\n]}}\n'


def events(timeline: Timeline) -> list[Event]:
    """Names first, then all events in the order of their times."""
    timed = [*_slices(timeline), *_flows(timeline), *_memory(timeline)]
    order = {"X": 0, "s": 1, "f": 2, "C": 3}
    # Of events that begin together the longer one is the outer one, and comes first.
    timed.sort(key=lambda event: (event["ts"], order[event["ph"]], -event.get("dur", 0.0), event["pid"], event["tid"]))
    return [*_names(timeline), *timed]


def _names(timeline: Timeline) -> Iterator[Event]:
    lanes = timeline.lanes
    for rank in range(timeline.ranks):
        yield _meta("process_name", rank, 0, name=f"rank {rank}")
        yield _meta("process_sort_index", rank, 0, sort_index=rank)
    for lane in range(len(lanes.kind)):
        rank = int(lanes.rank[lane])
        yield _meta("thread_name", rank, lane + 1, name=_lane_name(timeline, lane))
        yield _meta("thread_sort_index", rank, lane + 1, sort_index=int(lanes.kind[lane]) * timeline.ranks + lane)


def _lane_name(timeline: Timeline, lane: int) -> str:
    """With the flow, where lanes to the same rank would otherwise have one name."""
    name = timeline.lane_name(lane)
    if timeline.lanes.kind[lane] not in (LaneKind.SEND, LaneKind.RECV):
        return name
    op = int(np.argmax(timeline.lanes.lane == lane))
    return f"{name}: {FLOW_WORDS[Flow(int(timeline.program.flow[op]))]}"


def _meta(what: str, pid: int, tid: int, **args: Any) -> Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "ts": 0, "args": args}


def _slices(timeline: Timeline) -> Iterator[Event]:
    """A complete event a batch's operation; the second of a fused pair is in the label of the first."""
    program, lanes = timeline.program, timeline.lanes
    start, length = (timeline.start * _MICRO).tolist(), ((timeline.end - timeline.start) * _MICRO).tolist()
    columns = (program.ops.kind, program.ops.stage, program.ops.microbatch, program.ops.slice, program.rank, lanes.lane)
    lists = [column.tolist() for column in columns]
    for op in np.flatnonzero(~program.ops.fused).tolist():
        kind, stage, microbatch, slice_, rank, lane = (column[op] for column in lists)
        event = {
            "ph": "X",
            "name": timeline.label(op),
            "cat": KIND_WORDS[Kind(kind)],
            "pid": rank,
            "tid": lane + 1,
            "ts": start[op],
            "dur": length[op],
            "args": {"stage": stage, "microbatch": microbatch, "slice": slice_, "kind": KIND_WORDS[Kind(kind)]},
        }
        if kind in _COLOURS:
            event["cname"] = _COLOURS[Kind(kind)]
        yield event


def _flows(timeline: Timeline) -> Iterator[Event]:
    """An arrow from each send to its receive."""
    program, lanes = timeline.program, timeline.lanes
    for number, op in enumerate(np.flatnonzero(program.ops.kind == Kind.SEND).tolist()):
        other = int(program.match[op])
        name = FLOW_WORDS.get(Flow(int(program.flow[op])), "message")
        shared: Event = {"name": name, "cat": "message", "id": number}
        yield shared | {
            "ph": "s",
            "pid": int(program.rank[op]),
            "tid": int(lanes.lane[op]) + 1,
            "ts": float(timeline.start[op] * _MICRO),
        }
        yield shared | {
            "ph": "f",
            "bp": "e",
            "pid": int(program.rank[other]),
            "tid": int(lanes.lane[other]) + 1,
            "ts": float(timeline.end[other] * _MICRO),
        }


def _memory(timeline: Timeline) -> Iterator[Event]:
    """Bytes held, a counter a rank; of several changes at one moment the last one counts."""
    if timeline.memory is None:
        return
    for rank in range(timeline.ranks):
        time, held = timeline.memory.curve(rank)
        last = np.append(np.diff(time) > 0, True)
        for at, value in zip((time[last] * _MICRO).tolist(), held[last].tolist(), strict=True):
            yield {"ph": "C", "name": "memory", "pid": rank, "tid": 0, "ts": at, "args": {"bytes": value}}
