"""`pipesim run --checkpoint` with all that a run may give, in pieces and in one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipesim.backends.checkpoint.folder import steps_in
from pipesim.cli.app import main
from pipesim.timeline_file import load_timeline

TINY = ["run", "1f1b", "--model", "tiny-llama", "--seq", "8", "--dtype", "fp64", "--microbatches", "2"]
pytestmark = pytest.mark.timeout(300)


def losses(path: Path) -> list[float]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, len(rows) + 1))
    return [row["loss"] for row in rows]


def weights(folder: Path) -> dict[str, bytes]:
    found = {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}
    assert found
    return found


@pytest.mark.slow
def test_in_pieces_with_all_outputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The losses and, bit for bit, the saved weights are those of a run in one piece."""
    words = [*TINY, "--layout", "pp=2,dp=2", "--accumulate", "2", "--split", "3,5", "--no-overlap"]
    whole, pieces = tmp_path / "whole", tmp_path / "pieces"
    assert main([*words, "--steps", "5", "--save", str(whole), "--metrics", f"{whole}.jsonl"]) == 0
    words += ["--checkpoint", str(tmp_path / "run"), "--metrics", f"{pieces}.jsonl"]
    assert main([*words, "--steps", "2"]) == 0
    files = ["--chart", f"{pieces}.html", "--timeline", f"{pieces}.npz", "--trace", f"{pieces}.json"]
    capsys.readouterr()
    assert main([*words, *files, "--steps", "5", "--save", str(pieces), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["losses"] == losses(Path(f"{pieces}.jsonl"))[2:]
    assert losses(Path(f"{pieces}.jsonl")) == losses(Path(f"{whole}.jsonl"))
    assert weights(pieces) == weights(whole)
    assert load_timeline(Path(f"{pieces}.npz")).program.ranks == 2
    assert "<html" in Path(f"{pieces}.html").read_text()
    assert json.loads(Path(f"{pieces}.json").read_text())["traceEvents"]

    words = [*TINY, "--checkpoint", str(tmp_path / "tuned"), "--layout", "tp=2", "--model", str(whole)]
    tuned = ["--metrics", str(tmp_path / "tuned.jsonl"), "--steps", "1"]
    assert main([*words, *tuned]) == 0  # weights of a folder, then checkpoints of their own
    assert losses(tmp_path / "tuned.jsonl")[0] < losses(Path(f"{whole}.jsonl"))[0]


@pytest.mark.slow
def test_a_pipeline_without_a_layout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It goes on at a layout, and says so when nothing is left to do."""
    kept, metrics = ["--checkpoint", str(tmp_path / "run")], ["--metrics", str(tmp_path / "losses")]
    assert main([*TINY, "--ranks", "2", "--steps", "1", *kept, *metrics]) == 0
    assert main([*TINY, "--layout", "pp=1", "--steps", "2", *kept, *metrics]) == 0
    assert len(losses(tmp_path / "losses")) == 2
    capsys.readouterr()
    assert main([*TINY, "--layout", "pp=1", "--steps", "2", *kept]) == 0
    assert capsys.readouterr().out == "all 2 steps are done\n"


STAGES = """
import torch
from torch import nn

def stages(count):
    return [nn.Linear(4, 4) for _ in range(count)]

def batch(samples, step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(samples, 4, generator=generator), torch.randn(samples, 4, generator=generator)

def loss(outputs, targets):
    return nn.functional.mse_loss(outputs, targets)
"""


@pytest.mark.slow
def test_stages_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(STAGES)
    words = ["run", "1f1b", "--ranks", "2", "--microbatches", "2", "--model", f"{tmp_path / 'mine.py'}:stages"]
    whole = [*words, "--metrics", str(tmp_path / "whole"), "--checkpoint", str(tmp_path / "one")]
    assert main([*whole, "--steps", "4"]) == 0
    pieces = [*words, "--metrics", str(tmp_path / "pieces"), "--checkpoint", str(tmp_path / "run")]
    assert main([*pieces, "--steps", "2"]) == 0
    assert main([*pieces, "--steps", "4"]) == 0
    assert losses(tmp_path / "pieces") == losses(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_local_job_that_is_asked_to_end(number: signal.Signals, tmp_path: Path) -> None:
    """All its processes get what a terminal sends to all; the job goes on later."""
    metrics, run = tmp_path / "losses", tmp_path / "run"
    words = [*TINY, "--ranks", "2", "--steps", "100000", "--checkpoint", str(run), "--metrics", str(metrics)]
    words += ["--checkpoint-every", "100000", "--max-restarts", "2"]
    running = subprocess.Popen(
        [sys.executable, "-m", "pipesim", *words], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    until = time.monotonic() + 100
    while not (metrics.exists() and len(losses(metrics)) > 3) and time.monotonic() < until:
        time.sleep(0.1)
    if number == signal.SIGINT:
        os.killpg(running.pid, number)
    else:
        running.send_signal(number)
    _, said = running.communicate(timeout=100)
    assert running.returncode == 75, said[-3000:]
    done = len(losses(metrics))
    assert f"after {done} steps: a checkpoint has them" in said
    assert list(steps_in(run)) == [done]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--emulate", "F=1ms,B=2ms"], "--emulate with --layout or --checkpoint"),
        (["--dynamic-shapes"], "--dynamic-shapes with --layout or --checkpoint"),
        (["--runtime", "torch"], "--runtime torch with --checkpoint"),
        (["--checkpoint-every", "often"], "'often'"),
        (["-m", "3", "--accumulate", "2", "--layout", "pp=2", "--fallback", "dp=2"], "3 microbatches in 2 runs"),
    ],
)
def test_what_cannot_be_together(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = [] if "--layout" in words else ["--ranks", "2"]
    assert main([*TINY, *kept, "--checkpoint", str(tmp_path / "run"), *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
