"""`pipesim sweep`: any arguments of `simulate`, varied."""

from __future__ import annotations

import csv
import json

import pytest

from pipesim.cli.app import main

BASE = ["-p", "4", "--costs", "F=10ms,B=20ms,C=1ms"]


def test_every_combination_is_what_simulate_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "--vary", "schedule=1f1b,gpipe", "--vary", "microbatches=4:16:x2", *BASE, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["schedule"], row["microbatches"]) for row in rows] == [
        (name, m) for name in ("1f1b", "gpipe") for m in ("4", "8", "16")
    ]
    for row in rows:
        assert main(["simulate", row["schedule"], "-m", row["microbatches"], *BASE, "--json"]) == 0
        assert row["step_time_s"] == json.loads(capsys.readouterr().out)["step_time_s"]


def test_table_csv_and_chart(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--csv", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "chart.html"), "--metric", "bubble_fraction"]
    assert main(["sweep", "1f1b", "--vary", "m=4,8", "--vary", "comm=edge,blocking", *BASE, *files]) == 2
    assert main(["sweep", "1f1b", "--vary", "microbatches=4,8", "--vary", "comm=edge,blocking", *BASE, *files]) == 0
    text = capsys.readouterr().out
    assert "fastest" in text
    rows = list(csv.DictReader((tmp_path / "rows.csv").open()))
    assert [(row["microbatches"], row["comm"]) for row in rows] == [
        ("4", "edge"), ("4", "blocking"), ("8", "edge"), ("8", "blocking"),
    ]  # fmt: skip
    assert float(rows[0]["step_time_s"]) < float(rows[1]["step_time_s"])
    assert "bubble fraction" in (tmp_path / "chart.html").read_text()


def test_a_combination_that_cannot_be_is_said_in_its_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "interleaved", "--vary", "microbatches=4,9", *BASE, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows[0]["problem"] is None
    assert "interleaved cannot have microbatches 9" in rows[1]["problem"]


def test_nothing_that_can_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "--vary", "schedule=magic", *BASE, "-m", "4"]) == 2
    assert "none of 1 combinations can be; the first: no schedule 'magic'" in capsys.readouterr().err


@pytest.mark.slow
def test_many_run_in_processes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "1f1b", "--vary", "microbatches=1:40", *BASE, "--workers", "2", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 40
    assert all(row["problem"] is None for row in rows)
