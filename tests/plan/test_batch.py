"""Many rows: order kept, a bad one only spoils its own line, the same on several processes."""

import json

import pytest

from pipesim.plan.batch import FEW, predict_line, predict_lines

GOOD = (
    '{"id": "good", "layers": 4, "hidden": 512, "vocab": 1000, "seq": 256, "gpu": "a100", "num_gpus": 2, "pp": 2, '
    '"global_batch": 8}'
)
LINES = [GOOD, "not json", "[1, 2]", '{"id": 7, "gpu": "a100"}', '{"id": "deep", "seq": ' + "[" * 3000, GOOD]


def test_a_bad_row_gets_an_error_in_its_own_line() -> None:
    found = list(predict_lines(LINES))
    assert [one.get("id") for one in found] == ["good", None, None, 7, None, "good"]
    assert ["error" in one for one in found] == [False, True, True, True, True, False]
    assert found[1]["error"] == "not JSON: Expecting value at character 0"
    assert found[2]["error"] == "a row is a JSON object, not list"
    assert "seq" in found[3]["error"]
    assert found[0] == found[5]


def test_a_prediction_has_the_fields_of_the_docs() -> None:
    found = predict_line(GOOD)
    assert list(found) == [
        "id",
        "step_time_s",
        "tokens_per_s_per_gpu",
        "mfu",
        "memory_gb",
        "bubble_fraction",
        "exposed_comm_s",
        "assumed",
    ]
    json.dumps(found, allow_nan=False)


def test_what_nobody_thought_of_is_an_error_of_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(row: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("pipesim.plan.batch.predict_row", fails)
    assert predict_line(GOOD) == {"id": "good", "error": "ZeroDivisionError: division by zero"}


@pytest.mark.slow
def test_several_processes_give_the_same_lines_in_order() -> None:
    lines = [line.replace('"good"', str(number)) for number in range(FEW + 40) for line in (GOOD,)]
    assert list(predict_lines(lines, workers=2)) == list(predict_lines(lines))
