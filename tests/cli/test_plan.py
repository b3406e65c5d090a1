"""`pipesim plan`: what it prints, writes and refuses."""

from __future__ import annotations

import json
import tomllib

import pytest

from pipesim.cli.app import main
from pipesim.ir.formats import read_schedule

SMALL = ["--model", "llama-3-8b", "--cluster", "dgx-h100:1", "--global-batch", "16", "--seq", "4096", "--cp", "1"]


def test_json_has_counts_ranking_and_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *SMALL, "--top", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    counts = found["counts"]
    assert counts["enumerated"] == sum(counts[name] for name in ("too_large", "bounded", "unsuitable", "simulated"))
    times = [one["step_time_s"] for one in found["ranking"]]
    assert times == sorted(times)
    assert len(times) == 3
    for one in found["ranking"]:
        assert sum(one["spent_s"].values()) == pytest.approx(one["step_time_s"])
    assert found["commands"]["simulate"].startswith("pipesim simulate")
    assert found["complete"]


@pytest.mark.slow
def test_tables_files_and_chart(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [*SMALL, "--pp", "2,4", "--top", "4", "--out", str(tmp_path / "plan.html"), "--save", str(tmp_path / "won")]
    assert main(["plan", *given]) == 0
    text = capsys.readouterr().out
    for part in ("choices:", "excluded by their bound", "its largest loss is", "the runner-up is", "Megatron-LM:"):
        assert part in text
    assert "choices simulated" in (tmp_path / "plan.html").read_text()
    schedule = read_schedule(tmp_path / "won" / "schedule.json")
    toml = tomllib.loads((tmp_path / "won" / "torchtitan.toml").read_text())
    assert toml["parallelism"]["pipeline_parallel_degree"] == schedule.ranks
    command = (tmp_path / "won" / "commands.sh").read_text().splitlines()[0]
    assert main([*command.split()[1:], "--json"]) == 0
    plan = json.loads((tmp_path / "won" / "plan.json").read_text())
    simulated = json.loads(capsys.readouterr().out)
    assert simulated["step_time_s"] == pytest.approx(plan["shared_step_time_s"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--tp", "3"], "tp [3] does not divide 8 GPUs; 1, 2, 4, 8 do"),
        (["--tp", "8", "--pp", "4"], "has tp [8], pp [4]; leave out tp or pp"),
        (["--micro-batch", "3"], "no layout of 8 GPUs, global batch 16 has micro_batch [3]; leave out micro_batch"),
        (["--tp", "two"], "--tp two: not whole numbers from 1; expected e.g. --tp 1,2,4"),
        (["--schedules", "magic"], "schedule magic cannot be planned with"),
        (["--max-memory", "8GB"], "too much; what would fit: the GPU's whole memory or"),
        (["--zero", "4"], "zero_stage=4 is not a ZeRO stage"),
    ],
)
def test_what_cannot_be_planned(given: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *SMALL, *given]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_the_batch_must_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--model", "llama-3-8b", "--cluster", "dgx-h100:1"]) == 2
    assert "no --global-batch; give one, e.g. --global-batch 1024" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--slo", "ttft=1s"], "--slo without --serving"),
        (["--input", "5"], "--input without --serving"),
        (["--serving", "--zero", "1"], "--zero with --serving"),
        (["--save", "/dev/null/plan"], "/dev/null is not a folder"),
    ],
)
def test_options_that_would_do_nothing(given: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--model", "llama-3-8b", "--cluster", "dgx-h100:1", *given]) == 2
    assert says in capsys.readouterr().err
