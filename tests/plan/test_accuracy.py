"""Predicted against measured step times: what `benchmarks/accuracy` shows of all rows, held on every fifth."""

import json
from pathlib import Path
from statistics import mean

import pytest

from benchmarks.accuracy.scores import Run, Score, by_source, schedule_ratios, score
from pipesim.plan.predict import predict_row

DATA = Path(__file__).parents[1] / "data"
WORST = 0.12


def predicted(file: str) -> list[Run]:
    """Of sources with many rows every fifth is tried."""
    rows = [json.loads(line) for line in (DATA / file).read_text("utf-8").splitlines()]
    counts = {source: sum(row["source_id"] == source for row in rows) for source in {r["source_id"] for r in rows}}
    few = [row for number, row in enumerate(rows) if counts[row["source_id"]] <= 41 or number % 5 == 0]
    return [Run(row, found.step_time_s, found.memory_gb) for row in few for found in [predict_row(row)]]


@pytest.fixture(scope="module")
def scores() -> dict[str, Score]:
    runs = predicted("training.jsonl")
    return {source: score(source, found) for source, found in by_source(runs).items()}


def test_the_mean_over_sources_of_the_median_error_is_small(scores: dict[str, Score]) -> None:
    assert len(scores) == 13
    assert mean(one.median for one in scores.values()) <= 0.06


def test_no_source_is_far_off(scores: dict[str, Score]) -> None:
    assert {one.source: one.median for one in scores.values() if one.median > WORST} == {}


def test_layouts_are_ranked_as_measured(scores: dict[str, Score]) -> None:
    """Pairs measured less than 5 % apart are as near as repeats of one run."""
    assert mean(one.clear for one in scores.values() if one.clear is not None) >= 0.78


def test_memory_is_near_what_was_measured(scores: dict[str, Score]) -> None:
    assert max(one.memory for one in scores.values() if one.memory is not None) <= 0.10


def test_schedules_on_one_machine_compare_as_measured() -> None:
    rows = [json.loads(line) for line in (DATA / "training.jsonl").read_text("utf-8").splitlines()]
    runs = [Run(row, predict_row(row).step_time_s) for row in rows if row["source_id"].startswith("zb-")]
    off = sorted(abs(error) for error, _ in schedule_ratios(runs))
    assert off[len(off) // 2] <= 0.03


def test_korthikanti_s_eight_runs() -> None:
    """2205.05198, table 5: Calculon's error on them is 3.65 % in the mean, with parameters fitted to that machine."""
    errors = [run.error for run in predicted("korthikanti.jsonl")]
    assert len(errors) == 8
    assert mean(map(abs, errors)) <= 0.08
    assert max(map(abs, errors)) <= 0.13
