"""Two nodes on one machine, each with a launcher of its own; one is killed, and the other goes on alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from pipesim.backends.launch.torchrun import DEFAULTS
from tests.backends.group import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
STEPS = 14
MODEL = ["--model", "tiny-llama", "--seq", "8", "--dtype", "fp64", "--steps", str(STEPS), "--timeout", "60"]


def start(*args: str, log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", *args], env=os.environ | DEFAULTS, stdout=file, stderr=file, start_new_session=True
        )


def node(port: int, folder: Path, number: int) -> subprocess.Popen[bytes]:
    return start(
        "torch.distributed.run", "--nnodes=1:2", "--nproc-per-node=2", "--max-restarts=3", "--rdzv-backend=c10d",
        f"--rdzv-endpoint=localhost:{port}", "--rdzv-id=two",
        f"--rdzv-conf=last_call_timeout=3,is_host={int(number == 0)}",
        "-m", "pipesim", "run", "1f1b", "--layout", "pp=2,dp=2", "--fallback", "pp=1,tp=2", "--microbatches", "2",
        *MODEL, "--checkpoint", str(folder / "run"), "--checkpoint-every", "2", "--metrics", str(folder / "losses"),
        log=folder / f"node{number}.log",
    )  # fmt: skip


def losses_of(path: Path) -> list[float]:
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [row["loss"] for row in rows]


def test_a_lost_node(tmp_path: Path) -> None:
    """The curve over all steps is the one of a job that nobody disturbed, at another layout."""
    alone = ["1f1b", "--layout", "pp=2", "--microbatches", "4", *MODEL, "--checkpoint", str(tmp_path / "alone")]
    quiet = start("pipesim", "run", *alone, "--metrics", str(tmp_path / "quiet"), log=tmp_path / "alone.log")
    assert quiet.wait(150) == 0, (tmp_path / "alone.log").read_text()
    port = free_port()
    nodes = [node(port, tmp_path, 0)]
    try:
        nodes.append(node(port, tmp_path, 1))
        until = time.monotonic() + 150
        while len(losses_of(tmp_path / "losses")) < 5 and time.monotonic() < until:
            time.sleep(0.1)
        nodes[1].send_signal(signal.SIGKILL)
        assert nodes[0].wait(200) == 0, (tmp_path / "node0.log").read_text()[-3000:]
    finally:
        for one in nodes:
            end(one)
    said = (tmp_path / "node0.log").read_text()
    assert "at pp=1,tp=2,dp=1" in said
    assert "going on from step-" in said
    assert losses_of(tmp_path / "losses") == pytest.approx(losses_of(tmp_path / "quiet"), rel=1e-9)
    assert len(losses_of(tmp_path / "losses")) == STEPS


def end(process: subprocess.Popen[bytes]) -> None:
    """With everything that it has started."""
    if process.poll() is None:
        family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
        for one in family:
            one.kill()
    process.wait()
