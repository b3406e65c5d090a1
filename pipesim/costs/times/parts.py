"""A stage's time in named pieces."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

COMMUNICATION = ("tensor", "context", "expert", "data", "vocabulary")


@dataclass(frozen=True, slots=True)
class Part:
    """Seconds of one piece of work for one microbatch on one rank."""

    name: str
    group: str
    """"matmul", "attention", "memory", "recompute", "host", or one of `COMMUNICATION`."""
    forward_s: float
    input_s: float
    weight_s: float = 0.0

    @property
    def total_s(self) -> float:
        """Forward and backward."""
        return self.forward_s + self.input_s + self.weight_s

    @property
    def backward_s(self) -> float:
        """Both gradients."""
        return self.input_s + self.weight_s

    def times(self, count: float) -> Part:
        """So many of it."""
        return Part(self.name, self.group, self.forward_s * count, self.input_s * count, self.weight_s * count)


def add_up(parts: Iterable[Part]) -> tuple[Part, ...]:
    """One part a name, in order of appearance."""
    found: dict[str, Part] = {}
    for part in parts:
        old = found.get(part.name)
        if old is not None:
            part = Part(
                part.name,
                part.group,
                old.forward_s + part.forward_s,
                old.input_s + part.input_s,
                old.weight_s + part.weight_s,
            )
        found[part.name] = part
    return tuple(found.values())
