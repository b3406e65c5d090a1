"""Errors of numbers that a family cannot work with."""

from __future__ import annotations

from dataclasses import dataclass

from pipesim.errors import PipesimError


@dataclass(eq=False)
class Unsuitable(PipesimError):
    """Numbers that break a family's rule: what was given, the rule, and what would work."""

    family: str
    given: str
    rule: str
    works: str

    def __str__(self) -> str:
        return f"{self.family} cannot have {self.given}: {self.rule}; try {self.works}"


def require_counts(family: str, **counts: int) -> None:
    """Raise Unsuitable unless each is a whole number of at least 1."""
    for word, value in counts.items():
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise Unsuitable(family, f"{word} {value!r}", "it is a count", f"{word} 1 or more")
        if value < 1:
            raise Unsuitable(family, f"{word} {value}", "it needs at least 1", f"{word} 1 or more")


def require_even_ranks(family: str, ranks: int) -> None:
    """Raise Unsuitable unless the two directions can meet in the middle."""
    if ranks % 2:
        nearest = " or ".join(str(even) for even in (ranks - 1, ranks + 1) if even)
        raise Unsuitable(family, f"{ranks} ranks", "two directions need an even number", f"{nearest} ranks")
