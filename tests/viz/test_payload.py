"""A figure holds its timeline bit for bit."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from pipesim.idle import CAUSES, idle_spans
from pipesim.ir.program import COMM_POLICIES, Comm
from pipesim.timeline import Timeline
from pipesim.viz.panels.bars import drawn
from pipesim.viz.panels.payload import packed, unpacked
from tests.viz.cases import timeline

Columns = Mapping[str, np.ndarray[Any, Any]]


def there_and_back(made: Timeline) -> tuple[Columns, Columns]:
    """What a figure should hold of a timeline, and what comes out of it."""
    program, found = made.program, drawn(made)
    expected = {
        **{column: getattr(program.ops, column) for column in ("kind", "stage", "microbatch", "slice", "fused")},
        "flow": program.flow, "peer": program.peer, "match": program.match, "need": program.need,
        "needs": np.diff(program.need_offsets), "rank": program.rank, "lane": made.lanes.lane,
        "start": made.start, "end": made.end, "critical": found.critical,
        "idle_rank": found.idle.rank, "idle_start": found.idle.begin, "idle_end": found.idle.end,
        "idle_cause": found.idle.cause,
    }  # fmt: skip
    columns = unpacked(packed(made, found.idle, found.critical))
    return expected, {name: columns[name] for name in expected}


@pytest.mark.parametrize("comm", COMM_POLICIES)
@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved", "dualpipe", "seq1f1b", "bpipe", "pipedream"])
def test_comes_back_as_it_was(name: str, comm: Comm) -> None:
    expected, actual = there_and_back(timeline(name, 4, 8, comm=comm))
    np.testing.assert_equal(actual, expected)


@pytest.mark.parametrize("jitter", [0.01, 0.15])
def test_random_durations_come_back_as_they_were(jitter: float) -> None:
    expected, actual = there_and_back(timeline("1f1b", 4, 16, jitter=jitter))
    np.testing.assert_equal(actual, expected)


def test_one_rank_one_microbatch_and_nothing_to_wait_for() -> None:
    alone = timeline("1f1b", 1, 1, times="F=1,B=2")
    assert len(idle_spans(alone)) == 0
    expected, actual = there_and_back(alone)
    np.testing.assert_equal(actual, expected)


def test_times_that_no_prediction_meets() -> None:
    """A measured run starts receives before sends, and a rank's clock may be off by a little."""
    made = timeline("1f1b", 3, 6)
    random = np.random.default_rng(1)
    start = made.start + random.normal(0, 1e-4, len(made.start))
    end = np.maximum(start, made.end + random.normal(0, 1e-4, len(made.end)))
    measured = Timeline(made.program, start, end, source="measured")
    columns = unpacked(packed(measured, drawn(measured).idle, ()))
    np.testing.assert_array_equal(start, columns["start"])
    np.testing.assert_array_equal(end, columns["end"])


def test_a_regular_step_takes_few_bytes() -> None:
    made = timeline("1f1b", 8, 64)
    found = drawn(made)
    assert len(made.program) > 2800
    assert len(packed(made, found.idle, found.critical)["data"]) < 20_000


def test_causes_fit_their_code() -> None:
    assert len(CAUSES) == 7  # assets/scene.js takes them by number
