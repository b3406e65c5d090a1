"""The Slurm script, run by bash with stand-ins of srun and scontrol: when it goes back in line, and that it goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipesim.backends.launch.slurm import Allocation, batch_script
from pipesim.backends.launch.torchrun import Job
from tests.backends.group import free_port
from tests.backends.launch.losses import MODEL, losses_of, quiet, wait_for

SCONTROL = """\
#!/bin/sh
if [ "$1" = show ]; then echo localhost; echo localhost; else echo "$@" >> "$LOG"; fi
"""

SRUN_THAT_ENDS = """\
#!/bin/sh
echo "srun $1" >> "$LOG"
exit "$STATUS"
"""

SRUN_THAT_WAITS = """\
#!/bin/bash
trap 'sleep 0.3; exit 75' USR1
echo ready >> "$LOG"
for i in $(seq 600); do sleep 0.1; done
"""

SRUN_OF_TWO_NODES = """\
#!{python}
import os, signal, subprocess, sys
words = sys.argv[sys.argv.index("bash"):]
nodes = [subprocess.Popen(words, env=os.environ | {{"SLURM_NODEID": str(number)}}) for number in range(2)]
signal.signal(signal.SIGUSR1, lambda number, frame: [one.send_signal(number) for one in nodes])
sys.exit(max(one.wait() for one in nodes))
"""


def tools(folder: Path, srun: str) -> dict[str, str]:
    """Stand-ins on the path; what they are called with goes into a file."""
    for name, text in (("scontrol", SCONTROL), ("srun", srun)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    log = folder / "calls"
    log.write_text("")
    here = {"PATH": f"{folder}:{os.environ['PATH']}", "LOG": str(log)}
    return os.environ | here | {"SLURM_JOB_ID": "77", "SLURM_JOB_NODELIST": "n[1-2]"}


def script(folder: Path, *arguments: str, nnodes: str = "2", gpus: int = 1, port: int = 29400) -> Path:
    path = folder / "job.sh"
    job = Job(arguments=arguments, nnodes=nnodes, python=sys.executable)
    path.write_text(batch_script(job, Allocation(gpus_per_node=gpus, requeues=3, port=port)))
    return path


@pytest.mark.parametrize(
    ("status", "restarts", "calls"),
    [
        (75, "0", "requeue 77\n"),
        (75, "2", "requeue 77\n"),
        (75, "3", ""),  # often enough
        (0, "0", ""),
        (1, "0", ""),
        (143, "0", ""),
    ],
)
def test_when_the_script_goes_back_in_line(status: int, restarts: str, calls: str, tmp_path: Path) -> None:
    env = tools(tmp_path, SRUN_THAT_ENDS) | {"STATUS": str(status), "SLURM_RESTART_COUNT": restarts}
    done = subprocess.run(["bash", script(tmp_path)], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status, done.stderr
    assert (tmp_path / "calls").read_text() == "srun --kill-on-bad-exit=0\n" + calls
    assert ("sbatch this script again" in done.stderr) == (status == 75 and not calls)


def test_the_warning_before_the_time_limit_is_passed_on(tmp_path: Path) -> None:
    """Slurm sends USR1 to the script alone; the status that counts is srun's, not that of the interrupted wait."""
    running = subprocess.Popen(["bash", script(tmp_path)], env=tools(tmp_path, SRUN_THAT_WAITS))
    calls = tmp_path / "calls"
    wait_for(lambda: "ready" in calls.read_text(), 60)
    time.sleep(0.3)  # until the script waits
    running.send_signal(signal.SIGUSR1)
    assert running.wait(60) == 75
    assert calls.read_text() == "ready\nrequeue 77\n"


def test_an_elastic_job_goes_on_without_a_node(tmp_path: Path) -> None:
    text = script(tmp_path, nnodes="1:2").read_text()
    assert "#SBATCH --nodes=1-2\n" in text
    assert "#SBATCH --no-kill\n" in text
    assert "srun --kill-on-bad-exit=0 --no-kill bash -c" in text
    assert 'nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")\n' in text


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_job_through_its_time_limit(tmp_path: Path) -> None:
    """Two nodes train, are warned, write a checkpoint; started again they end with the losses of one run."""
    losses = tmp_path / "losses"
    arguments = [
        "1f1b", "--layout", "pp=2", "--microbatches", "4", *MODEL, "--checkpoint", str(tmp_path / "run"),
        "--checkpoint-every", "100", "--metrics", str(losses),
    ]  # fmt: skip
    path = script(tmp_path, *arguments, port=free_port())
    env = tools(tmp_path, SRUN_OF_TWO_NODES.format(python=sys.executable))
    with (tmp_path / "log").open("wb") as log:
        running = subprocess.Popen(["bash", path], env=env, stdout=log, stderr=log)
        wait_for(lambda: len(losses_of(losses)) >= 2 or running.poll() is not None)
        running.send_signal(signal.SIGUSR1)
        assert running.wait(100) == 75, (tmp_path / "log").read_text()[-4000:]
        assert (tmp_path / "calls").read_text() == "requeue 77\n"
        again = subprocess.run(["bash", path], env=env, stdout=log, stderr=log, timeout=200, check=False)
    assert again.returncode == 0, (tmp_path / "log").read_text()[-4000:]
    assert losses_of(losses) == pytest.approx(quiet(tmp_path), rel=1e-9)
