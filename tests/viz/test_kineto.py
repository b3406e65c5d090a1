"""Real traces of torch.profiler become timelines."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipesim.files import CannotRead
from pipesim.idle import idle_spans
from pipesim.ir.action import Kind
from pipesim.metrics import summarize
from pipesim.viz.kineto import BadTrace, read_profiler_traces

DATA = Path(__file__).parent.parent / "data" / "kineto"


def real(name: str) -> list[Path]:
    return [DATA / f"{name}_rank{rank}.json.gz" for rank in (1, 0)]


@pytest.mark.parametrize(("name", "kinds"), [("interleaved", {"F", "B"}), ("zero_bubble", {"F", "I", "W", "B"})])
def test_a_run_of_torch_pipelining(name: str, kinds: set[str]) -> None:
    made = read_profiler_traces(real(name), name=name)
    schedule = made.program.schedule
    assert (made.name, made.source, schedule.ranks, schedule.microbatches) == (name, "imported", 2, 4)
    assert schedule.placement.ranks_of_stages == (0, 1, 0, 1)
    assert {Kind(kind).name for kind in np.unique(schedule.atoms.kind)} <= kinds
    assert (made.end >= made.start).all()
    found = summarize(made)
    idle = float(sum(found.idle_s.values()))
    assert idle + float(found.per_rank.busy_s.sum()) == pytest.approx(2 * made.step_time_s)
    assert len(idle_spans(made)) > 10


def test_the_first_step_and_the_last() -> None:
    first, last = (read_profiler_traces(real("interleaved"), step=step) for step in (0, -1))
    assert first.program.schedule == last.program.schedule
    assert first.step_time_s != last.step_time_s
    assert read_profiler_traces(real("interleaved"), step=1).step_time_s == last.step_time_s
    with pytest.raises(BadTrace, match="holds 2 steps, step 2 is none"):
        read_profiler_traces(real("interleaved"), step=2)


def written(folder: Path, rank: int, events: list[tuple[str, float, float]], cat: str = "user_annotation") -> Path:
    """A trace of (name, start, duration) in microseconds."""
    path = folder / f"rank{rank}.json"
    rows: list[dict[str, Any]] = [
        {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur} for name, ts, dur in events
    ]
    path.write_text(json.dumps({"distributedInfo": {"rank": rank}, "traceEvents": rows}))
    return path


def test_actions_alone_make_a_timeline(tmp_path: Path) -> None:
    made = read_profiler_traces(
        [
            written(tmp_path, 0, [("Forward 0", 0, 10), ("Backward 0", 40, 20), ("Optimizer.step#SGD.step", 60, 5)]),
            written(tmp_path, 1, [("Forward 0", 12, 10), ("Backward 0", 22, 16)]),
        ]
    )
    assert made.program.schedule.orders == [["0F0", "0B0"], ["1F0", "1B0"]]
    at = {made.label(op): (made.start[op], made.end[op]) for op in made.boxes.tolist()}
    assert at == {
        "0F0": pytest.approx((0, 10e-6)), "0B0": pytest.approx((40e-6, 60e-6)),
        "1F0": pytest.approx((12e-6, 22e-6)), "1B0": pytest.approx((22e-6, 38e-6)),
    }  # fmt: skip
    assert (made.makespan_s, made.step_time_s) == pytest.approx((60e-6, 65e-6))


def test_a_clock_that_is_behind_is_put_off(tmp_path: Path) -> None:
    """Rank 1 seems to be done with its forward before rank 0 had made what it works on."""
    made = read_profiler_traces(
        [
            written(tmp_path, 0, [("0F0", 100, 10), ("0B0", 160, 20)]),
            written(tmp_path, 1, [("1F0", 50, 10), ("1B0", 60, 20)]),
        ]
    )
    assert made.facts["clock_shift_s"] == pytest.approx([0.0, 50e-6])


def test_gpu_times_count_where_there_are_any(tmp_path: Path) -> None:
    path = written(tmp_path, 0, [("PP:0F0", 0, 1), ("PP:0B0", 1, 1)])
    content = json.loads(path.read_text())
    gpu = [dict(event, cat="gpu_user_annotation", ts=event["ts"] * 50 + 10, dur=40) for event in content["traceEvents"]]
    path.write_text(json.dumps(content | {"traceEvents": content["traceEvents"] + gpu}))
    made = read_profiler_traces([path])
    assert made.makespan_s == pytest.approx(90e-6)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "JSONDecodeError"),
        ('{"traceEvents": [', "JSONDecodeError"),
        ("[" * 100_000, "RecursionError"),
        ("{}", "KeyError"),
        ('{"traceEvents": 3}', "TypeError"),
        ('{"traceEvents": [1]}', "AttributeError"),
        ('{"traceEvents": []}', "no ranges such as PP:0F0"),
        (
            '{"traceEvents": [{"ph": "X", "cat": "user_annotation", "name": "0F0", "ts": "soon", "dur": 1}]}',
            "ValueError",
        ),
    ],
)
def test_what_is_no_trace_is_said(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(BadTrace, match=message):
        read_profiler_traces([path])


def test_missing_ranks_and_files(tmp_path: Path) -> None:
    with pytest.raises(BadTrace, match="of ranks 1, not of 0 … 0"):
        read_profiler_traces(real("interleaved")[:1])
    with pytest.raises(CannotRead):
        read_profiler_traces([tmp_path / "none.json"])
    (tmp_path / "bad.json.gz").write_bytes(b"not gzip")
    with pytest.raises(CannotRead):
        read_profiler_traces([tmp_path / "bad.json.gz"])
