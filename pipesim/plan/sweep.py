"""Every combination of some varied values: what is varied, and in which steps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from pipesim.errors import PipesimError

_RANGE = re.compile(r"(\d+):(\d+)(?::(x?)(\d+))?")
_MOST = 10_000


@dataclass(eq=False)
class BadVary(PipesimError):
    """Something to vary that cannot be read."""

    given: str
    reason: str

    def __str__(self) -> str:
        return f"--vary {self.given}: {self.reason}; expected e.g. microbatches=8:256:x2 or schedule=1f1b,zb-v"


@dataclass(frozen=True)
class Vary:
    """One argument and the values it takes, in order."""

    name: str
    values: tuple[str, ...]


def parse_vary(text: str) -> Vary:
    """Read `name=1,2,4`, `name=8:256:x2` (times 2 up to 256), `name=2:10:4` (plus 4), `name=2:5` (plus 1).

    Values that have commas themselves are parted by `|`. Raises BadVary.
    """
    name, equals, values = text.partition("=")
    name = name.strip().lstrip("-")
    if not equals or not name or not values.strip():
        raise BadVary(text, "not a name and values")
    separator = "|" if "|" in values else ","
    parts = tuple(part.strip() for part in values.split(separator))
    found = tuple(value for part in parts for value in _values(text, part))
    if not all(found):
        raise BadVary(text, "a value is empty")
    if len(set(found)) < len(found):
        raise BadVary(text, "a value is there twice")
    return Vary(name, found)


def _values(text: str, part: str) -> tuple[str, ...]:
    found = _RANGE.fullmatch(part)
    if found is None:
        return (part,)
    first, last = int(found[1]), int(found[2])
    factor, step = bool(found[3]), int(found[4] or 1)
    if last < first:
        raise BadVary(text, f"{last} is less than {first}")
    if step < (2 if factor else 1) or (factor and first == 0):
        raise BadVary(text, f"steps of {found[3] or ''}{step} from {first} never end")
    values = [first]
    while (after := values[-1] * step if factor else values[-1] + step) <= last:
        values.append(after)
        if len(values) > _MOST:
            raise BadVary(text, f"more than {_MOST} values")
    return tuple(map(str, values))


def combinations(varied: Sequence[Vary]) -> Iterator[dict[str, str]]:
    """All combinations, the last one's values changing fastest. Raises BadVary for too many, or a name twice."""
    names = [vary.name for vary in varied]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadVary(f"{twice}=…", "it is varied twice")
    total = 1
    for vary in varied:
        total *= len(vary.values)
    if total > _MOST:
        raise BadVary(", ".join(names), f"{total:,} combinations are more than {_MOST:,}")
    for values in product(*(vary.values for vary in varied)):
        yield dict(zip(names, values, strict=True))
