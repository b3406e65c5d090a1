"""Signals that ask a job to end, from the process that has started it to its workers, and what they answer.

A worker that writes checkpoints says so in a file of a folder that its starter has made. Such workers are told of a
signal, and have all the time they need; others are ended as torch's launcher does it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Literal

from torch.distributed.elastic.multiprocessing import SignalException

from pipesim.errors import PipesimError

GOES_ON_LATER = 75  # EX_TEMPFAIL of sysexits.h: not done, but nothing is wrong; start it again
LEFT_TO_TORCH = "SIGQUIT"  # signals at which torch's launcher ends its workers at once
ANSWERS = "answers"
FOLDER = "PIPESIM_WORKERS"  # environment variable by which workers find the folder
ASK = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP)
_AGAIN_S = 0.2
Word = Literal["listens", "stopped", "replaced"]


@dataclass(eq=False)
class Stopped(PipesimError):
    """A job that was asked to end. step: all that it has done and kept; None where it did not get to keep more."""

    signal: str
    step: int | None = None

    def __str__(self) -> str:
        if self.step is None:
            return f"{self.signal}, and the step under way did not end: run the same command to go on"
        return f"{self.signal} after {self.step} steps: a checkpoint has them; run the same command to go on"


def answer(word: Word) -> bool:
    """Tell who has started this worker that it takes signals, or how it ended; False where nobody reads it."""
    folder = os.environ.get(FOLDER)
    if folder is None:
        return False
    place = Path(folder) / os.environ.get("LOCAL_RANK", "0")
    part = place.with_suffix(".part")
    part.write_text(f"{os.getpid()} {word}")
    part.rename(place)
    return True


class Workers:
    """The starter's side: passes signals on to workers that listen."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked = folder, 0
        self._over = threading.Event()

    def answers(self) -> dict[int, str]:
        """By process number."""
        found = {}
        for path in self.folder.iterdir():
            if path.suffix != ".part":
                number, _, word = path.read_text().partition(" ")
                found[int(number)] = word
        return found

    @property
    def stopped(self) -> bool:
        """Whether the job has kept all it has done, and goes on later."""
        return "stopped" in self.answers().values()

    @property
    def end_early(self) -> bool:
        """Whether it was asked to, however it ended: what its newest checkpoint has is kept."""
        return self.stopped or (self.asked > 0 and "listens" in self.answers().values())

    @property
    def replaced(self) -> bool:
        """Whether another job has taken over what this one did."""
        return "replaced" in self.answers().values()

    def take(self, number: int, frame: FrameType | None) -> None:
        """A signal's handler. Raises SignalException for workers that do not listen, and when it comes again."""
        if self.asked or not self.answers():
            raise SignalException(f"ended by {signal.Signals(number).name}", sigval=signal.Signals(number))
        self.asked = number
        threading.Thread(target=self._pass_on, daemon=True).start()

    def _pass_on(self) -> None:
        """To every worker, also to one that was about to start."""
        told: set[int] = set()
        passed = signal.SIGUSR1 if self.asked == signal.SIGUSR1 else signal.SIGTERM
        while not self._over.wait(0 if not told else _AGAIN_S):
            for number, word in self.answers().items():
                if number not in told and word == "listens":
                    with suppress(ProcessLookupError):
                        os.kill(number, passed)
                told.add(number)

    def end(self) -> None:
        """No more workers."""
        self._over.set()


@contextmanager
def signals_to_workers(folder: Path) -> Iterator[Workers]:
    """Pass signals on to the workers that this process starts from now on; of the main thread only."""
    workers = Workers(folder)
    before = {number: signal.signal(number, workers.take) for number in ASK}
    os.environ[FOLDER] = str(folder)
    try:
        yield workers
    finally:
        workers.end()
        del os.environ[FOLDER]
        for number, handler in before.items():
            signal.signal(number, handler)
