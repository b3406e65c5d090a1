"""A small training job for launches that lose a host, and its losses when nobody disturbs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from pipesim.backends.launch.torchrun import DEFAULTS

STEPS = 14
MODEL = ["--model", "tiny-llama", "--seq", "8", "--dtype", "fp64", "--steps", str(STEPS), "--timeout", "60"]


def start(*args: str, log: Path, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    """`python -m …` in a session of its own, its output in a file."""
    with log.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", *args], env=os.environ | DEFAULTS | (env or {}), stdin=subprocess.DEVNULL,
            stdout=file, stderr=file, start_new_session=True,
        )  # fmt: skip


def job(folder: Path, *, fallback: bool = True) -> list[str]:
    """Arguments of `run`: a checkpoint every two steps, losses in a file, and layouts for four processes and two."""
    return [
        "1f1b", "--layout", "pp=2,dp=2", "--microbatches", "2", *MODEL, *(["--fallback", "tp=2"] if fallback else []),
        "--checkpoint", str(folder / "run"), "--checkpoint-every", "2", "--metrics", str(folder / "losses"),
    ]  # fmt: skip


def quiet(folder: Path) -> list[float]:
    """Losses of the job at another layout, with nobody disturbing it."""
    alone = ["1f1b", "--layout", "pp=2", "--microbatches", "4", *MODEL, "--checkpoint", str(folder / "alone")]
    running = start("pipesim", "run", *alone, "--metrics", str(folder / "quiet"), log=folder / "alone.log")
    assert running.wait(150) == 0, (folder / "alone.log").read_text()
    return losses_of(folder / "quiet")


def losses_of(path: Path) -> list[float]:
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [row["loss"] for row in rows]


def wait_for(condition: Callable[[], bool], seconds: float = 150) -> None:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.1)


def node_of(port: int, number: int) -> psutil.Process:
    """The process of a node, wherever it was started."""
    for one in psutil.process_iter(["cmdline"]):
        words = one.info["cmdline"] or []
        if f"--node={number}" in words and any(f":{port}" in word for word in words if word.startswith("--rdzv-end")):
            return one
    raise AssertionError(f"no process of node {number}")


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """With everything that they have started."""
    for process in processes:
        if process.poll() is None:
            for one in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
                one.kill()
        process.wait()
