"""A worker killed at a random moment, twenty times: the job ends with the losses of one that nobody disturbed."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from pipesim.backends.checkpoint.folder import steps_in
from pipesim.backends.job.local import JobOptions, run_local
from pipesim.backends.job.worker import Context
from pipesim.backends.training.task import Training
from pipesim.backends.training.train import train
from tests.backends.elastic.tasks import keep, task_at

KILLS, STEPS = 20, 60
pytestmark = pytest.mark.slow


def train_and_tell(context: Context, task: Training, folder: Path) -> object:
    torch.set_num_threads(1)
    (folder / f"pid-{context.rank}").write_text(str(os.getpid()))
    return train(context, task)


class Killer(threading.Thread):
    """Kills a rank after some steps, or while a checkpoint is being written."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.folder, self.random = folder, random.Random(5)
        self.kills: list[tuple[bool, int]] = []  # while writing?, newest step that was complete
        self.over = False

    def run(self) -> None:
        while len(self.kills) < KILLS and not self.over:
            pids = self._pids()
            writing = self._wait(in_writing=self.random.random() < 0.5)
            newest = next(iter(steps_in(self.folder / "run")), 0)
            if self.over:
                return
            os.kill(pids[self.random.randrange(2)], signal.SIGKILL)
            self.kills.append((writing, newest))
            for rank in range(2):
                (self.folder / f"pid-{rank}").unlink()

    def _pids(self) -> list[int]:
        paths = [self.folder / f"pid-{rank}" for rank in range(2)]
        while not all(path.exists() and path.read_text() for path in paths) and not self.over:
            time.sleep(0.02)
        return [int(path.read_text()) for path in paths] if not self.over else []

    def _wait(self, *, in_writing: bool) -> bool:
        until = self._lines() + self.random.randrange(1, 3)
        while not self.over:
            if in_writing and any(self.folder.glob("run/.step-*.part")):
                return True
            if not in_writing and self._lines() >= until:
                return False
            time.sleep(0.001)
        return False

    def _lines(self) -> int:
        path = self.folder / "losses.jsonl"
        return path.read_text().count("\n") if path.exists() else 0


def losses_of(path: Path) -> dict[int, float]:
    rows: list[Any] = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, len(rows) + 1))
    return {row["step"]: row["loss"] for row in rows}


@pytest.mark.timeout(500)
def test_twenty_kills(tmp_path: Path) -> None:
    """No step is lost that a complete checkpoint had, and none counts twice."""
    losses, quiet = tmp_path / "losses.jsonl", tmp_path / "quiet.jsonl"
    run_local(1, train_and_tell, task_at(1, 1, 1, steps=STEPS, metrics=quiet), tmp_path)
    (tmp_path / "pid-0").unlink()
    task = task_at(
        2, 1, 1, steps=STEPS, metrics=losses, keep=keep(tmp_path / "run", every_steps=1, keep=2, hang_s=30.0)
    )
    killer = Killer(tmp_path)
    killer.start()
    try:
        options = JobOptions(max_restarts=KILLS + 5, timeout_s=30)
        run_local(2, train_and_tell, task, tmp_path, options=options)
    finally:
        killer.over = True
        killer.join()
    assert len(killer.kills) == KILLS
    assert any(writing for writing, _ in killer.kills)
    newest = [step for _, step in killer.kills]
    assert newest == sorted(newest)  # never behind a complete one
    assert losses_of(losses) == pytest.approx(losses_of(quiet), rel=1e-9)
    assert not list(tmp_path.glob("run/.step-*"))
