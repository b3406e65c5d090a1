"""The part of a backward that is left for later: the weight gradients of one microbatch."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from torch import Tensor

Step = Callable[[], None]
Holding = Callable[[], Iterable[Tensor]]


def _no_tensors() -> Iterable[Tensor]:
    return ()


class Later:
    """Weight gradients still to be computed, in order, and the tensors they keep alive; call it once."""

    def __init__(self) -> None:
        self._steps: list[Step] = []
        self._holding: list[Holding] = []

    def add(self, step: Step, holding: Holding = _no_tensors) -> None:
        """One more thing to do, and what it needs in memory until then."""
        self._steps.append(step)
        self._holding.append(holding)

    def __call__(self) -> None:
        """Compute them and let go of everything."""
        steps, self._steps, self._holding = self._steps, [], []
        for step in steps:
            step()

    def tensors(self) -> Iterator[Tensor]:
        """What is kept alive until the call."""
        for holding in self._holding:
            yield from holding()


_collecting: Later | None = None  # not thread-local: autograd runs CUDA nodes on threads of its own


@contextmanager
def collecting(later: Later) -> Iterator[None]:
    """Context in which `defer` puts work aside into `later`."""
    global _collecting
    before, _collecting = _collecting, later
    try:
        yield
    finally:
        _collecting = before


def deferring() -> bool:
    """Whether weight gradients are being put aside now."""
    return _collecting is not None


def defer(step: Step, holding: Holding = _no_tensors) -> None:
    """For the backward of a custom function: do this at the weight gradient (at once in a full backward).

    `holding` lists the tensors that wait with it, for the account of memory.
    """
    if _collecting is None:
        step()
    else:
        _collecting.add(step, holding)
