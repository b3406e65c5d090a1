"""Memory limits as people give them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from pipesim.errors import PipesimError
from pipesim.units import parse_bytes

Unit = Literal["microbatches", "bytes"]

_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


@dataclass(eq=False)
class BadLimit(PipesimError):
    """A memory limit that is none, or that the costs know nothing of."""

    given: str
    reason: str

    def __str__(self) -> str:
        return f"memory limit {self.given}: {self.reason}; expected e.g. 4mb (microbatches) or 60GB"


@dataclass(frozen=True)
class Limit:
    """Most activations a rank holds, in microbatches, or most bytes it holds in all."""

    value: float
    unit: Unit

    def __str__(self) -> str:
        """What `parse_limit` reads; rounded up, so that what fits the limit fits this too."""
        if self.unit == "microbatches":
            return f"{self.value:g}mb"
        unit, size = next((one for one in _UNITS if self.value >= one[1]), _UNITS[-1])
        return f"{math.ceil(self.value / size * 100 - 1e-9) / 100:g}{unit}"


def parse_limit(text: str) -> Limit:
    """`4mb` or `4` microbatches, `60GB` bytes. Raises BadLimit, BadQuantity."""
    try:
        microbatches = float(text.strip().removesuffix("mb"))
    except ValueError:
        return Limit(parse_bytes(text, name="memory limit", positive=True), "bytes")
    if not 0 < microbatches < math.inf:
        raise BadLimit(text, "it is a number of microbatches above 0")
    return Limit(microbatches, "microbatches")
