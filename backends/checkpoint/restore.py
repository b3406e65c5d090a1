"""Loading the newest checkpoint that is whole, at any layout."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.state_dict_loader import load

from pipesim.backends.checkpoint.description import Description, check_file, read_description
from pipesim.backends.checkpoint.folder import steps_in
from pipesim.backends.checkpoint.storage import FolderReader
from pipesim.backends.checkpoint.tensors import Held, OtherModel, copy_to_twins, make_room
from pipesim.errors import PipesimError
from pipesim.files import CannotRead

log = logging.getLogger("pipesim.checkpoint")


@dataclass(eq=False)
class NothingWhole(PipesimError):
    """A folder of checkpoints of which none can be read."""

    root: str
    problems: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"none of the {len(self.problems)} checkpoints in {self.root} can be read ({'; '.join(self.problems)}): "
            "give another folder to begin anew"
        )


@dataclass(frozen=True)
class Found:
    """A checkpoint that is whole."""

    place: Path
    description: Description


def find_newest(root: Path) -> Found | None:
    """The newest checkpoint whose files are what was written; None in a folder without any.

    All ranks of the job call this (or one process alone): each checks some of the files.
    Raises NothingWhole.
    """
    places: Any = [list(steps_in(root).values())]
    if dist.is_initialized():
        dist.broadcast_object_list(places)  # what rank 0 sees is what all try
    problems: list[str] = []
    for place in places[0]:
        found, own = _checked(place)
        problem = next((one for one in _of_all_ranks(own) if one is not None), None)
        if problem is None and found is not None:
            return Found(place, found)
        problems.append(str(problem))
        if not dist.is_initialized() or dist.get_rank() == 0:
            log.warning("checkpoint %s is passed over: %s", place.name, problem)
    if problems:
        raise NothingWhole(str(root), tuple(problems))
    return None


def _checked(place: Path) -> tuple[Description | None, str | None]:
    """This rank's share of the files of a checkpoint."""
    rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    try:
        description = read_description(place)
        for name in sorted(description.files)[rank::ranks]:
            check_file(place, name, description.files[name])
    except CannotRead as error:
        return None, str(error)
    return description, None


def _of_all_ranks(mine: str | None) -> list[str | None]:
    if not dist.is_initialized():
        return [mine]
    found: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(found, mine)
    return found


def load_into(held: Held, found: Found) -> None:
    """Fill weights, buffers and optimizer states of this rank; all ranks call this. Raises OtherModel, CannotRead."""
    problem: PipesimError | None = None
    room = {}
    try:
        room = make_room(held, found.description)
    except OtherModel as error:
        problem = error
    everyone: list[Any] = [(problem, set(room))] * dist.get_world_size()
    dist.all_gather_object(everyone, (problem, set(room)))
    for one, _ in everyone:
        if one is not None:
            raise one
    _require_all_used(found.description, set().union(*(names for _, names in everyone)))
    load(dict(room), storage_reader=FolderReader(found.place, found.description), planner=DefaultLoadPlanner())
    copy_to_twins(held)


def _require_all_used(description: Description, used: set[str]) -> None:
    for name in description.tensors:
        if name.startswith("weight/") and name not in used:
            raise OtherModel(name.partition("/")[2], "is in it, but not in this model")
