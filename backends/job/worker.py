"""What each process of a job does around its work: group, timeout, and a last word when it goes wrong."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist

from pipesim.backends.execute.failures import NoProgress, PeerLost, one_line
from pipesim.backends.execute.runner import Board
from pipesim.backends.job.board import FileBoard
from pipesim.backends.job.signals import ANSWERS, FOLDER
from pipesim.errors import PipesimError

BOARD = "board"
FRESH_STORE = ("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
"""Else torch's launcher keeps one store through restarts, and the new processes find addresses of the dead in it."""
_NOTICE = "notice-{rank}.json"
_LAST_WORDS_S = 1.0  # others may have the cause to tell: their process should end first
_PR_SET_PDEATHSIG = 1


@dataclass(eq=False)
class WrongWorldSize(PipesimError):
    """torchrun has started another number of processes than the schedule has ranks."""

    processes: int
    ranks: int

    def __str__(self) -> str:
        return (
            f"torchrun started {self.processes} processes for a schedule of {self.ranks} ranks: "
            f"use --nproc-per-node {self.ranks}, or --ranks {self.processes}"
        )


@dataclass(frozen=True)
class Notice:
    """Why a rank stopped: the cause itself, a wait that did not end, or the loss of another rank."""

    kind: Literal["cause", "stuck", "lost"]
    message: str
    time_ns: int


@dataclass(frozen=True)
class Context:
    """This process in its job."""

    rank: int
    ranks: int
    device: torch.device
    board: Board | None = None


def work(folder: str, device: str, timeout_s: float, function: Callable[..., Any], args: Any) -> Any:
    """One process started by `run_local`."""
    end_with_parent()
    if (Path(folder) / ANSWERS).is_dir():
        os.environ[FOLDER] = str(Path(folder) / ANSWERS)
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", folder)  # torch makes one as soon as an optimizer steps
    rank = int(os.environ["RANK"])
    try:
        context = join(device, timeout_s, FileBoard(Path(folder) / BOARD, rank))
        value = function(context, *args)
        leave()
        return value
    except BaseException as error:
        notice = _notice(error, rank)
        temporary = Path(folder) / f"{rank}.part"
        temporary.write_text(json.dumps(asdict(notice)))
        temporary.rename(Path(folder) / _NOTICE.format(rank=rank))
        if notice.kind != "cause":
            time.sleep(_LAST_WORDS_S)
        sys.stdout.flush()
        os._exit(1)  # no farewell to peers that may never answer


def as_member(ranks: int, device: str, timeout_s: float, function: Callable[..., Any], *args: Any) -> Any:
    """This process as one that torchrun has started. Raises WrongWorldSize, and what `function` raises."""
    size = int(os.environ["WORLD_SIZE"])
    if size != ranks:
        raise WrongWorldSize(size, ranks)
    try:
        value = function(join(device, timeout_s), *args)
        leave()
        return value
    except (NoProgress, PeerLost):
        time.sleep(_LAST_WORDS_S)
        raise


def join(device: str, timeout_s: float, board: FileBoard | None = None) -> Context:
    """Enter the process group of this process's environment (`RANK`, `WORLD_SIZE`, …), as torchrun sets it."""
    local = int(os.environ.get("LOCAL_RANK", "0"))
    backend, place = ("nccl", torch.device("cuda", local)) if device == "cuda" else ("gloo", torch.device("cpu"))
    if device == "cuda":
        torch.cuda.set_device(place)
    else:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout_s))
    return Context(dist.get_rank(), dist.get_world_size(), place, board)


def leave() -> None:
    """Leave the group when all are done."""
    dist.barrier()
    dist.destroy_process_group()


def read_notices(folder: Path) -> dict[int, Notice]:
    """What ranks have said about their end."""
    found = {}
    for path in folder.glob(_NOTICE.format(rank="*")):
        found[int(path.stem.removeprefix("notice-"))] = Notice(**json.loads(path.read_text()))
    return found


def _notice(error: BaseException, rank: int) -> Notice:
    if isinstance(error, NoProgress):
        return Notice("stuck", str(error), time.time_ns())
    if isinstance(error, PeerLost) or "connection closed by peer" in str(error).lower():
        return Notice("lost", str(error), time.time_ns())
    message = str(error) if isinstance(error, PipesimError) else f"rank {rank} failed: {one_line(error)}"
    return Notice("cause", message, time.time_ns())


def end_with_parent(how: signal.Signals = signal.SIGTERM) -> None:
    """Let the kernel end this process when the one that started it is gone (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, how)
