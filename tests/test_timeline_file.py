"""Timelines load back as they were, from both kinds of file; anything else is refused in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pipesim.cli.case import CostOptions, make_case
from pipesim.cli.options import ScheduleOptions
from pipesim.engine.event import simulate
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
        ({"chains": 0}, "8 stages are not 0 replicas of one model"),
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
    with pytest.raises(BadTimeline, match="is not a pipesim timeline"):
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
