"""Slurm: a batch script that starts torchrun on every node of the allocation."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import dataclass

from pipesim.backends.launch.torchrun import BadLaunch, Job, node_command

_HEAD = "$head"  # the first node, known when the job runs


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """What is asked of Slurm. warn_s: how long before the time limit USR1 is sent, to write a checkpoint."""

    nodes: int
    gpus_per_node: int
    time: str | None = None
    partition: str | None = None
    account: str | None = None
    warn_s: int = 120
    port: int = 29400


def batch_script(job: Job, allocation: Allocation) -> str:
    """A script for sbatch. Arguments and environment are quoted; one task a node, which is torchrun."""
    asked = {
        "job-name": job.name,
        "nodes": job.nnodes.replace(":", "-"),
        "ntasks-per-node": 1,
        "gpus-per-node": allocation.gpus_per_node,
        "time": allocation.time,
        "partition": allocation.partition,
        "account": allocation.account,
        "signal": f"USR1@{allocation.warn_s}",
        "requeue": "",
        "output": "%x-%j.out",
    }
    lines = ["#!/bin/bash"]
    for key, value in asked.items():
        if value is not None:
            lines.append(f"#SBATCH --{key}" + (f"={_one_line(str(value))}" if value != "" else ""))
    exports = [f"export {key}={shlex.quote(value)}" for key, value in sorted(job.environment.items())]
    words = node_command(job, allocation.gpus_per_node)
    command = " ".join(_quote(word, allocation.port) for word in words)
    return "\n".join(
        [
            *lines,
            "set -euo pipefail",
            *exports,
            'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
            f"srun --kill-on-bad-exit=1 {command}",
            "",
        ]
    )


def _quote(word: str, port: int) -> str:
    """Quote a word, except for what only the running job knows: its first node, size and number."""
    if word.startswith("--rdzv-endpoint="):
        return f'"--rdzv-endpoint={_HEAD}:{port}"'
    if word.startswith("--rdzv-id="):
        return '"--rdzv-id=$SLURM_JOB_ID"'
    return shlex.quote(word)


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
