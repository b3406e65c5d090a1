"""`pipesim simulate` with times that vary."""

from __future__ import annotations

import json

import pytest

from pipesim.cli.app import main

BASE = ["simulate", "1f1b", "-p", "4", "-m", "8", "--costs", "F=10ms,B=20ms,C=1ms"]


def figures(given: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    assert main([*BASE, *given, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_samples_of_jitter(capsys: pytest.CaptureFixture[str]) -> None:
    found = figures(["--jitter", "5%", "--samples", "200"], capsys)
    sampled = found["sampled"]
    assert sampled["samples"] == 200
    assert sampled["step_time_s"]["p5"] < found["step_time_s"] < sampled["step_time_s"]["p95"]
    assert sampled == figures(["--jitter", "5%", "--samples", "200"], capsys)["sampled"]
    assert sampled != figures(["--jitter", "5%", "--samples", "200", "--seed", "1"], capsys)["sampled"]


def test_a_straggler_is_in_the_one_step_that_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    plain, slow = figures([], capsys), figures(["--straggler", "rank=2,x1.5"], capsys)
    assert "sampled" not in slow
    assert slow["per_rank"]["busy_s"] == pytest.approx([b * f for b, f in zip(
        plain["per_rank"]["busy_s"], (1, 1, 1.5, 1), strict=True
    )])  # fmt: skip


def test_lengths_from_a_file(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lengths.txt"
    path.write_text("100 " * 8 + "\n" + "50 150 " * 4 + "\n")
    found = figures(["--lengths", str(path), "--samples", "2"], capsys)
    assert found["step_time_s"] == figures([], capsys)["step_time_s"]
    assert found["sampled"]["step_time_s"]["p95"] > found["step_time_s"]


def test_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*BASE, "--jitter", "5%", "--samples", "50"]) == 0
    text = capsys.readouterr().out
    for part in ("50 sampled steps", "bubble fraction, rank 3", "critical path", "link 0-1"):
        assert part in text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--straggler", "rank=9,x2"], "straggler rank 9: there are ranks 0 to 3"),
        (["--samples", "0"], "--samples 0: expected 1 or more"),
        (["--jitter", "lots"], "jitter"),
    ],
)
def test_what_cannot_be(given: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*BASE, *given]) == 2
    assert message in capsys.readouterr().err
