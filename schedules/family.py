"""What is known of a schedule family beside its orders: parameters, rule, paper, closed forms."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pipesim.ir.schedule import Schedule


@dataclass(frozen=True)
class Setting:
    """The numbers closed forms speak of; times are of one rank's whole share of one microbatch.

    p ranks, m microbatches, v stages a rank, n group size (or microbatches an optimizer step), s slices;
    seconds F, I, W and C (one message).
    """

    p: int
    m: int
    v: int = 1
    n: int = 1
    s: int = 1
    F: float = 1.0
    I: float = 1.0  # noqa: E741 - the field's own letter
    W: float = 1.0
    C: float = 0.0

    @property
    def work(self) -> float:
        """Seconds a rank computes for one microbatch."""
        return self.F + self.I + self.W


@dataclass(frozen=True)
class Form:
    """A closed form: the formula as people read it, its function, and where it holds."""

    formula: str
    value: Callable[[Setting], float]
    holds: Callable[[Setting], bool] = lambda setting: True
    where: str = "always"


@dataclass(frozen=True)
class Family:
    """One schedule family of the catalogue.

    build: keyword-only numbers to a Schedule; its parameters beside `ranks` and `microbatches` are
        the family's own options.
    makespan: seconds from the first start to the last end, without reduction and optimizer.
    span: the longest time of a rank from its first start to its last end.
    peak: activations rank r holds at most, in microbatches, as a function of the setting and r; it is so
        where `peak_holds`.
    versions, staleness: of an asynchronous family, the weight versions that rank r keeps, and how many
        optimizer steps its gradients are behind at most, both as functions of the setting and r.
    """

    name: str
    build: Callable[..., Schedule]
    paper: str
    rule: str = "any m ≥ 1"
    makespan: Form | None = None
    latency: Form | None = None  # seconds added to the makespan by C
    span: Form | None = None
    peak_formula: str | None = None
    peak: Callable[[Setting, int], float] | None = None
    peak_holds: Callable[[Setting], bool] = lambda setting: True
    versions: Callable[[Setting, int], int] | None = None
    staleness: Callable[[Setting, int], int] | None = None
    synchronous: bool = True
    trains: bool = True

    @property
    def summary(self) -> str:
        """First line of the builder's docstring."""
        return next(iter((inspect.getdoc(self.build) or "").splitlines()), "")

    @property
    def options(self) -> dict[str, Any]:
        """The family's own parameters and their defaults."""
        return {
            name: parameter.default
            for name, parameter in inspect.signature(self.build).parameters.items()
            if name not in ("ranks", "microbatches")
        }
