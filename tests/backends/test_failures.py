"""A job that goes wrong ends soon, in one message, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipesim.backends.job.local import CannotStart, JobFailed, JobOptions, run_local
from pipesim.backends.job.worker import Context
from pipesim.ir.check import BrokenSchedule, check_program
from pipesim.ir.formats.torch_csv import dumps_program, loads_program
from pipesim.ir.lower import lower
from pipesim.schedules.lookup import build

pytestmark = pytest.mark.slow

SOON_S = 10


def pipesim(*arguments: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "pipesim", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(folder)},
    )


@pytest.fixture
def temporary(tmp_path: Path) -> Iterator[Path]:
    """A folder for temporary files that must be empty afterwards."""
    folder = tmp_path / "temporary" / ("longer than the path of a socket may be, " * 2)  # on some machines it is
    folder.mkdir(parents=True)
    yield folder
    assert list(folder.rglob("*")) == []


def workers(parent: psutil.Process, count: int) -> list[psutil.Process]:
    """The processes of the ranks: they fork from the fork server."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for server in parent.children():
            if len(server.children()) == count:
                return server.children()
        time.sleep(0.05)
    raise AssertionError("the job did not start")


def test_killing_a_rank_ends_the_job(temporary: Path) -> None:
    running = pipesim(
        "run", "1f1b", "-p", "4", "-m", "16", "--emulate", "F=20ms,B=20ms", "--steps", "100", folder=temporary
    )
    ranks = workers(psutil.Process(running.pid), 4)
    everyone = psutil.Process(running.pid).children(recursive=True)
    time.sleep(1.5)
    os.kill(ranks[2].pid, signal.SIGKILL)
    begun = time.monotonic()
    _, said = running.communicate(timeout=120)
    assert time.monotonic() - begun < SOON_S
    assert running.returncode == 2
    assert said.startswith("pipesim: error: rank ")
    assert "its process ended (killed by SIGKILL)" in said
    assert said.count("\n") == 1
    psutil.wait_procs(everyone, timeout=5)
    assert [one for one in everyone if one.is_running() and one.status() != psutil.STATUS_ZOMBIE] == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_ending_the_launcher_ends_the_ranks(how: signal.Signals, tmp_path: Path) -> None:
    running = pipesim(
        "run", "1f1b", "-p", "2", "-m", "16", "--emulate", "F=20ms,B=20ms", "--steps", "1000", folder=tmp_path
    )
    parent = psutil.Process(running.pid)
    workers(parent, 2)
    everyone = parent.children(recursive=True)
    time.sleep(1)
    running.send_signal(how)
    running.communicate(timeout=120)
    assert running.returncode == (130 if how == signal.SIGINT else -signal.SIGKILL)
    gone, left = psutil.wait_procs(everyone, timeout=SOON_S)
    assert [one for one in left if one.status() != psutil.STATUS_ZOMBIE] == []
    assert len(gone) >= 2


STAGES = """
import torch
from torch import nn

class Broken(nn.Module):
    def __init__(self, stage):
        super().__init__()
        self.stage, self.linear, self.calls = stage, nn.Linear(4, 4), 0

    def forward(self, x):
        self.calls += 1
        if self.stage == 1 and self.calls == 3:
            raise ValueError("the third call is one too many")
        return self.linear(x)

def stages(count):
    return [Broken(stage) for stage in range(count)]

def batch(samples, step):
    return torch.zeros(samples, 4), torch.zeros(samples, 4)

def loss(outputs, targets):
    return (outputs - targets).square().mean()
"""


def test_an_error_in_a_stage_ends_the_job(temporary: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(STAGES)
    running = pipesim(
        "run", "1f1b", "-p", "3", "-m", "4", "--model", f"{tmp_path / 'mine.py'}:stages", folder=temporary
    )
    _, said = running.communicate(timeout=120)
    assert running.returncode == 2
    assert said == "pipesim: error: rank 1 failed at 1F2: ValueError: the third call is one too many\n"


def reordered(path: Path) -> Path:
    """1F1B with transfers, two receives of rank 1 the wrong way round."""
    lines = dumps_program(lower(build("1f1b", ranks=2, microbatches=3))).splitlines()
    cells = lines[1].split(",")
    first, second = (cells.index(f"1RECV_F{microbatch}") for microbatch in (0, 1))
    cells[first], cells[second] = cells[second], cells[first]
    moved = cells.pop(second)
    cells.insert(first + 1, moved)
    path.write_text("\n".join([lines[0], ",".join(cells)]) + "\n")
    return path


def test_a_reordered_channel_is_refused_and_stops_when_forced(temporary: Path, tmp_path: Path) -> None:
    file = str(reordered(tmp_path / "reordered.csv"))
    refused = pipesim("run", file, "--emulate", "F=1ms,B=1ms", folder=temporary)
    _, said = refused.communicate(timeout=120)
    assert refused.returncode == 2
    assert "rank 0 sends 0SEND_F0 before 0SEND_F1, but rank 1 receives 1RECV_F1 first" in said
    forced = pipesim("run", file, "--emulate", "F=1ms,B=1ms", "--no-check", "--timeout", "2", folder=temporary)
    _, said = forced.communicate(timeout=120)
    assert forced.returncode == 2
    first, *waits = said.splitlines()
    assert first == "pipesim: error: no progress within the timeout; who waits for what:"
    assert [line.split(":")[0] for line in waits] == ["  rank 0 at 0SEND_F0", "  rank 1 at 1RECV_F1"]


def test_a_program_without_a_receive_is_refused() -> None:
    program = lower(build("1f1b", ranks=2, microbatches=3))
    check_program(program)
    first, second = dumps_program(program).splitlines()
    without = ",".join(cell for cell in second.split(",") if cell != "1RECV_F2")
    with pytest.raises(BrokenSchedule, match="rank 1 does not receive the result of 0F2"):
        loads_program(f"{first}\n{without}", "broken.csv")


def _hang(context: Context) -> None:
    import torch.distributed as dist

    if context.rank == 0:
        dist.barrier()
    else:
        time.sleep(1000)


def _value(context: Context, factor: int) -> int:
    return context.rank * factor


def _raise(context: Context) -> None:
    if context.rank == 1:
        raise KeyError("no such thing")
    time.sleep(30)


def test_local_jobs_return_values_and_report_errors() -> None:
    assert run_local(3, _value, 5) == [0, 5, 10]
    with pytest.raises(JobFailed, match="rank 1 failed: KeyError: 'no such thing'"):
        run_local(2, _raise)
    with pytest.raises(JobFailed, match="rank 0 failed"):  # long before the other rank has slept enough
        run_local(2, _hang, options=JobOptions(timeout_s=1))


def test_a_job_that_cannot_start_says_why() -> None:
    inner: Any = lambda context: None  # noqa: E731
    with pytest.raises(CannotStart, match=r"give a function of a module .* such as my_module\.py:stages"):
        run_local(2, inner)
    with pytest.raises(CannotStart, match=r"no CUDA device is available; use --device cpu|GPUs, there are"):
        run_local(64, _value, 1, options=JobOptions(device="cuda"))
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CannotStart, match=f"port {port} is in use; give another --port"):
            run_local(2, _value, 1, options=JobOptions(port=port))


def test_runs_as_it_is_under_torchrun(tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node"]
    arguments = ["-m", "pipesim", "run", "1f1b", "-p", "2", "-m", "4", "--model", "tiny-llama", "--steps", "2"]
    done = subprocess.run(
        [*torchrun, "2", *arguments, "--timeline", str(tmp_path / "t.jsonl"), "--json"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('"name": "1f1b"') == 1
    assert (tmp_path / "t.jsonl").exists()
    wrong = subprocess.run([*torchrun, "3", *arguments], capture_output=True, text=True, timeout=100, check=False)
    assert wrong.returncode != 0
    assert (
        "torchrun started 3 processes for a schedule of 2 ranks: use --nproc-per-node 2, or --ranks 3" in wrong.stderr
    )
