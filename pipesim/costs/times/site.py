"""Where work happens: one rank with all that its times depend on."""

from __future__ import annotations

from dataclasses import dataclass

from pipesim.costs.clusters.cluster import Cluster
from pipesim.costs.clusters.gpu import Gpu
from pipesim.costs.layouts.layout import Layout
from pipesim.costs.models.model import Model
from pipesim.costs.times.habits import Habits


@dataclass(frozen=True)
class Groups:
    """Devices of each group of one rank; data: those that hold the same weights, context-parallel ones too."""

    tensor: tuple[int, ...]
    context: tuple[int, ...]
    expert: tuple[int, ...]
    data: tuple[int, ...]
    pipeline: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Site:
    """What is trained, how it is split, by which framework, on which GPU of which cluster, and with whom it talks."""

    model: Model
    layout: Layout
    cluster: Cluster
    habits: Habits
    gpu: Gpu
    groups: Groups
