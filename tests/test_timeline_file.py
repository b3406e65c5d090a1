"""Timelines load back as they were, from both kinds of file; anything else is refused in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pipesim.cli.options.case import CostOptions, make_case
from pipesim.cli.options.schedule import ScheduleOptions
from pipesim.engine.event import simulate
from pipesim.files import CannotRead
from pipesim.metrics import summarize
from pipesim.timeline import Timeline
from pipesim.timeline_file import BadTimeline, load_timeline, save_timeline


@pytest.fixture
def timeline() -> Timeline:
    options = CostOptions(model="llama-3-8b", cluster="dgx-h100:1", tp=2, global_batch=8)
    case = make_case("interleaved", ScheduleOptions(ranks=4, virtual=2), options)
    made = simulate(case.program, case.costs)
    made.facts["model"] = "llama-3-8b"
    return made


@pytest.mark.parametrize("ending", [".jsonl", ".npz"])
def test_a_timeline_loads_back_as_it_was(timeline: Timeline, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"run{ending}"
    save_timeline(timeline, path)
    loaded = load_timeline(path)
    assert loaded.start.tolist() == timeline.start.tolist()
    assert loaded.end.tolist() == timeline.end.tolist()
    assert loaded.program.schedule == timeline.program.schedule
    assert loaded.facts == timeline.facts
    assert loaded.memory is not None
    assert timeline.memory is not None
    assert loaded.memory.peak.tolist() == timeline.memory.peak.tolist()
    assert summarize(loaded).to_json() == summarize(timeline).to_json()
    assert [loaded.label(int(box)) for box in loaded.boxes] == [timeline.label(int(box)) for box in timeline.boxes]


def _header(path: Path) -> dict[str, object]:
    return dict(json.loads(path.read_text().splitlines()[0]))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": "other"}, "no header with format pipesim-timeline"),
        ({"version": 99}, "version 99, this program reads 1"),
        ({"comm": "carrier pigeon"}, "comm 'carrier pigeon' is not one of edge, pair, rank, blocking"),
        ({"placement": [0, 1, 2, 3]}, "stage is not within 0 … 3"),
        ({"chains": 0}, "chains 0 is not a whole number of at least 1"),
        ({"chains": 3}, "8 stages are not 3 replicas of one model"),
        ({"name": ["x"]}, "name ['x'] is not a short text"),
        ({"refuge": [0, "host", 2, 3]}, "refuge [0, 'host', 2, 3] is not a list of ranks or null"),
        ({"refuge": [9, 0, 0, 0]}, "refuge [9, 0, 0, 0] is not a rank or null for each of 4 ranks"),
        ({"update_every": 0}, "update_every 0 is not null or a whole number of at least 1"),
        ({"facts": []}, "facts [] is not an object"),
        ({"microbatches": 1}, "microbatch is not within 0 … 0"),
        ({"placement": [0, 1, 2, 3, 0, 1, 2, 10**9]}, "a stage on rank 1000000000, but only 8 stages"),  # MemoryError
    ],
)
def test_a_changed_header_is_refused(
    timeline: Timeline, tmp_path: Path, change: dict[str, object], reason: str
) -> None:
    path = tmp_path / "run.jsonl"
    save_timeline(timeline, path)
    _, *rows = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps(_header(path) | change), *rows]))
    with pytest.raises(BadTimeline) as caught:
        load_timeline(path)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kind": 0.5}, "kind is not whole numbers"),
        ({"microbatch": "0"}, "microbatch is not whole numbers"),
        ({"fused": 1}, "fused is not true or false"),
        ({"flow": 99}, "flow is not within 0 … 4"),
        ({"start_s": -1e300}, "start_s is not finite numbers up to 1e+15"),
        ({"start_s": float("nan")}, "start_s is not finite numbers up to 1e+15"),
        ({"end_s": -1.0}, "an operation ends before it starts"),
        ({"kind": 6, "flow": 1}, "a SEND without its RECV"),
        ({"needs": [0.5]}, "need is not whole numbers"),
        ({"needs": 7}, "TypeError"),
    ],
)
def test_a_changed_operation_is_refused(
    timeline: Timeline, tmp_path: Path, change: dict[str, object], reason: str
) -> None:
    """Several of these once loaded, and ended in a traceback when they were drawn."""
    path = tmp_path / "run.jsonl"
    save_timeline(timeline, path)
    header, first, *rows = path.read_text().splitlines()
    path.write_text("\n".join([header, json.dumps(json.loads(first) | change), *rows]))
    with pytest.raises(BadTimeline) as caught:
        load_timeline(path)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"offsets": [0, 5, 3, 8, 9]}, "memory offsets do not rise from 0"),
        ({"time_s": [0.0]}, "memory offsets is not within"),
        ({"base_bytes": [1, 2]}, "memory base_bytes is not 4 numbers"),
        ({"base_bytes": [1, 2, 3, 10**400]}, "memory base_bytes is not 4 numbers"),
        ({"limit_bytes": [1, 2, None, 4]}, "memory limit_bytes is not 4 numbers"),
    ],
)
def test_changed_memory_is_refused(timeline: Timeline, tmp_path: Path, change: dict[str, object], reason: str) -> None:
    path = tmp_path / "run.jsonl"
    save_timeline(timeline, path)
    header, *rows = path.read_text().splitlines()
    held = json.loads(header)
    path.write_text("\n".join([json.dumps(held | {"memory": held["memory"] | change}), *rows]))
    with pytest.raises(BadTimeline) as caught:
        load_timeline(path)
    assert reason in str(caught.value)


def test_a_file_that_never_ends_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its size was asked for first, and that of a device is 0."""
    monkeypatch.setattr("pipesim.timeline_file._MOST_TEXT", 1 << 16)
    path = tmp_path / "zero.jsonl"
    path.symlink_to("/dev/zero")
    with pytest.raises(CannotRead, match="longer than 65536 bytes"):
        load_timeline(path)


def test_a_number_of_more_than_64_bits_is_refused(timeline: Timeline, tmp_path: Path) -> None:
    """It was an OverflowError."""
    path = tmp_path / "run.jsonl"
    save_timeline(timeline, path)
    header, first, *rows = path.read_text().splitlines()
    path.write_text("\n".join([header, json.dumps(json.loads(first) | {"stage": 10**30}), *rows]))
    with pytest.raises(BadTimeline, match="too large"):
        load_timeline(path)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[" * 100_000, b"\x00\xff", b"null\n", b'{"format": "pipesim-timeline"}\n']
)
@pytest.mark.parametrize("ending", [".jsonl", ".npz"])
def test_garbage_is_refused(tmp_path: Path, content: bytes, ending: str) -> None:
    path = tmp_path / f"bad{ending}"
    path.write_bytes(content)
    with pytest.raises((BadTimeline, CannotRead), match=r"is not a pipesim timeline|not a text in UTF-8"):
        load_timeline(path)


def test_a_truncated_file_is_refused(timeline: Timeline, tmp_path: Path) -> None:
    for ending in (".jsonl", ".npz"):
        path = tmp_path / f"cut{ending}"
        save_timeline(timeline, path)
        path.write_bytes(path.read_bytes()[:-200])
        with pytest.raises(BadTimeline):
            load_timeline(path)


def test_pickles_are_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "evil.npz"
    np.savez(path, header=np.array([{"a": 1}], dtype=object))
    with pytest.raises(BadTimeline):
        load_timeline(path)


def test_columns_of_unsigned_numbers_are_as_good(timeline: Timeline, tmp_path: Path) -> None:
    """They loaded, and could not be drawn."""
    save_timeline(timeline, tmp_path / "run.npz")
    arrays = dict(np.load(tmp_path / "run.npz"))
    unsigned = {name: each.astype(np.uint64) for name, each in arrays.items() if each.dtype.kind == "i"}
    np.savez(tmp_path / "other.npz", **arrays | unsigned)
    assert summarize(load_timeline(tmp_path / "other.npz")).to_json() == summarize(timeline).to_json()
