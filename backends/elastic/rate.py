"""Learning rates that follow from the step alone, so that a job goes on with the right one wherever it begins."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Shape = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True)
class Rate:
    """Up to `peak` in `warmup` steps, then as `shape` says down to `least` at step `total`."""

    peak: float = 1e-3
    warmup: int = 0
    total: int = 0
    shape: Shape = "constant"
    least: float = 0.0

    def at(self, step: int) -> float:
        """Of step number `step`, from 0."""
        if step < self.warmup:
            return self.peak * (step + 1) / self.warmup
        if self.shape == "constant" or self.total <= self.warmup:
            return self.peak
        done = min(1.0, (step - self.warmup) / (self.total - self.warmup))
        left = 1.0 - done if self.shape == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
        return self.least + (self.peak - self.least) * left
