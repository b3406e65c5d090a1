"""Trace files hold to the trace-event format: everything named, monotonic, nested, every arrow with two ends."""

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipesim.ir.action import Kind
from pipesim.ir.program import COMM_POLICIES, Comm
from pipesim.timeline import Timeline
from pipesim.viz.trace import trace_json, write_trace
from tests.viz.cases import timeline

Event = dict[str, Any]


def faults(text: str) -> list[str]:
    """What is wrong with a trace file."""
    events: list[Event] = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))["traceEvents"]
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    found = [f"{e} lacks a field" for e in events if not {"ph", "name", "pid", "tid", "ts"} <= e.keys()]
    found += [f"{e['ph']} is no phase of ours" for e in events if e["ph"] not in "MXsfC"]
    timed = [e for e in events if e["ph"] != "M"]
    found += [f"{b} comes after {a}" for a, b in pairwise(timed) if b["ts"] < a["ts"]]
    slices = [e for e in timed if e["ph"] == "X"]
    found += [f"{e} is on a thread without a name" for e in slices if (e["pid"], e["tid"]) not in named]
    found += [f"{e} takes {e['dur']}" for e in slices if not e["dur"] >= 0]
    return found + _unnested(slices) + _loose(timed, slices)


def _unnested(slices: list[Event]) -> list[str]:
    found, open_until = [], defaultdict[tuple[int, int], list[int]](list)
    for event in slices:
        start, end = round(event["ts"] * 1e3), round((event["ts"] + event["dur"]) * 1e3)
        stack = open_until[event["pid"], event["tid"]]
        while stack and stack[-1] <= start:
            stack.pop()
        if stack and stack[-1] < end:
            found.append(f"{event} ends after the one it is in")
        stack.append(end)
    return found


def _loose(timed: list[Event], slices: list[Event]) -> list[str]:
    sides = {phase: {e["id"]: e for e in timed if e["ph"] == phase} for phase in "sf"}
    found = [f"arrow {one} has one end" for one in sides["s"].keys() ^ sides["f"].keys()]
    found += [f"arrow {one} goes back in time" for one, e in sides["s"].items() if sides["f"][one]["ts"] < e["ts"]]
    threads = defaultdict[tuple[int, int], list[Event]](list)
    for event in slices:
        threads[event["pid"], event["tid"]].append(event)
    for end in (*sides["s"].values(), *sides["f"].values()):
        inside = (s["ts"] <= end["ts"] < s["ts"] + s["dur"] for s in threads[end["pid"], end["tid"]])
        if not any(inside):
            found.append(f"{end} is in no slice")
    return found


@pytest.mark.parametrize("comm", COMM_POLICIES)
@pytest.mark.parametrize("name", ["1f1b", "interleaved", "dualpipe", "pipedream"])
def test_a_trace_is_strictly_well_formed(name: str, comm: Comm) -> None:
    assert faults(trace_json(timeline(name, 4, 8, comm=comm, memory=True))) == []


def test_messages_that_overlap_on_the_way_get_threads_of_their_own() -> None:
    slow = timeline("gpipe", 2, 6, times="F=1ms,B=2ms,C=3.5ms")
    assert faults(trace_json(slow)) == []
    names = {e["args"]["name"] for e in json.loads(trace_json(slow))["traceEvents"] if e["name"] == "thread_name"}
    assert "receive from 0: activations (4)" in names


def test_every_action_and_message_is_there() -> None:
    made = timeline("1f1b", 3, 4)
    events = json.loads(trace_json(made))["traceEvents"]
    slices = {(e["pid"], e["name"]): e for e in events if e["ph"] == "X"}
    program = made.program
    timed = np.flatnonzero(made.end > made.start).tolist()
    assert slices.keys() == {(int(program.rank[op]), program.text(op)) for op in timed}
    for op in timed:
        event = slices[int(program.rank[op]), program.text(op)]
        assert event["ts"] == pytest.approx(made.start[op] * 1e6, abs=1e-3)
        assert event["dur"] == pytest.approx((made.end[op] - made.start[op]) * 1e6, abs=2e-3)
    assert sum(e["ph"] == "s" for e in events) == np.count_nonzero(program.ops.kind == Kind.SEND)


def test_memory_counter_peaks_where_the_timeline_does() -> None:
    made = timeline("1f1b", 4, 8, memory=True)
    assert made.memory is not None
    events = json.loads(trace_json(made))["traceEvents"]
    for rank in range(4):
        held = [e["args"]["bytes"] for e in events if e["name"] == "memory" and e["pid"] == rank]
        assert max(held) == made.memory.peak[rank]


def test_a_timeline_without_messages_or_memory(tmp_path: Path) -> None:
    alone: Timeline = timeline("1f1b", 1, 2, times="F=1,B=2")
    write_trace(alone, tmp_path / "t.json")
    text = (tmp_path / "t.json").read_text()
    assert faults(text) == []
    assert [e["name"] for e in json.loads(text)["traceEvents"] if e["ph"] == "X"][:2] == ["0F0", "0B0"]
