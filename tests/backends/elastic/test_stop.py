"""Jobs that are asked to end, that hang, or whose layout has to change."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from pipesim.backends.checkpoint.folder import steps_in
from pipesim.backends.elastic.layouts import NoLayout, agreed, alike, choose_layout
from pipesim.backends.elastic.loss_file import LossFile
from pipesim.backends.elastic.stop import StopRequest
from pipesim.backends.elastic.watch import Watch
from pipesim.backends.parallel.places import short
from pipesim.backends.training.task import Training
from pipesim.backends.training.train import Trainer
from pipesim.costs.layouts.layout import BadLayout, Layout
from tests.backends.elastic.tasks import context, keep, task_at
from tests.backends.group import free_port, run_group


def stop_after_three(task: Training, number: int) -> str:
    """The signal comes to one rank only, in the middle of its third step."""
    import torch.distributed as dist

    stop = StopRequest()
    stop.listen()
    trainer = Trainer(context(), task, stop)
    ask = trainer.steps.batches

    def batches(step: int) -> object:
        if step == 2 and dist.get_rank() == 1:
            os.kill(os.getpid(), number)
        return ask(step)

    trainer.steps.batches = batches  # type: ignore[method-assign, assignment]
    return str(trainer.train())


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_leaves_a_checkpoint(number: signal.Signals, tmp_path: Path) -> None:
    task = task_at(2, 1, 1, keep=keep(tmp_path, every_steps=100))
    said = run_group(2, stop_after_three, task, number)
    assert said == [f"{number.name} after 3 steps: a checkpoint has them; run the same command to go on"] * 2
    assert list(steps_in(tmp_path)) == [3]


def hang(path: str, port: int) -> None:
    """Rank 1 waits for the last microbatch of the step before, as rank 0 does for its answer."""
    import sys
    import time

    import torch.distributed as dist

    rank = dist.get_rank()
    sys.stderr = open(f"{path}-{rank}", "w")  # noqa: SIM115
    if port:
        os.environ |= {"TORCHELASTIC_RUN_ID": "x", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        stores.append(dist.TCPStore("127.0.0.1", port, None, rank == 0))
        dist.barrier()
    watch = Watch(lambda op: f"{rank}F{op}", StopRequest(), hang_s=1.0 if rank == 0 else 8.0)
    watch.step(7 - rank)
    watch.at(3)
    time.sleep(30)


stores: list[object] = []


@pytest.mark.slow
def test_a_hang_is_reported_and_ends(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="its process ended"):
        run_group(1, hang, str(tmp_path / "said"), 0, timeout_s=30, leave_together=False)
    assert (tmp_path / "said-0").read_text() == "pipesim: no progress for 1 s:\n  rank 0 at step 7, 0F3\n"


@pytest.mark.slow
def test_a_hang_is_reported_once_with_every_rank(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="its process ended"):
        run_group(2, hang, str(tmp_path / "said"), free_port(), timeout_s=40, leave_together=False)
    table = "pipesim: no progress for 1 s:\n  rank 0 at step 7, 0F3\n  rank 1 at step 6, 1F3\n"
    assert (tmp_path / "said-0").read_text() == table
    late = (tmp_path / "said-1").read_text()  # rank 0, which had the store, is gone by then
    assert late.startswith(
        "pipesim: no progress for 8 s:\n  rank 1 at step 6, 1F3\n  where the others are is not known"
    )


def test_the_layout_that_fits() -> None:
    wanted, fallback = Layout(pp=2, dp=2, global_batch=4), Layout(tp=2, global_batch=4)
    fastest, next_one = Layout(dp=2, global_batch=4), Layout(pp=2, global_batch=4)
    assert choose_layout([wanted, fallback], [], 4, short) == (wanted, "pp=2,tp=1,dp=2")
    assert choose_layout([wanted, fallback], [fastest], 2, short)[0] == fallback
    assert choose_layout([wanted], [fastest, next_one], 2, short)[0] == fastest
    assert next(short(one) for one in alike(wanted, 2)) == "pp=2,tp=1,dp=1"  # nothing else changes
    assert [short(one) for one in alike(wanted, 3)] == ["pp=3,tp=1,dp=1", "pp=1,tp=3,dp=1"]  # 4 samples are no 3 · n
    counted = Layout(pp=2, dp=2, global_batch=4, split=(3, 5))
    assert [one.split for one in alike(counted, 2)] == [(3, 5), "balanced", "balanced"]


def refuse(layout: Layout) -> str:
    raise BadLayout(f"pp={layout.pp}", "nothing works")


def test_no_layout_fits() -> None:
    wanted = Layout(pp=2, dp=2, global_batch=4)
    with pytest.raises(NoLayout, match="no layout for 3 processes among pp=3,tp=1,dp=1, pp=1,tp=3,dp=1"):
        choose_layout([wanted], alike(wanted, 3), 3, refuse)


def choose(fails: bool) -> str:
    """As every rank would choose for itself."""
    import torch.distributed as dist

    def make() -> str:
        if fails:
            refuse(Layout(pp=2))
        return f"the choice of rank {dist.get_rank()}"

    try:
        return agreed(make)
    except BadLayout as error:
        return str(error)


@pytest.mark.slow
def test_all_ranks_choose_as_one() -> None:
    assert run_group(2, choose, False) == ["the choice of rank 0"] * 2
    assert run_group(2, choose, True) == ["pp=2; nothing works"] * 2


def test_losses_of_steps_that_were_lost_go(tmp_path: Path) -> None:
    path = tmp_path / "losses"
    first = LossFile(path, 0)
    for step in range(1, 5):
        first.add({"step": step, "loss": float(step)})
    with path.open("a") as file:
        file.write('{"step": 5, "lo')  # killed while writing
    LossFile(path, 2).add({"step": 3, "loss": 9.0})
    assert path.read_text() == '{"step": 1, "loss": 1.0}\n{"step": 2, "loss": 2.0}\n{"step": 3, "loss": 9.0}\n'
    LossFile(path, 0)
    assert path.read_text() == ""  # a job that begins anew
