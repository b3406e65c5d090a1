"""Slurm: a batch script that starts a node's command on every node of the allocation, and puts itself back in line."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import dataclass

from pipesim.backends.launch.torchrun import NODE, BadLaunch, Job, torchrun_words

_NODES = """\
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST"{first})
meet=$(sed 's/$/:{port}/' <<< "$nodes" | paste -sd, -)
"""

_RUN = """\
srun --kill-on-bad-exit=0 {options}bash -c 'exec "$0" -m {node} --node="$SLURM_NODEID" "$@"' \\
  {command} &
running=$!
"""

# A wait that a signal interrupts has to begin again; srun passes signals on to its tasks.
_WAIT = """\
asked=0
trap 'asked=1; kill -USR1 "$running"' USR1
while :; do
  status=0
  wait "$running" || status=$?
  [ "$asked" -eq 1 ] || break
  asked=0
done
"""

# Status 75: all is in a checkpoint, and the job goes on when it is started again.
_REQUEUE = """\
if [ "$status" -eq 75 ]; then
  if [ "${{SLURM_RESTART_COUNT:-0}}" -lt {most} ]; then
    echo "pipesim: back in line, to go on from the checkpoint" >&2
    scontrol requeue "$SLURM_JOB_ID"
  else
    echo "pipesim: requeued {most} times already: sbatch this script again to go on" >&2
  fi
fi
exit "$status"
"""


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """What is asked of Slurm.

    warn_s: how long before the time limit USR1 is sent, to write a checkpoint. requeues: how often the job puts
    itself back in line.
    """

    gpus_per_node: int
    time: str | None = None
    partition: str | None = None
    account: str | None = None
    warn_s: int = 120
    requeues: int = 16
    port: int = 29400


def batch_script(job: Job, allocation: Allocation) -> str:
    """A script for sbatch. Arguments and environment are quoted; one task a node. Raises BadLaunch."""
    exports = "".join(f"export {key}={shlex.quote(value)}\n" for key, value in sorted(job.environment.items()))
    words = [shlex.quote(word) for word in torchrun_words(job, allocation.gpus_per_node)]
    words[words.index(shlex.quote(f"--rdzv-id={job.name}"))] = '"--rdzv-id=$SLURM_JOB_ID"'
    command = " ".join([shlex.quote(job.python), '"--rdzv-endpoint=$meet"', *words])
    return "".join(
        [
            _head(job, allocation),
            exports,
            _NODES.format(port=allocation.port, first="" if job.elastic else " | head -n 1"),
            _RUN.format(node=NODE, options="--no-kill " if job.elastic else "", command=command),
            _WAIT,
            _REQUEUE.format(most=allocation.requeues),
        ]
    )


def _head(job: Job, allocation: Allocation) -> str:
    asked = {
        "job-name": job.name,
        "nodes": job.nnodes.replace(":", "-"),
        "ntasks-per-node": 1,
        "gpus-per-node": allocation.gpus_per_node,
        "time": allocation.time,
        "partition": allocation.partition,
        "account": allocation.account,
        "signal": f"B:USR1@{allocation.warn_s}",
        "requeue": "",
        "no-kill": "" if job.elastic else None,  # the job goes on when a node is lost
        "open-mode": "append",
        "output": "%x-%j.out",
    }
    lines = ["#!/bin/bash"]
    for key, value in asked.items():
        if value is not None:
            lines.append(f"#SBATCH --{key}" + (f"={_one_line(str(value))}" if value != "" else ""))
    return "\n".join([*lines, "set -uo pipefail", ""])


def _one_line(value: str) -> str:
    if not value.isprintable() or " " in value:
        raise BadLaunch(f"{value!r} cannot stand in a Slurm script", "one word without spaces works")
    return value


def submit(path: str) -> str:
    """Hand a script to sbatch; its answer. Raises BadLaunch."""
    try:
        done = subprocess.run(["sbatch", path], capture_output=True, text=True, timeout=120, check=False)
    except FileNotFoundError:
        raise BadLaunch("sbatch is not on this machine", f"submit {path} from a login node") from None
    if done.returncode:
        raise BadLaunch(f"sbatch refused {path}: {done.stderr.strip()}", "change the script or the options")
    return done.stdout.strip()
