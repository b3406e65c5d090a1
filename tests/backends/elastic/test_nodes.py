"""Two nodes on one machine, each with a torchrun of its own; one is killed, and the other goes on alone."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.backends.group import free_port
from tests.backends.launch.losses import STEPS, end, job, losses_of, quiet, start, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def node(port: int, folder: Path, number: int) -> subprocess.Popen[bytes]:
    return start(
        "torch.distributed.run", "--nnodes=1:2", "--nproc-per-node=2", "--max-restarts=3", "--rdzv-backend=c10d",
        f"--rdzv-endpoint=localhost:{port}", "--rdzv-id=two",
        f"--rdzv-conf=last_call_timeout=3,is_host={int(number == 0)}", "-m", "pipesim", "run", *job(folder),
        log=folder / f"node{number}.log",
    )  # fmt: skip


def test_a_lost_node(tmp_path: Path) -> None:
    """The curve over all steps is the one of a job that nobody disturbed, at another layout."""
    expected, losses, port = quiet(tmp_path), tmp_path / "losses", free_port()
    nodes = [node(port, tmp_path, 0)]
    try:
        nodes.append(node(port, tmp_path, 1))
        wait_for(lambda: len(losses_of(losses)) >= 5)
        nodes[1].send_signal(signal.SIGKILL)
        assert nodes[0].wait(200) == 0, (tmp_path / "node0.log").read_text()[-3000:]
    finally:
        end(nodes)
    said = (tmp_path / "node0.log").read_text()
    assert "at pp=1,tp=2,dp=1" in said
    assert "going on from step-" in said
    assert losses_of(losses) == pytest.approx(expected, rel=1e-9)
    assert len(expected) == STEPS
