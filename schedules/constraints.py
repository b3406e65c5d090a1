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
