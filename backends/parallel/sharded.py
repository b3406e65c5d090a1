"""Weights, gradients and optimizer states in parts over data-parallel ranks: torch's FSDP2, placed by a schedule.

FSDP2 gathers and reduces in hooks of whole forwards and backwards. A pipeline runs many of them, in halves, before
one step; so reduction is off during them and is asked for once, in the schedule's own reduction, by a pass through
the outermost module that computes nothing: its hooks then reduce all that has been accumulated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

ZERO_3 = 3


class Whole(nn.Module):
    """The outermost module: what it holds, or, for the pass that computes nothing, only its hooks."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **named: Any) -> Any:
        if not args and not named:
            return torch.zeros((), requires_grad=True) * 1.0
        return self.module(*args, **named)


class Sharded:
    """One stage in parts over `mesh` (one dimension, dp).

    zero_stage 1 and 2: weights are gathered once a step and freed with the reduction (of which 2 keeps parts only).
    3: gathered before every forward and backward, freed after it.
    units: modules whose weights are gathered and reduced together; the rest of the stage is one more.
    """

    def __init__(
        self,
        module: nn.Module,
        units: Sequence[nn.Module],
        mesh: DeviceMesh,
        *,
        zero_stage: int,
        compute_dtype: torch.dtype | None = None,
    ) -> None:
        self.zero_stage = zero_stage
        policy = MixedPrecisionPolicy(param_dtype=compute_dtype, reduce_dtype=torch.float32 if compute_dtype else None)
        free = zero_stage >= ZERO_3
        parts = [*units, module]
        self._shards = [fully_shard(part, mesh=mesh, reshard_after_forward=free, mp_policy=policy) for part in parts]
        self.outer: Any = fully_shard(Whole(module), mesh=mesh, mp_policy=policy)
        for shard in self._shards:
            shard.set_gradient_divide_factor(1.0)  # the losses are weighted over all replicas already
            shard.set_force_sum_reduction_for_comms(True)  # gloo has no scaled sum
        self._fetch_one_ahead()
        self._between_reductions()

    def _fetch_one_ahead(self) -> None:
        """In the backward of a layer gather the one before it; by default it is the one that ran before it."""
        for before, shard in zip([self._shards[0], *self._shards], self._shards[:-1], strict=False):
            shard.set_modules_to_backward_prefetch([before])
        self._shards[-1].set_modules_to_backward_prefetch([self._shards[-2] if len(self._shards) > 1 else self.outer])

    def _between_reductions(self) -> None:
        self.outer.set_requires_gradient_sync(False)
        self.outer.set_is_last_backward(False)
        self.outer.set_reshard_after_backward(self.zero_stage >= ZERO_3)

    def before_last_backward(self) -> None:
        """Let the next whole backward reduce, layer by layer, behind its own computation."""
        self.outer.set_requires_gradient_sync(True)
        self.outer.set_is_last_backward(True)
        self.outer.set_reshard_after_backward(True)

    def reduce(self) -> None:
        """Reduce what has not been yet, and free the gathered weights."""
        self.before_last_backward()
        nothing: Tensor = self.outer()
        torch.autograd.backward(nothing)
        self._between_reductions()

    @property
    def shards(self) -> Sequence[FSDPModule]:
        """The modules that gather and reduce together."""
        return self._shards
