"""Jobs that are asked to end, that hang, or whose layout has to change."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from pipesim.backends.checkpoint.folder import steps_in
from pipesim.backends.elastic.layouts import NoLayout, alike, choose_layout
from pipesim.backends.elastic.loss_file import LossFile
from pipesim.backends.elastic.stop import Stopped, StopRequest
from pipesim.backends.elastic.train import Trainer, TrainTask
from pipesim.backends.elastic.watch import Watch
from pipesim.backends.parallel.places import short
from pipesim.costs.layouts.layout import BadLayout, Layout
from tests.backends.elastic.tasks import checkpoints, context, task_at
from tests.backends.group import run_group


def stop_after_three(task: TrainTask, number: int) -> str:
    """The signal comes to one rank only, in the middle of its third step."""
    import torch.distributed as dist

    stop = StopRequest()
    stop.listen()
    trainer = Trainer(context(), task, stop)
    ask = trainer.batch

    def batch(step: int) -> object:
        if step == 2 and dist.get_rank() == 1:
            os.kill(os.getpid(), number)
        return ask(step)

    trainer.batch = batch  # type: ignore[method-assign, assignment]
    try:
        trainer.train()
    except Stopped as stopped:
        return str(stopped)
    return "ended"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_leaves_a_checkpoint(number: signal.Signals, tmp_path: Path) -> None:
    task = task_at(2, 1, 1, checkpoints=checkpoints(tmp_path, every_steps=100))
    said = run_group(2, stop_after_three, task, number)
    assert said == [f"{number.name} after 3 steps: a checkpoint has them; run the same command to go on"] * 2
    assert list(steps_in(tmp_path)) == [3]


def hang(path: str) -> None:
    import sys
    import time

    sys.stderr = open(path, "w")  # noqa: SIM115
    watch = Watch(lambda op: f"2F{op}", StopRequest(), hang_s=0.5)
    watch.step(7)
    watch.at(3)
    time.sleep(20)


def test_a_hang_is_reported_and_ends(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="its process ended"):
        run_group(1, hang, str(tmp_path / "said"), timeout_s=15, leave_together=False)
    assert (tmp_path / "said").read_text() == "pipesim: no progress for 0.5 s:\n  rank 0 at step 7, 2F3\n"


def test_the_layout_that_fits() -> None:
    wanted, fallback = Layout(pp=2, dp=2, global_batch=4), Layout(tp=2, global_batch=4)
    assert choose_layout([wanted, fallback], 4, short) == (wanted, "pp=2,tp=1,dp=2")
    assert choose_layout([wanted, fallback], 2, short)[0] == fallback
    assert choose_layout([wanted], 2, short)[1] == "pp=2,tp=1,dp=1"  # nothing else changes
    assert [short(one) for one in alike(wanted, 3)] == ["pp=3,tp=1,dp=1", "pp=1,tp=3,dp=1"]  # 4 samples are no 3 · n


def test_no_layout_fits() -> None:
    def refuse(layout: Layout) -> str:
        raise BadLayout(f"pp={layout.pp}", "nothing works")

    with pytest.raises(NoLayout, match="no layout for 3 processes among pp=3,tp=1,dp=1, pp=1,tp=3,dp=1"):
        choose_layout([Layout(pp=2, dp=2, global_batch=4)], 3, refuse)


def test_losses_of_steps_that_were_lost_go(tmp_path: Path) -> None:
    path = tmp_path / "losses"
    first = LossFile(path, 0)
    for step in range(4):
        first.add(step, loss=float(step))
    with path.open("a") as file:
        file.write('{"step": 4, "lo')  # killed while writing
    LossFile(path, 2).add(2, loss=9.0)
    assert path.read_text() == '{"step": 0, "loss": 0.0}\n{"step": 1, "loss": 1.0}\n{"step": 2, "loss": 9.0}\n'
