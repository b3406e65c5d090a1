"""`run`, `profile` and `validate` as a user types them; jobs of two processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipesim.cli import main
from pipesim.timeline_file import load_timeline

SMALL = ("-p", "2", "-m", "4")


@pytest.mark.slow
def test_run_trains_and_writes_what_it_measured(tmp_path: Path, capsys: Any) -> None:
    timeline, chart, metrics = tmp_path / "t.jsonl", tmp_path / "c.html", tmp_path / "m.jsonl"
    status = main([
        "run", "zb-h1", *SMALL, "--model", "tiny-llama", "--steps", "4", "--lr", "0.01", "--json",
        "--timeline", str(timeline), "--chart", str(chart), "--metrics", str(metrics),
    ])  # fmt: skip
    printed = json.loads(capsys.readouterr().out)
    assert status == 0
    assert printed["source"] == "measured"
    assert len(printed["losses"]) == len(printed["step_s"]) == 4
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert [row["loss"] for row in rows] == printed["losses"]
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    loaded = load_timeline(timeline)
    assert loaded.source == "measured"
    assert loaded.step_time_s == pytest.approx(printed["step_time_s"])
    assert loaded.memory is not None
    assert "<html" in chart.read_text()[:200]


@pytest.mark.slow
def test_a_profile_is_what_simulate_takes(tmp_path: Path, capsys: Any) -> None:
    costs = tmp_path / "costs.json"
    assert main(["profile", "1f1b", *SMALL, "--model", "tiny-llama", "--repeats", "2", "--out", str(costs)]) == 0
    shown = capsys.readouterr().out
    assert "one microbatch on each stage" in shown
    made = json.loads(costs.read_text())
    for name in ("F", "B", "I", "W", "activation_bytes", "message_bytes", "weights_bytes"):
        assert len(made[name]) == 2
    assert made["message_bytes"] == [64 * 64 * 4] * 2  # seq × hidden × float32
    assert made["host_s"] > 0
    assert made["facts"]["all_reduce_s"]
    assert main(["simulate", "zb-h1", *SMALL, "--costs", str(costs), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["step_time_s"] > 0


@pytest.mark.slow
def test_validate_compares_and_judges(tmp_path: Path, capsys: Any) -> None:
    arguments = ["validate", "1f1b", *SMALL, "--emulate", "F=10ms,B=20ms", "--steps", "3", "--repeats", "3", "--json"]
    assert main([*arguments, "--tolerance", "50%", "--chart", str(tmp_path / "both.html")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["within_tolerance"] is True
    assert found["source"] == "emulated"
    assert found["predicted_s"] == pytest.approx(5 * 0.030, rel=0.1)
    assert set(found["kinds"]) == {"F", "B"}
    assert (tmp_path / "both.html").exists()
    assert main([*arguments, "--tolerance", "0%"]) == 1


@pytest.mark.slow
def test_torch_runs_the_same_schedule_to_the_same_losses(capsys: Any) -> None:
    arguments = [
        "run",
        "interleaved",
        *SMALL,
        "-v",
        "2",
        "--model",
        "tiny-llama",
        "--steps",
        "3",
        "--dtype",
        "fp64",
        "--json",
    ]
    found = []
    for runtime in ("pipesim", "torch"):
        assert main([*arguments, "--runtime", runtime]) == 0
        found.append(json.loads(capsys.readouterr().out)["losses"])
    assert found[0] == pytest.approx(found[1], rel=1e-9)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "1f1b", *SMALL], "what should run?; give --model tiny-llama"),
        (["run", "1f1b", *SMALL, "--model", "big-llama"], "--model big-llama: no such model; expected tiny-llama"),
        (["run", "1f1b", *SMALL, "--model", "missing.py:stages"], "there is no file"),
        (["run", "1f1b", "-p", "16", "-m", "4", "--model", "tiny-llama"], "8 layers, which do not fill 16 stages"),
        (["run", "1f1b", *SMALL, "--emulate", "F=1ms"], "costs give only F"),
        (["run", "dualpipe", *SMALL, "--emulate", "F=1ms,I=1ms,W=1ms,FB=3ms"], "a fused pair's own time cannot be"),
        (["run", "bpipe", "-p", "4", "-m", "4", "--model", "tiny-llama"], "(X and L) can only be simulated"),
        (["run", "1f1b", *SMALL, "--model", "tiny-llama", "--comm", "pair"], "--comm pair on gloo"),
        (["run", "1f1b", *SMALL, "--model", "tiny-llama", "--device", "tpu"], "'tpu' is not one of 'cpu', 'cuda'"),
        (["run", "1f1b", *SMALL, "--model", "tiny-llama", "--runtime", "jax"], "--runtime torch cannot be 'jax'"),
        (["run", "chimera", *SMALL, "--model", "tiny-llama", "--runtime", "torch"], "two replicas of a stage"),
        (["run", "1f1b", *SMALL, "--model", "tiny-llama", "--dtype", "fp4"], "'fp4' is not one of"),
        (["run", "1f1b", *SMALL, "--model", "tiny-llama", "--chart", "/no/such/folder/c.html"], "/no/such/folder"),
        (["profile", "1f1b", *SMALL, "--model", "tiny-llama", "--out", "/no/such/folder/c.json"], "/no/such/folder"),
        (["validate", "1f1b", *SMALL, "--emulate", "F=1ms,B=1ms", "--tolerance", "much"], "much"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_said_in_a_line(arguments: list[str], words: str, capsys: Any) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
