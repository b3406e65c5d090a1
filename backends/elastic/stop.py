"""Signals that ask a worker to end: it writes a checkpoint first, and its starter knows that it can go on later."""

from __future__ import annotations

import signal
import socket
import threading
from types import FrameType

from pipesim.backends.job.signals import GOES_ON_LATER, answer

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)  # Slurm sends USR1 before its time limit


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
        if answer("listens"):  # who has started this process passes Ctrl-C on
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = number

    def _hear(self, wakened: socket.socket) -> None:
        """Python's handlers wait for the main thread, which may sit in a wait that does not end."""
        while heard := wakened.recv(1):
            if heard[0] in SIGNALS:
                self.signal = heard[0]


def status_of_stopped() -> int:
    """Exit status of a worker of torchrun that has ended early, or has to: 0 where its launcher knows of it."""
    return 0 if answer("stopped") else GOES_ON_LATER
