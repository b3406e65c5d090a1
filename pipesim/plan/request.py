"""What a planner is asked: the job, and what it may choose from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import get_args

from pipesim.costs.clusters.cluster import Cluster
from pipesim.costs.layouts.layout import Attention, Layout, Recompute, SplitRule
from pipesim.costs.models.model import Model
from pipesim.errors import PipesimError
from pipesim.ir.program import COMM_POLICIES, Comm
from pipesim.schedules.catalogue import FAMILIES

USUAL_SCHEDULES = ("1f1b", "interleaved", "zb-h1", "zb-v")
_AXES = ("tp", "pp", "dp", "cp", "ep", "micro_batch", "virtual")


@dataclass(eq=False)
class ImpossibleRequest(PipesimError):
    """A constraint that nothing can meet: which, and what could be."""

    constraint: str
    works: str

    def __str__(self) -> str:
        return f"{self.constraint}; {self.works}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Request:
    """A training job, and the choices to go through: None for all that make sense.

    max_memory_bytes: of one GPU; None for what the GPU has. tp_across_nodes: whether a tensor-parallel group
    may span nodes. comm: the lanes of transfers, as for `lower`.
    """

    model: Model
    cluster: Cluster
    global_batch: int
    seq: int
    precision: str = "bf16"
    framework: str = "megatron-lm"
    attention: Attention = "flash"
    max_memory_bytes: float | None = None
    schedules: tuple[str, ...] | None = None
    tp: tuple[int, ...] | None = None
    pp: tuple[int, ...] | None = None
    dp: tuple[int, ...] | None = None
    cp: tuple[int, ...] | None = None
    ep: tuple[int, ...] | None = None
    micro_batch: tuple[int, ...] | None = None
    virtual: tuple[int, ...] | None = None
    recompute: tuple[Recompute, ...] = ("none", "selective", "full")
    zero: tuple[int, ...] | None = None
    sequence_parallel: tuple[bool, ...] = (True, False)
    splits: tuple[SplitRule | tuple[int, ...], ...] = ("even", "balanced")
    tp_across_nodes: bool = False
    comm: Comm = "edge"
    known_splits: dict[object, tuple[int, ...] | None] = field(default_factory=dict, repr=False, init=False)

    def __post_init__(self) -> None:
        _check(self)

    @property
    def families(self) -> tuple[str, ...]:
        """Schedule families to try."""
        if self.schedules is not None:
            return self.schedules
        return tuple(name for name in USUAL_SCHEDULES if name in FAMILIES)

    @property
    def is_mixed(self) -> bool:
        """Whether the cluster's nodes differ."""
        return len({node.name for node in self.cluster.nodes}) > 1

    @property
    def memory_bytes(self) -> float:
        """Most that any rank may hold: what was given, and never more than the largest GPU has."""
        most = float(max(gpu.memory_bytes for gpu in self.cluster.gpus))
        return most if self.max_memory_bytes is None else min(most, self.max_memory_bytes)


def _check(request: Request) -> None:
    for axis in _AXES:
        values = getattr(request, axis)
        if values is not None and (not values or min(values) < 1):
            raise ImpossibleRequest(f"{axis} {list(values)}", f"give whole numbers from 1, e.g. {axis} 1,2,4")
    devices = request.cluster.devices
    for axis in ("tp", "pp", "dp", "cp"):
        values = getattr(request, axis)
        if values is not None and not any(devices % value == 0 for value in values):
            some = ", ".join(str(one) for one in range(1, devices + 1) if devices % one == 0)
            raise ImpossibleRequest(f"{axis} {list(values)} does not divide {devices} GPUs", f"{some[:80]} do")
    for name in request.families:
        family = FAMILIES.get(name)
        if family is None or not family.trains or not family.synchronous:
            known = ", ".join(one for one, other in FAMILIES.items() if other.trains and other.synchronous)
            raise ImpossibleRequest(f"schedule {name} cannot be planned with", f"these can: {known}")
    for word, given, known_words in (
        ("recompute", request.recompute, get_args(Recompute)),
        ("comm", (request.comm,), COMM_POLICIES),
    ):
        for one in given:
            if one not in known_words:
                raise ImpossibleRequest(f"{word} {one}", f"known: {', '.join(known_words)}")
    Layout(precision=request.precision, global_batch=request.global_batch, seq=request.seq)  # checks these
