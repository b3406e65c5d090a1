"""What the formats share: their errors, and a schedule from parsed orders with sane numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipesim.errors import PipesimError
from pipesim.ir.action import Action, MalformedAction, parse_group
from pipesim.ir.atoms import Atoms
from pipesim.ir.placement import Placement
from pipesim.ir.schedule import Schedule

_MOST_GAPS = 10_000  # actions a file may lack and still be read, so that the checker can name them


@dataclass(eq=False)
class MalformedFile(PipesimError):
    """A file that is not a schedule: where in it, and what is wrong there."""

    source: str
    where: str
    problem: str

    def __str__(self) -> str:
        return f"{self.source}{', ' if self.where else ''}{self.where}: {self.problem}"


@dataclass(eq=False)
class CannotExpress(PipesimError):
    """A schedule that does something which a format has no words for."""

    format: str
    what: str

    def __str__(self) -> str:
        return f"{self.format} cannot express {self.what}; write a .json or .txt file instead"


def parse_row(texts: Sequence[str], source: str, rank: int) -> list[tuple[Action, ...]]:
    """The groups of one rank. Raises MalformedFile that names the place."""
    groups = []
    for place, text in enumerate(texts):
        try:
            groups.append(parse_group(text))
        except MalformedAction as error:
            raise MalformedFile(source, f"rank {rank}, action {place + 1}", str(error)) from None
    return groups


def infer_placement(rows: Sequence[Atoms]) -> tuple[int, ...]:
    """Each stage on the first rank that does anything of it."""
    found: dict[int, int] = {}
    for rank, row in enumerate(rows):
        for stage in np.unique(row.stage).tolist():
            found.setdefault(stage, rank)
    return tuple(found.get(stage, -1) for stage in range(max(found) + 1))


def assemble(
    source: str,
    name: str,
    rows: Sequence[Atoms],
    *,
    placement: tuple[int, ...] | None = None,
    chains: int = 1,
    microbatches: int | None = None,
    slices: int | None = None,
    **more: Any,
) -> Schedule:
    """A schedule whose numbers are possible; what is missing is found from the orders.

    Raises MalformedFile; whether the schedule is right is the checker's question.
    """
    empty = next((rank for rank, row in enumerate(rows) if not len(row)), None)
    if not rows or empty is not None:
        raise MalformedFile(source, "", "no rank has any action" if not rows else f"rank {empty} has no action")
    stages = max(int(row.stage.max()) for row in rows) + 1
    _require_size(source, f"stage {stages - 1}", stages, rows)
    ranks_of_stages = infer_placement(rows) if placement is None else placement
    _require_placement(source, ranks_of_stages, len(rows), chains)
    counts = {
        "microbatches": _count(rows, "microbatch") if microbatches is None else microbatches,
        "slices": _count(rows, "slice") if slices is None else slices,
    }
    needed = len(ranks_of_stages) // chains * counts["microbatches"] * counts["slices"]
    said = f"{counts['microbatches']} microbatches on {len(ranks_of_stages)} stages"
    _require_size(source, said, needed, rows)
    return Schedule.of_rows(
        name, Placement(ranks_of_stages, chains), counts["microbatches"], rows, slices=counts["slices"], **more
    )


def _count(rows: Sequence[Atoms], column: str) -> int:
    return max(int(getattr(row, column).max()) for row in rows) + 1


def _require_size(source: str, said: str, needed: int, rows: Sequence[Atoms]) -> None:
    """Refuse numbers that would make huge tables for few actions."""
    actions = sum(map(len, rows))
    if needed > actions + _MOST_GAPS:
        raise MalformedFile(source, "", f"{said} need at least {needed} actions, but only {actions} are there")


def _require_placement(source: str, ranks_of_stages: tuple[int, ...], ranks: int, chains: int) -> None:
    lost = next((stage for stage, rank in enumerate(ranks_of_stages) if not 0 <= rank < ranks), None)
    if lost is not None:
        raise MalformedFile(source, "", f"stage {lost} is on none of the {ranks} ranks")
    idle = next((rank for rank in range(ranks) if rank not in ranks_of_stages), None)
    if idle is not None:
        raise MalformedFile(source, "", f"no stage is placed on rank {idle}")
    if len(ranks_of_stages) % chains:
        raise MalformedFile(source, "", f"{len(ranks_of_stages)} stages are not {chains} replicas of one model")
