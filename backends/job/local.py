"""A job on this machine: one process a rank, through torch's elastic launcher; one message if it fails.

Everything a job writes for itself is in one temporary folder, which goes with it.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from pipesim.backends.job.board import make_board, read_board
from pipesim.backends.job.fork_server import start_fork_server
from pipesim.backends.job.signals import ANSWERS, LEFT_TO_TORCH, Stopped, Workers, signals_to_workers
from pipesim.backends.job.worker import BOARD, FRESH_STORE, Notice, read_notices, work
from pipesim.errors import PipesimError
from pipesim.ir.program import Program

_TALKATIVE = ("torch.distributed.elastic", "torch.distributed.launcher", "torch.multiprocessing")


@dataclass(eq=False)
class JobFailed(PipesimError):
    """A job that ended early: who, where, why, and what the others were at."""

    reason: str
    ranks: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.reason + "".join(f"\n  {line}" for line in self.ranks)


@dataclass(eq=False)
class CannotStart(PipesimError):
    """A job that cannot be started as asked."""

    problem: str
    works: str

    def __str__(self) -> str:
        return f"{self.problem}; {self.works}"


@dataclass(frozen=True)
class JobOptions:
    """How a local job is started.

    timeout_s: how long any wait may last without progress. port: of the rendezvous; 0 finds a free one.
    program: whose operations the ranks work on, to name them in messages.
    max_restarts: how often all processes are started again when one fails.
    keeps: the processes may listen to signals, and then come to a good end themselves.
    """

    device: str = "cpu"
    timeout_s: float = 60.0
    port: int = 0
    program: Program | None = None
    max_restarts: int = 0
    keeps: bool = False


def run_local(ranks: int, function: Callable[..., Any], *args: Any, options: JobOptions | None = None) -> list[Any]:
    """`function(context, *args)` in `ranks` processes; what each returned, by rank.

    Raises JobFailed, CannotStart, and Stopped where the processes were asked to end and did not.
    """
    options = options or JobOptions()
    _require(ranks, function, args, options)
    for name in [*logging.root.manager.loggerDict]:
        if name.startswith(_TALKATIVE):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    start_fork_server()
    os.environ.setdefault(*FRESH_STORE)
    with tempfile.TemporaryDirectory(prefix="pipesim-job-") as folder:
        make_board(Path(folder) / BOARD, ranks)
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=ranks,
            run_id="pipesim",
            rdzv_backend="c10d",
            rdzv_endpoint=f"localhost:{options.port}",
            max_restarts=options.max_restarts,
            monitor_interval=0.1,
            start_method="forkserver",
            logs_specs=DefaultLogsSpecs(log_dir=folder),
        )
        with _signals(config, Path(folder) if options.keeps else None) as workers:
            try:
                found = elastic_launch(config, work)(folder, options.device, options.timeout_s, function, args)
            except SignalException:  # Ctrl-C, or somebody ended us
                raise KeyboardInterrupt from None
            except ChildFailedError as error:
                if workers is not None and workers.end_early:
                    raise Stopped(signal.Signals(workers.asked).name) from None
                codes = {rank: failure.exitcode for rank, failure in error.failures.items()}
                raise _in_words(Path(folder), ranks, codes, options.program) from None
        return [found[rank] for rank in range(ranks)]


@contextmanager
def _signals(config: LaunchConfig, folder: Path | None) -> Iterator[Workers | None]:
    """Signals go to workers that listen."""
    if folder is None:
        yield None
        return
    config.signals_to_handle = LEFT_TO_TORCH
    (folder / ANSWERS).mkdir()
    with signals_to_workers(folder / ANSWERS) as workers:
        yield workers


def _require(ranks: int, function: Any, args: Sequence[Any], options: JobOptions) -> None:
    try:
        pickle.dumps((function, args))
    except Exception as error:
        raise CannotStart(
            f"what the processes should run cannot be sent to them ({error})",
            "give a function of a module (not a lambda or an inner function), such as my_module.py:stages",
        ) from None
    if options.device == "cuda":
        require_gpus(ranks)
    if options.port:
        with socket.socket() as test:
            if test.connect_ex(("localhost", options.port)) == 0:
                raise CannotStart(f"port {options.port} is in use", "give another --port, or none")


def require_gpus(ranks: int) -> None:
    """Raises CannotStart without enough GPUs."""
    import torch

    if not torch.cuda.is_available():
        raise CannotStart("no CUDA device is available", "use --device cpu")
    count = torch.cuda.device_count()
    if count < ranks:
        raise CannotStart(f"{ranks} ranks need {ranks} GPUs, there are {count}", f"use at most --ranks {count}")


def _in_words(folder: Path, ranks: int, codes: dict[int, int], program: Program | None) -> JobFailed:
    """The first cause among what the ranks have noted and how they ended."""
    notices = read_notices(folder)
    at = [_text(op, program) for op in read_board(folder / BOARD)]
    causes = sorted((one for one in notices.values() if one.kind == "cause"), key=lambda one: one.time_ns)
    if causes:
        return JobFailed(causes[0].message)
    killed = [rank for rank, code in codes.items() if rank not in notices]
    if killed:
        rank = killed[0]
        return JobFailed(f"rank {rank} failed at {at[rank]}: its process ended ({_ending(codes[rank])})")
    waits = tuple(_wait(rank, notices.get(rank), at[rank]) for rank in range(ranks))
    if any(one.kind == "stuck" for one in notices.values()):
        return JobFailed("no progress within the timeout; who waits for what:", waits)
    silent = [rank for rank in range(ranks) if rank not in notices]
    word = f"rank {silent[0]} failed at {at[silent[0]]}: its process ended" if silent else "a rank was lost"
    return JobFailed(word, () if silent else waits)


def _wait(rank: int, notice: Notice | None, at: str) -> str:
    return f"rank {rank} at {at}" + (f": {notice.message}" if notice is not None else "")


def _text(op: int | None, program: Program | None) -> str:
    if op is None:
        return "the start"
    return f"operation {op}" if program is None else program.text(op)


def _ending(code: int) -> str:
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit status {code}"
