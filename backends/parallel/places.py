"""Who is where: one `DeviceMesh` from a `Layout`, its ranks in the order that is simulated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from pipesim.costs.layouts.groups import rank_groups
from pipesim.costs.layouts.layout import BadLayout, Layout
from pipesim.errors import PipesimError

DIMENSIONS = ("pp", "dp", "tp")
_WORDS = {"pp": "pipeline", "dp": "data", "tp": "tensor"}

dimension_of_group: dict[str, str] = {}
"""What each process group made here is for, by its name. Torch takes equal meshes of a process for one."""


_told: list[str] = []


@contextmanager
def counted_as(dimension: str) -> Iterator[None]:
    """Context whose collectives are of this dimension, whatever the group (one of all ranks may be for several)."""
    _told.append(dimension)
    try:
        yield
    finally:
        _told.pop()


def dimension_of(group: str) -> str:
    """What a collective on the process group of that name is for now."""
    return _told[-1] if _told else dimension_of_group.get(group, "job")


@dataclass(eq=False)
class WrongWorld(PipesimError):
    """Another number of processes than the layout has ranks."""

    layout: str
    ranks: int
    processes: int
    fitting: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"layout {self.layout} is for {self.ranks} processes, there are {self.processes}; "
            f"with {self.processes}: {' or '.join(self.fitting)}"
        )


@dataclass(frozen=True, eq=False)
class Places:
    """This process in the job: the mesh has dimensions pp, dp and tp."""

    layout: Layout
    mesh: DeviceMesh

    @property
    def pp_rank(self) -> int:
        return self.mesh["pp"].get_local_rank()

    @property
    def dp_rank(self) -> int:
        return self.mesh["dp"].get_local_rank()

    @property
    def tp_rank(self) -> int:
        return self.mesh["tp"].get_local_rank()

    @cached_property
    def pipelines(self) -> tuple[tuple[int, ...], ...]:
        """Global ranks of each pipeline, by pipeline rank: dp · tp of them, side by side."""
        grid = self.mesh.mesh.flatten(1).T
        return tuple(tuple(row) for row in grid.tolist())

    @cached_property
    def pipeline(self) -> tuple[int, ...]:
        """Global ranks of the pipeline that this process is in."""
        mine = dist.get_rank()
        return next(row for row in self.pipelines if mine in row)

    def new_groups(self, holders: Sequence[int], *, across: Sequence[str] = ()) -> dist.ProcessGroup | None:
        """This process's group of the pipeline ranks `holders`, over all of the dimensions `across`.

        All processes of the job call this in the same order; None where it would have one member, or not this one.
        """
        mine, rank = None, dist.get_rank()
        cells = self.mesh.mesh[list(holders)]  # (holders, dp, tp)
        rows = cells.permute(2, 0, 1).flatten(1) if "dp" in across else cells.flatten(1).T
        for row in rows.tolist() if rows.shape[1] > 1 else []:
            group = dist.new_group(sorted(row))
            if rank in row:
                mine = group
                dimension_of_group[group.group_name] = "data" if across else "pipeline"
        return mine

    def group(self, dimension: str) -> dist.ProcessGroup:
        """Those who differ from this process along one dimension only."""
        return self.mesh[dimension].get_group()


def make_places(layout: Layout, device: str = "cpu") -> Places:
    """The mesh of a layout; all processes of the job call this. Raises BadLayout, WrongWorld."""
    check_layout(layout, dist.get_world_size())
    mesh = DeviceMesh(device, torch.from_numpy(grid(layout)), mesh_dim_names=DIMENSIONS)
    for axis in DIMENSIONS:
        dimension_of_group[mesh[axis].get_group().group_name] = _WORDS[axis]
    return Places(layout, mesh)


def grid(layout: Layout) -> np.ndarray:
    """Global rank at each (pp, dp, tp), from the groups that the simulator has."""
    found = np.empty((layout.pp, layout.dp, layout.tp), np.int64)
    place = {
        axis: {int(rank): index for row in rank_groups(layout, axis) for index, rank in enumerate(row)}
        for axis in DIMENSIONS
    }
    for rank in range(layout.gpus):
        found[tuple(place[axis][rank] for axis in DIMENSIONS)] = rank
    return found


def check_layout(layout: Layout, processes: int) -> None:
    """Raises BadLayout for what can only be simulated, WrongWorld for another number of processes."""
    for axis in ("cp", "ep"):
        if getattr(layout, axis) > 1:
            raise BadLayout(f"{axis}={getattr(layout, axis)} can only be simulated", f"{axis}=1 works")
    if layout.gpus != processes:
        raise WrongWorld(short(layout), layout.gpus, processes, fitting(layout, processes))


def fitting(layout: Layout, processes: int) -> tuple[str, ...]:
    """Layouts for so many processes, those that keep most of the given one first; at most three."""
    found = []
    for pp in range(1, processes + 1):
        for tp in range(1, processes // pp + 1):
            if processes % (pp * tp) == 0:
                dp = processes // (pp * tp)
                changed = (pp != layout.pp) + (tp != layout.tp) + (dp != layout.dp)
                far = abs(np.log2(pp / layout.pp)) + abs(np.log2(tp / layout.tp))
                found.append((changed, far, f"pp={pp},tp={tp},dp={dp}"))
    return tuple(text for _, _, text in sorted(found)[:3])


def short(layout: Layout) -> str:
    """As it is given on a command line."""
    return f"pp={layout.pp},tp={layout.tp},dp={layout.dp}"


def of_stages(layout: Layout, stages: int) -> Layout:
    """The layout with so many stages, its virtual stages among them."""
    return replace(layout, virtual=stages // layout.pp)
