"""Sees that the node which has the rendezvous answers: torch's store waits without end for one that does not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta

from torch._C._distributed_c10d import TCPStore

_EVERY_S, _ANSWER_S, _LOST_S = 5.0, 15.0, 40.0


class Pulse:
    """A thread that calls `lost` once nobody has answered at `endpoint` for `lost_s`, unless ended before."""

    def __init__(
        self, endpoint: str, lost: Callable[[], None], *, every_s: float = _EVERY_S, lost_s: float = _LOST_S
    ) -> None:
        host, _, port = endpoint.rpartition(":")
        self._host, self._port, self._lost = host, int(port), lost
        self._every_s, self._lost_s = every_s, lost_s
        self._over = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def end(self) -> None:
        """Look no longer."""
        self._over.set()

    def _run(self) -> None:
        seen = time.monotonic()
        while not self._over.wait(self._every_s):
            if self._answers():
                seen = time.monotonic()
            elif time.monotonic() - seen > self._lost_s and not self._over.is_set():
                self._lost()
                return

    def _answers(self) -> bool:
        """On a thread of its own, which may never end."""
        answered = threading.Event()

        def ask() -> None:
            try:  # a client says hello, and its answer is waited for
                TCPStore(self._host, self._port, None, False, timedelta(seconds=_ANSWER_S), wait_for_workers=False)
                answered.set()
            except (RuntimeError, ValueError, TimeoutError):
                return

        threading.Thread(target=ask, daemon=True).start()
        return answered.wait(min(_ANSWER_S, self._lost_s))
