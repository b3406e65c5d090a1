"""Predictions held to measured rows: each source's median error, and the ranking of layouts."""

import json
from collections import defaultdict
from itertools import combinations
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest

from pipesim.errors import PipesimError
from pipesim.serving.rows import is_inference, predict_inference

ROWS = [
    json.loads(line) for line in (Path(__file__).parents[1] / "data/serving/inference.jsonl").read_text().splitlines()
]
AT_MOST = {"gpt_guide": 0.10, "bert_guide": 0.12, "bloom": 0.10, "gpt-fast": 0.10, "TensorRT-LLM": 0.10, "nim": 0.12,
           "A100_v4": 0.10, "H100_v5": 0.14, "H200_v5": 0.15}  # fmt: skip


def test_there_are_495_rows() -> None:
    assert len(ROWS) == 495
    assert all(is_inference(row) for row in ROWS)
    assert not is_inference({"seq": 2048, "global_batch": 64, "framework": "megatron"})


@pytest.mark.slow
def test_every_source_is_predicted() -> None:
    errors: dict[str, list[float]] = defaultdict(list)
    groups: dict[tuple[object, ...], list[tuple[float, float]]] = defaultdict(list)
    for row in ROWS:
        source = next(name for name in AT_MOST if name in row["source"])
        predicted = predict_inference(row)
        case = tuple(
            row.get(key) for key in ("model", "gpu", "engine", "precision", "batch", "input_len", "output_len")
        )
        for key, measured in row["measured"].items():
            errors[source].append(abs(predicted[key] / measured - 1))
            groups[(*case, key)].append((predicted[key], measured))
    medians = {source: median(found) for source, found in errors.items()}
    assert {source for source, error in medians.items() if error > AT_MOST[source]} == set()
    assert mean(medians.values()) < 0.08
    assert tau(groups) > 0.9


def tau(groups: dict[tuple[object, ...], list[tuple[float, float]]]) -> float:
    signs = [
        1 if (p > q) == (m > n) else -1
        for pairs in groups.values()
        for (p, m), (q, n) in combinations(pairs, 2)
        if abs(m / n - 1) > 0.02
    ]
    return mean(signs)


@pytest.mark.parametrize("kind", sorted({row["kind"] for row in ROWS}))
def test_a_row_of_each_kind_gets_the_keys_it_measures(kind: str) -> None:
    row = min((row for row in ROWS if row["kind"] == kind), key=lambda row: row["output_len"] * row.get("batch", 500))
    predicted = predict_inference(row)
    assert set(row["measured"]) <= set(predicted)
    for key, measured in row["measured"].items():
        assert predicted[key] == pytest.approx(measured, rel=0.35)


def test_pipeline_rows_are_predicted_too() -> None:
    row: dict[str, Any] = next(row for row in ROWS if row["kind"] == "latency_total") | {"tp": 4, "pp": 2, "batch": 8}
    two = predict_inference(row)["latency_s"]
    one = predict_inference(row | {"tp": 8, "pp": 1})["latency_s"]
    assert 0.5 * one < two < 3 * one


def test_a_row_that_cannot_be_understood_says_so() -> None:
    with pytest.raises(PipesimError, match="unknown GPU 'abacus'"):
        predict_inference(ROWS[0] | {"gpu": "abacus"})
    with pytest.raises(PipesimError, match="unknown weight format 'ternary'"):
        predict_inference(ROWS[0] | {"precision": "ternary"})
    with pytest.raises(PipesimError, match="batch='many' must be a whole number"):
        predict_inference(ROWS[0] | {"batch": "many"})
