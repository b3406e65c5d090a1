"""`Costs`: how long each action takes, how large each message is, how much each stage holds.

Whoever makes them (plain numbers, the analytic estimate, a measured profile), engines read only this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pipesim.costs.network import Network
from pipesim.errors import PipesimError
from pipesim.ir.action import Kind
from pipesim.ir.atoms import Ints
from pipesim.ir.needs import Flow

Floats = NDArray[np.float64]


@dataclass(eq=False)
class NoCost(PipesimError):
    """A schedule has a kind of action whose time was not given."""

    kind: str
    given: str

    def __str__(self) -> str:
        return (
            f"the schedule has {self.kind} actions, but costs give only {self.given}: "
            f"give {'I and W' if self.kind in 'IW' else self.kind} (e.g. F=10ms,I=10ms,W=5ms)"
        )


@dataclass(eq=False)
class WrongStages(PipesimError):
    """Costs made for another number of stages."""

    what: str
    given: int
    stages: int

    def __str__(self) -> str:
        return f"{self.what} has {self.given} values for {self.stages} stages: give one number, or {self.stages}"


@dataclass(frozen=True, eq=False)
class StageBytes:
    """Bytes each stage keeps on its rank; every array is (stages,).

    activation: of one microbatch, taken at its forward and given back at its backward; of a split
        backward the part `released_at_input` (0 … 1) at the input gradient, the rest at the weight gradient.
    workspace: held only while an action of the stage runs (logits, temporary tensors).
    overhead: (ranks,) of framework and communication buffers; limit: (ranks,) of the device, if known.
    """

    weights: Floats
    gradients: Floats
    optimizer: Floats
    activation: Floats
    released_at_input: Floats
    workspace: Floats
    overhead: Floats
    limit: Floats | None = None


@dataclass(frozen=True)
class Work:
    """What one step of the whole job does, for throughput and utilisation.

    model_flops: of one step, by the model's formula (no recompute). peak_flops: FLOP/s of one GPU.
    """

    tokens: float
    gpus: int
    model_flops: float
    peak_flops: float


@dataclass(frozen=True, eq=False)
class Costs:
    """Seconds, bytes sent and bytes held.

    seconds: by kind (F, B, I, W); each array broadcasts to (stages, microbatches, slices).
    pair_s: seconds of a fused pair by the stage of its forward; None: F + B - overlap · min(F, B).
    tensor_comm_s: the part of `seconds` that is tensor-parallel communication, for the report; by kind.
    message_bytes: by flow, of the stage that sends; broadcasts like `seconds`.
    reduce_bytes, reduce_s: (stages,) of gradient reduction over its route, and a fixed time beside it.
    optimizer_s: (stages,) of one optimizer step.
    host_s: host time that every action adds before it starts.
    """

    stages: int
    seconds: Mapping[Kind, Floats]
    pair_s: Floats | None = None
    overlap: float = 0.0
    tensor_comm_s: Mapping[Kind, Floats] = field(default_factory=dict)
    message_bytes: Mapping[Flow, Floats] = field(default_factory=dict)
    network: Network = Network()
    reduce_bytes: Floats | None = None
    reduce_s: Floats | None = None
    optimizer_s: Floats | None = None
    host_s: float = 0.0
    held: StageBytes | None = None
    work: Work | None = None

    def of_kind(self, kind: Kind) -> Floats:
        """Seconds of a kind; a B that was not given is I + W. Raises NoCost."""
        if kind in self.seconds:
            return self.seconds[kind]
        if kind == Kind.B and Kind.I in self.seconds and Kind.W in self.seconds:
            dims = max(self.seconds[kind].ndim for kind in (Kind.I, Kind.W))
            whole: Floats = _spread(self.seconds[Kind.I], dims) + _spread(self.seconds[Kind.W], dims)
            return whole
        raise NoCost(kind.name, ", ".join(known.name for known in self.seconds))


def at(values: Floats, stage: Ints, microbatch: Ints, slice_: Ints) -> Floats:
    """Pick from an array that broadcasts to (stages, microbatches, slices)."""
    full = _spread(values, 3)
    places = (stage, microbatch, slice_)
    picked: Floats = full[tuple(places[axis] * (full.shape[axis] > 1) for axis in range(3))]
    return picked


def _spread(values: Floats, dims: int) -> Floats:
    """The same array with axes of length 1 at its end, as `seconds` broadcasts: stages come first."""
    return values.reshape(values.shape + (1,) * (dims - values.ndim))
