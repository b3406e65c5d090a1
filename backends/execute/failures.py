"""What goes wrong between ranks, in words: which rank, at which action, and why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipesim.errors import PipesimError

if TYPE_CHECKING:
    from pipesim.backends.execute.plan import Message


@dataclass(eq=False)
class ActionFailed(PipesimError):
    """Something raised while a rank did an action."""

    rank: int
    action: str
    cause: str

    def __str__(self) -> str:
        return f"rank {self.rank} failed at {self.action}: {self.cause}"


@dataclass(eq=False)
class NoProgress(PipesimError):
    """A wait that did not end in time."""

    action: str
    source: int
    target: int

    def __str__(self) -> str:
        return (
            f"no progress: {self.action} from rank {self.source} to rank {self.target} did not end in time "
            "(--timeout sets how long to wait)"
        )


@dataclass(eq=False)
class PeerLost(PipesimError):
    """The process at the other end is gone; whoever it was says why, if it still can."""

    action: str
    source: int
    target: int

    def __str__(self) -> str:
        return f"the other end of {self.action} (rank {self.source} to rank {self.target}) is gone"


_TIMEOUTS = ("timed out", "timeout")
_LOST = ("connection closed", "connection reset", "broken pipe", "connection refused")


@contextmanager
def in_words(message: Message) -> Iterator[None]:
    """Turn what torch.distributed raises into NoProgress or PeerLost."""
    try:
        yield
    except RuntimeError as error:
        text = str(error).lower()
        where = (message.text, message.source, message.target)
        if any(word in text for word in _TIMEOUTS):
            raise NoProgress(*where) from error
        if any(word in text for word in _LOST):
            raise PeerLost(*where) from error
        raise


def one_line(error: BaseException) -> str:
    """Type and message of an error in one line; our own say all in their message."""
    text = " ".join(str(error).split())
    return text if isinstance(error, PipesimError) else f"{type(error).__name__}: {text}"
