"""Values of a row of a table of runs: numbers and free texts that anyone may have written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipesim.errors import PipesimError

Row = Mapping[str, object]

_MOST = 1_000_000_000  # of anything that is counted: far more would not fit in 64 bits when multiplied


@dataclass(eq=False)
class BadRow(PipesimError):
    """A row with something else where a count belongs."""

    key: str
    value: object
    least: int

    def __str__(self) -> str:
        shown = repr(self.value)
        shown = shown if len(shown) <= 40 else shown[:40] + "…"
        return f"{self.key}={shown} must be a whole number; {self.least} to {_MOST:,} work for {self.key}"


def count_of(row: Row, key: str, default: int | None = None, *, least: int = 1) -> int:
    """A count; 8.0 is one, too. default: where the row does not say. Raises BadRow."""
    value = row.get(key)
    if value is None and default is not None:
        return default
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
        raise BadRow(key, value, least)
    return value


def words_of(row: Row, key: str) -> str:
    """A text in lower case; an empty one where there is none."""
    value = row.get(key)
    return value.lower() if isinstance(value, str) else ""
