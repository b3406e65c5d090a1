"""Processes that work for this one: started afresh, deaf to Ctrl-C, gone when it is."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.context import SpawnContext, SpawnProcess
from threading import current_thread, main_thread


class _Deaf(SpawnProcess):
    """Ctrl-C reaches all processes of a terminal; the one that started them decides what it means.

    Deaf from its birth: one that was still importing would end with a traceback, and take the pool with it.
    """

    def start(self) -> None:
        if current_thread() is not main_thread():  # only that one may set handlers
            super().start()
            return
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # which a new program inherits
        try:
            super().start()
        finally:
            signal.signal(signal.SIGINT, before)


class _Context(SpawnContext):
    """Not forked: a copy would inherit the threads of a progress bar."""

    Process = _Deaf


def pool(workers: int) -> ProcessPoolExecutor:
    """So many processes, each started with the first work for it."""
    return ProcessPoolExecutor(workers, mp_context=_Context())


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
