"""The learning rate of each step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from pipesim.errors import PipesimError

Shape = Literal["constant", "linear", "cosine"]
SHAPES: tuple[Shape, ...] = get_args(Shape)


@dataclass(eq=False)
class BadRates(PipesimError):
    """Numbers that make no learning rate."""

    problem: str
    works: str

    def __str__(self) -> str:
        return f"{self.problem}; {self.works}"


@dataclass(frozen=True)
class Rates:
    """From 0 up to `peak` in `warmup` steps, then constant, or down to `least` · peak at `steps`."""

    peak: float
    warmup: int = 0
    shape: Shape = "constant"
    steps: int = 0
    least: float = 0.1

    def __post_init__(self) -> None:
        if self.shape not in SHAPES:
            raise BadRates(f"learning rate {self.shape!r}", f"there are {', '.join(SHAPES)}")
        if self.warmup < 0 or self.peak < 0 or not 0 <= self.least <= 1:
            raise BadRates(
                f"peak={self.peak}, warmup={self.warmup}, least={self.least}", "0 and above work, least up to 1"
            )

    def at(self, step: int) -> float:
        """Of step number `step`, from 0."""
        if step < self.warmup:
            return self.peak * (step + 1) / self.warmup
        if self.shape == "constant":
            return self.peak
        done = min(1.0, (step - self.warmup) / max(1, self.steps - self.warmup))
        left = 1 - done if self.shape == "linear" else (1 + math.cos(math.pi * done)) / 2
        return self.peak * (self.least + (1 - self.least) * left)
