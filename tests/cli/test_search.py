"""`pipesim search`: what it prints, writes and refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipesim.cli.app import main
from pipesim.costs.plain import parse_costs
from pipesim.ir.check import check
from pipesim.ir.formats import read_schedule
from pipesim.ir.placement import linear
from pipesim.plan.search.limit import Limit
from pipesim.plan.search.rivals import rivals
from pipesim.plan.search.setting import Setting

QUICK = ["--rounds", "2", "--exact", "2s"]
COSTS = ["--costs", "F=10ms,I=12ms,W=8ms,C=1ms"]


@pytest.mark.slow
def test_json_and_the_file_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "best.json"
    asked = ["search", "-p", "2", "-m", "4", "-v", "2", "--placement", "vee", *COSTS, "--memory-limit", "1.5mb", *QUICK]
    assert main([*asked, "--out", str(out), "--json"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert {"makespan_s", "lower_bound_s", "gap", "peak_activations", "families"} <= set(found)
    assert found["makespan_s"] >= found["lower_bound_s"] * (1 - 1e-9)
    assert max(found["peak_activations"]) <= 1.5
    assert "best" in printed.err
    assert "bound" in printed.err
    fitting = [one for one in found["families"] if one["fits"] and one["placement"] == "vee"]
    assert all(one["ratio"] >= 1 for one in fitting)
    schedule = read_schedule(out)
    check(schedule, max_activations=1.5)
    assert main(["simulate", str(out), *COSTS, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["makespan_s"] == pytest.approx(found["makespan_s"])


@pytest.mark.parametrize("suffix", [".csv", ".txt"])
def test_other_files(tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"best{suffix}"
    assert main(["search", "-p", "2", "-m", "3", "-v", "1", *COSTS, *QUICK, "--out", str(out)]) == 0
    check(read_schedule(out))


def test_the_best_of_the_usual_placements(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "-p", "2", "-m", "4", *COSTS, *QUICK]) == 0
    printed = capsys.readouterr()
    assert "placement" in printed.out
    assert "families on the same costs" in printed.out
    assert {line.split(":")[0] for line in printed.err.splitlines()} == {"linear", "vee", "looped"}


def test_a_costs_file_decides_how_many_stages_there_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "costs.json"
    data = {"format": "pipesim-costs", "F": [1, 1, 1, 2], "I": [1, 1, 1, 2], "W": [1, 1, 1, 2], "latency_s": 0.1}
    file.write_text(json.dumps(data | {"activation_bytes": [1e9] * 4, "released_at_input": [0.5] * 4}))
    asked = ["search", "-p", "2", "-m", "4", "--costs", str(file), *QUICK, "--json"]
    assert main([*asked, "--memory-limit", "5GB"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["placement"]["ranks_of_stages"]) == 4
    assert max(found["peak_memory_bytes"]) <= 5e9
    assert main([*asked, "--memory-limit", "1GB"]) == 2
    assert "the smallest limit that can be met is" in capsys.readouterr().err


def test_the_smallest_limit_is_that_of_the_placement_that_needs_least(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of four stages the first and the last hold most: the V puts both on rank 0, the loop does not."""
    file = tmp_path / "costs.json"
    data = {
        "format": "pipesim-costs",
        "F": [1] * 4,
        "I": [1] * 4,
        "W": [1] * 4,
        "activation_bytes": [3e9, 1e9, 1e9, 3e9],
    }
    file.write_text(json.dumps(data | {"released_at_input": [0.5] * 4}))
    assert main(["search", "-p", "2", "-m", "4", "--costs", str(file), *QUICK, "--memory-limit", "1GB"]) == 2
    assert "the smallest limit that can be met is 4GB" in capsys.readouterr().err


def test_costs_of_a_file_that_are_all_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "costs.json"
    file.write_text(json.dumps({"format": "pipesim-costs", "F": [0, 0], "I": [0, 0], "W": [0, 0]}))
    assert main(["search", "-p", "2", "-m", "4", "--costs", str(file)]) == 2
    assert "nothing takes time" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-p", "4", "-m", "8", *COSTS, "--memory-limit", "0.5mb"], "the smallest limit that can be met is 1mb"),
        (["-p", "4", "-m", "8", *COSTS, "--memory-limit", "lots"], "memory limit"),
        (["-p", "4", "-m", "8", *COSTS, "--memory-limit", "60GB"], "the costs know no bytes"),
        (["-p", "4", "-m", "8", *COSTS, "--placement", "circle"], "placement circle"),
        (["-p", "4", "-m", "8", *COSTS, "--release", "never"], "--release never"),
        (["-p", "4", "-m", "8", *COSTS, "--time-limit", "soon"], "time limit"),
        (["-p", "4", "-m", "8", *COSTS, "--start-from", "zb-w"], "no schedule 'zb-w'"),
        (["-p", "4", "-m", "8"], "no times given"),
        (["-p", "4", "-m", "8", "--costs", "F=0,I=0,W=0"], "nothing takes time"),  # divided by the best time
        (["-p", "90000", "-m", "90000", *COSTS, "--time-limit", "1s"], "takes up to 1024"),  # ran without end
        (["-p", "2", "-m", "4", *COSTS, "-v", "1000000"], "a search takes up to 4096"),  # the same
        (["-p", "4", "-m", "800000", *COSTS], "9600000 actions: a search takes up to 2000000"),
        (["-p", "4", "-m", "8", "-v", "2", "--costs", "F=5e-324,I=0,W=0"], "nothing takes time"),  # half of it is 0
        (["-p", "4", *COSTS], "no number of microbatches"),
        (["-p", "4", "-m", "8", "--costs", "F=1:2:3,I=1:2:3,W=1:2:3"], "3 values"),
        (["-p", "4", "-m", "8", *COSTS, "--out", "best.html"], "best.html"),
    ],
)
def test_what_cannot_work_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert len(printed.err.splitlines()) == 1


def _interrupted(arguments: list[str], word: str) -> tuple[int, str, str]:
    """Exit status, output and errors of a search that gets Ctrl-C once it has printed a word on stderr."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pipesim", "search", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert process.stderr is not None
    errors = ""
    for line in process.stderr:
        errors += line
        if word in line:
            break
    process.send_signal(signal.SIGINT)
    output, more = process.communicate(timeout=100)
    return process.returncode, output, errors + more


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "word"),
    [
        (["--placement", "vee", "--exact", "0"], "improving"),
        (["--placement", "linear", "-v", "1", "--rounds", "12", "--exact", "300s"], "exact solver"),
        (["--placement", "vee", "--may-recompute", "5%"], "constructing"),  # went on with the next share
        (["--rearrange"], "linear"),  # ended without a result
    ],
)
def test_ctrl_c_writes_the_best_so_far(tmp_path: Path, more: list[str], word: str) -> None:
    out = tmp_path / "best.json"
    asked = ["-p", "4", "-m", "9", *COSTS, "--memory-limit", "2mb", "--time-limit", "900s", "--out", str(out), "--json"]
    status, output, errors = _interrupted([*asked, *more], word)
    assert status == 0
    found = json.loads(output)
    assert found["interrupted"] is True
    assert found["makespan_s"] < 0.9  # one microbatch at a time: 0.972 s
    assert "ending with the best so far" in errors
    assert "Traceback" not in errors
    check(read_schedule(out), max_activations=None if "--may-recompute" in more else 2)


def test_families_are_left_out_when_nobody_waits_for_them() -> None:
    setting = Setting(linear(4), 9, parse_costs("F=10ms,I=12ms,W=8ms,C=1ms"), Limit(2, "microbatches"))
    answers = iter([True] * 5 + [False])
    assert 0 < len(rivals(setting, {}, goes_on=lambda: next(answers))) <= 5
