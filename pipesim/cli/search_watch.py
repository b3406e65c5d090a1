"""Progress of a search on stderr, its time limit, and Ctrl-C, which ends it with the best so far."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any, Self

from pipesim.plan.search.search import Progress
from pipesim.units import format_seconds

_EVERY_S = 2.0  # a line of progress at least this often


@dataclass
class Interrupts:
    """Ctrl-C while this is entered: the first is noted, for the search to end when it is asked next, a second one
    ends the program.

    An exception could be raised anywhere: also where compiled code is loaded, which prints it and goes on.
    """

    seen: bool = False
    _before: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.seen:
            raise KeyboardInterrupt
        self.seen = True
        os.write(2, b"ending with the best so far; Ctrl-C again ends without\n")  # print may be under way


@dataclass
class Watch:
    """Prints progress, and says whether to go on."""

    placement: str
    limit_s: float
    interrupts: Interrupts
    begun: float = field(default_factory=time.monotonic)
    shown: tuple[str, float] = ("", math.inf)
    shown_at: float = -math.inf

    def __call__(self, progress: Progress) -> bool:
        now = time.monotonic()
        state = (progress.phase, progress.best_s)
        if (state != self.shown and now - self.shown_at > _EVERY_S / 10) or now - self.shown_at > _EVERY_S:
            self.shown, self.shown_at = state, now
            print(
                f"{self.placement}: {now - self.begun:5.1f} s {progress.phase}: best "
                f"{format_seconds(progress.best_s)}, bound {format_seconds(progress.bound_s)}, gap {progress.gap:.2%}",
                file=sys.stderr,
            )
        return self.goes_on()

    def goes_on(self) -> bool:
        """Whether there is time left and nobody has asked to end."""
        return not self.interrupts.seen and time.monotonic() - self.begun < self.limit_s

    def until(self, part: float) -> Watch:
        """The same watch for the first part of the time."""
        return Watch(self.placement, self.limit_s * part, self.interrupts, self.begun)
