"""Placements by word, by numbers or from a file, and those that are tried when none is asked for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from pipesim.errors import PipesimError
from pipesim.files import read_text
from pipesim.ir.formats import SUFFIXES, read_schedule
from pipesim.ir.placement import Placement, bidirectional, linear, looped, vee, wave

WORDS = ("linear", "loop", "vee", "wave", "bidirectional")
_MOST_BYTES = 1 << 20


@dataclass(eq=False)
class BadPlacement(PipesimError):
    """A placement that cannot be had."""

    given: str
    reason: str

    def __str__(self) -> str:
        return (
            f"placement {self.given}: {self.reason}; expected {', '.join(WORDS)}, the rank of each stage as in "
            "0,1,1,0, or a file with that or with a schedule"
        )


def placement_of(text: str, *, ranks: int, virtual: int | None) -> Placement:
    """Read what --placement says. Raises BadPlacement, CannotRead."""
    made = _by_word(text, ranks, virtual) if text in WORDS else _by_numbers(text)
    if made.ranks != ranks:
        raise BadPlacement(text, f"it has {made.ranks} ranks, {ranks} were asked for")
    if virtual is not None and made.length != ranks * virtual:
        raise BadPlacement(text, f"it has {made.length} stages, {virtual} a rank make {ranks * virtual}")
    return made


def usual(*, ranks: int, virtual: int | None) -> tuple[Placement, ...]:
    """What is tried if no placement is asked for: stages in rounds over the ranks, and there and back."""
    if virtual is None:
        return (linear(ranks), vee(ranks), looped(ranks, 2))
    return (linear(ranks),) if virtual == 1 else (wave(ranks, virtual), looped(ranks, virtual))


def _by_word(word: str, ranks: int, virtual: int | None) -> Placement:
    stages = virtual or (1 if word in ("linear", "bidirectional") else 2)
    fixed = {"linear": 1, "bidirectional": 1, "vee": 2}.get(word, stages)
    if stages != fixed:
        raise BadPlacement(word, f"it has {fixed} stages a rank, {stages} were asked for")
    match word:
        case "linear":
            return linear(ranks)
        case "vee":
            return vee(ranks)
        case "bidirectional":
            return bidirectional(ranks)
        case "wave":
            return wave(ranks, stages)
        case _:
            return looped(ranks, stages)


def _by_numbers(text: str) -> Placement:
    if not text.replace(",", "").replace(" ", "").isdecimal():
        return _from_file(Path(text))
    return _checked(text, [int(part) for part in text.split(",") if part.strip()], 1)


def _from_file(path: Path) -> Placement:
    if path.suffix.lower() not in SUFFIXES:
        raise BadPlacement(str(path), "there is no such word, and no such kind of file")
    try:
        data = json.loads(read_text(path, at_most_bytes=_MOST_BYTES)) if path.suffix.lower() == ".json" else None
    except (ValueError, RecursionError) as error:
        raise BadPlacement(str(path), f"not JSON ({error})") from None
    if isinstance(data, list):
        return _checked(str(path), data, 1)
    return read_schedule(str(path)).placement


def _checked(text: str, ranks: list[object], chains: int) -> Placement:
    if not ranks or not all(isinstance(rank, int) and not isinstance(rank, bool) and rank >= 0 for rank in ranks):
        raise BadPlacement(text, "ranks are whole numbers of at least 0")
    numbers = [rank for rank in ranks if isinstance(rank, int)]
    known = set(numbers)
    without = next(rank for rank in range(len(known) + 1) if rank not in known)
    if without < max(numbers):
        raise BadPlacement(text, f"rank {without} has no stage")
    return Placement(tuple(numbers), chains)
