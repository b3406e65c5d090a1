"""Saving while training goes on: tensors are copied, and a thread of every rank writes the copies."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_saver import async_save, save

from pipesim.backends.checkpoint import folder
from pipesim.backends.checkpoint.storage import MOST_BYTES, FolderWriter
from pipesim.backends.checkpoint.tensors import Held, tensors_of
from pipesim.errors import PipesimError

_LOOK_S = 1.0
log = logging.getLogger("pipesim.checkpoint")


@dataclass(frozen=True)
class Checkpoints:
    """Where checkpoints go and when. every_s: 0 for no time limit, as every_steps. keep: so many of the newest.

    behind: write while training goes on.
    """

    root: Path
    every_steps: int = 0
    every_s: float = 0.0
    keep: int = 2
    behind: bool = True


class Saver:
    """Saves the state of a job; all ranks make it and call its methods together.

    A checkpoint that cannot be written (a full disk) is said in the log, and training goes on: `failures` counts.
    """

    def __init__(
        self,
        held: Held,
        rules: Checkpoints,
        *,
        timeout_s: float = 600.0,
        make_writer: Callable[..., FolderWriter] = FolderWriter,
    ) -> None:
        self.held, self.rules, self._make_writer = held, rules, make_writer
        self.failures = 0
        self.saved: int | None = None  # the newest step that is complete
        self._first = dist.get_rank() == 0
        # its own group: the thread's collectives must not mix with those of the steps
        self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s))
        self._writing: tuple[int, FolderWriter, Future[Any]] | None = None
        self._last_s = self._seen_s = time.monotonic()
        self._owner: str | None = None
        prepared: list[Any] = [_prepared(rules.root) if self._first else None]
        dist.broadcast_object_list(prepared, group=self._group)
        if isinstance(prepared[0], PipesimError):
            raise prepared[0]
        if self._first:
            self._owner = prepared[0]

    def due(self, step: int) -> bool:
        """Whether this many steps call for a checkpoint; the time is rank 0's, and others say no to it."""
        by_steps = self.rules.every_steps > 0 and step % self.rules.every_steps == 0
        by_time = self._first and 0 < self.rules.every_s <= time.monotonic() - self._last_s
        return by_steps or by_time

    def taken_over(self) -> bool:
        """Whether another job has begun in the folder; looked up once a second at most, by rank 0."""
        if self._owner is None or time.monotonic() - self._seen_s < _LOOK_S:
            return False
        self._seen_s = time.monotonic()
        try:
            folder.require_owner(self.rules.root, self._owner)
        except folder.TakenOver:
            return True
        return False

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        """Begin to write a checkpoint of `step` steps, after the one before is written."""
        self.wait()
        if self.saved == step:
            return
        self._last_s = time.monotonic()
        writer = self._make_writer(self.rules.root, step, state, owner=self._owner, most_bytes=MOST_BYTES)
        tensors: dict[str, Any] = dict(tensors_of(self.held))
        if self.rules.behind:
            future = async_save(tensors, storage_writer=writer, process_group=self._group)
            assert isinstance(future, Future)
        else:
            future = Future()
            try:
                future.set_result(save(tensors, storage_writer=writer, process_group=self._group))
            except BaseException as error:  # torch wraps what any rank has raised in one of these
                future.set_exception(error)
        self._writing = (step, writer, future)
        if not self.rules.behind:
            self.wait()

    def wait(self) -> None:
        """Until nothing is being written."""
        if self._writing is None:
            return
        step, writer, future = self._writing
        self._writing = None
        error = future.exception()
        if error is None:
            self.saved = step
            if self._first:
                folder.keep_last(self.rules.root, self.rules.keep)
            return
        self.failures += 1
        if self._first:
            log.warning("no checkpoint of step %d: %s; training goes on", step, _cause(error))
            if writer.unfinished is not None:
                folder.discard(writer.unfinished)


def _prepared(root: Path) -> str | PipesimError:
    """The folder's owner, from now on."""
    try:
        folder.require_root(root)
        folder.clear_unfinished(root)
        return folder.take_over(root)
    except PipesimError as error:
        return error


def _cause(error: BaseException) -> str:
    """What went wrong on the first rank that failed, in one line."""
    failures = getattr(error, "failures", None)
    if isinstance(failures, dict) and failures:
        rank, (found, _) = next(iter(sorted(failures.items())))
        return f"rank {rank}: {' '.join(str(found).split())}"
    return " ".join(str(error).split()) or type(error).__name__
