"""Which global ranks work together: the members of every parallel group, from the rank order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipesim.costs.layouts.layout import Layout

Ranks = NDArray[np.int64]


def rank_groups(layout: Layout, *axes: str) -> Ranks:
    """Members of each group along one or several of "tp", "cp", "dp", "pp": one row a group, ranks ascending.

    Ranks count up along the first axis of `layout.rank_order` first, as in Megatron-LM.
    """
    sizes = {"tp": layout.tp, "cp": layout.cp, "dp": layout.dp, "pp": layout.pp}
    return _groups([axis for axis in layout.rank_order.split("-") if axis != "ep"], sizes, axes)


def expert_groups(layout: Layout, *axes: str) -> Ranks:
    """The same inside expert layers: axes "tp" (of an expert), "ep", "dp" (replicas of it) and "pp"."""
    sizes = {"tp": layout.expert_shards, "ep": layout.ep, "dp": layout.expert_data, "pp": layout.pp}
    return _groups([axis for axis in layout.rank_order.split("-") if axis != "cp"], sizes, axes)


def _groups(order: list[str], sizes: dict[str, int], axes: tuple[str, ...]) -> Ranks:
    unknown = [axis for axis in axes if axis not in sizes]
    if unknown:
        raise ValueError(f"axis {unknown[0]!r} is none of {', '.join(sizes)}")
    slowest_first = order[::-1]
    grid = np.arange(np.prod([sizes[axis] for axis in order])).reshape([sizes[a] for a in slowest_first])
    inside = [i for i, axis in enumerate(slowest_first) if axis in axes]
    outside = [i for i, axis in enumerate(slowest_first) if axis not in axes]
    members = int(np.prod([sizes[axis] for axis in axes], dtype=np.int64))
    return grid.transpose(outside + inside).reshape(-1, members).astype(np.int64)


def pipeline(layout: Layout, *, replica: int = 0) -> tuple[int, ...]:
    """Global rank of each pipeline rank, for one of the tp · cp · dp pipelines that run side by side."""
    return tuple(int(rank) for rank in rank_groups(layout, "pp")[replica])
