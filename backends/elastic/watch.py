"""A thread of each process that sees when nothing moves: it says where every rank is, and ends the process.

The launcher takes that for a failure and starts the job again. It also ends a process that was asked to stop but
sits in a wait that nothing will end.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from pipesim.backends.elastic.stop import StopRequest, status_of_stopped
from pipesim.backends.execute.runner import Board

_TICK_S = 0.2
_FAILED = 1


class Watch:
    """A board that knows when it was last written to. text: of an operation. inner: a board that is told, too.

    hang_s: without a new operation for so long the job hangs. grace_s: for the step under way, once asked to stop.
    """

    def __init__(
        self,
        text: Callable[[int], str],
        stop: StopRequest,
        *,
        inner: Board | None = None,
        hang_s: float = 60.0,
        grace_s: float = 10.0,
    ) -> None:
        self._text, self._stop, self._inner, self._hang_s, self._grace_s = text, stop, inner, hang_s, grace_s
        self._rank, self._ranks = dist.get_rank(), dist.get_world_size()
        self._count, self._op, self._step = 0, -1, 0
        self._over, self._on_duty = threading.Event(), True
        self._store = _job_store()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def at(self, op: int) -> None:
        """This rank begins the operation."""
        self._op = op
        self._count += 1
        if self._inner is not None:
            self._inner.at(op)

    def step(self, number: int) -> None:
        """This rank begins a step, or has ended the last one."""
        self._step, self._op = number, -1
        self._count += 1

    @contextmanager
    def off_duty(self) -> Iterator[None]:
        """While something is done that has no operations and may take long, such as reading a checkpoint."""
        self._on_duty = False
        try:
            yield
        finally:
            self._count += 1
            self._on_duty = True

    def end(self) -> None:
        """Watch no longer."""
        self._over.set()

    def _run(self) -> None:
        seen, moved = -1, time.monotonic()
        while not self._over.wait(_TICK_S):
            now = time.monotonic()
            if self._count != seen:
                seen, moved = self._count, now
                self._publish()
            elif not self._on_duty:
                moved = now
            elif now - moved > self._hang_s:
                self._report()
                os._exit(_FAILED)
            elif self._stop.signal and now - moved > self._grace_s:
                # a local job's starter takes status 0 for a result, which there is none of
                os._exit(status_of_stopped() if self._inner is None else _FAILED)

    def _here(self) -> str:
        return f"step {self._step}, " + (self._text(self._op) if self._op >= 0 else "between operations")

    def _publish(self) -> None:
        if self._store is not None:
            try:
                self._store.set(f"at/{self._rank}", self._here())
            except RuntimeError:  # the launcher that keeps it is gone
                self._store = None

    def _report(self) -> None:
        """Once for all ranks, where they have a store in common."""
        lines = [f"rank {self._rank} at {self._here()}"]
        try:
            if self._store is not None:
                if self._store.add("hang", 1) > 1:
                    return
                known = [rank for rank in range(self._ranks) if self._store.check([f"at/{rank}"])]
                lines = [f"rank {rank} at {self._store.get(f'at/{rank}').decode()}" for rank in known]
        except RuntimeError as error:  # the launcher that keeps it is gone
            lines.append(f"where the others are is not known: {' '.join(str(error).split())[:200]}")
        said = "".join(f"\n  {line}" for line in lines)
        print(f"pipesim: no progress for {self._hang_s:g} s:{said}", file=sys.stderr, flush=True)


def _job_store() -> Any:
    """The store of torchrun's job, apart for each restart; None without one."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), None, False, timedelta(seconds=5))
    return PrefixStore(f"pipesim/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
