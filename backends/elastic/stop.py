"""Signals that ask a job to end: it writes a checkpoint first, and its exit status says that it should go on later."""

from __future__ import annotations

import signal
import socket
import threading
from dataclasses import dataclass
from types import FrameType

from pipesim.backends.job.signals import GOES_ON_LATER, answer
from pipesim.errors import PipesimError

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)  # Slurm sends USR1 before its time limit


@dataclass(eq=False)
class Stopped(PipesimError):
    """A job that was asked to end and has kept all it has done."""

    signal: str
    step: int

    def __str__(self) -> str:
        return f"{self.signal} after {self.step} steps: a checkpoint has them; run the same command to go on"


class StopRequest:
    """Notes that a signal has come, until a step is over."""

    def __init__(self) -> None:
        self.signal = 0

    def listen(self) -> None:
        """Take SIGTERM and SIGUSR1 from now on; of the main thread only."""
        for number in SIGNALS:
            signal.signal(number, self._note)

        self._wake, wakened = socket.socketpair()
        self._wake.setblocking(False)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._hear, args=(wakened,), daemon=True).start()
        answer("listens")

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = number

    def _hear(self, wakened: socket.socket) -> None:
        """Python's handlers wait for the main thread, which may sit in a wait that does not end."""
        while heard := wakened.recv(1):
            if heard[0] in SIGNALS:
                self.signal = heard[0]


def status_of_stopped() -> int:
    """Exit status of a worker that has ended early, or has to: 0 where its launcher knows, and starts it no more."""
    return 0 if answer("stopped") else GOES_ON_LATER
