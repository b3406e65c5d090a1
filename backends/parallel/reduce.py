"""Gradients summed over those who hold the same weights: data-parallel replicas, twins, tied weights.

A bucket is a layer. Where the last backward of a stage is whole, each bucket's sum starts as soon as its gradients
are complete, behind the rest of that backward (as in DDP, Li et al. 2006.15704); else all start after it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate

from pipesim.backends.memory import local

Copies = tuple[nn.Parameter, ...]  # of one weight on this rank, the first of them counted


class Bucket:
    """Weights whose gradients are summed in one message (one of each type) over `group`, and over their copies."""

    def __init__(self, weights: Sequence[Copies], group: dist.ProcessGroup | None, *, early: bool = False) -> None:
        self.weights, self.group = list(weights), group
        self.begun = False
        self._works: list[Any] = []
        self._flat: list[tuple[list[Copies], Tensor]] = []
        self._missing = 0  # gradients that have yet to come before the sum begins by itself; 0: it does not
        for copies in self.weights if early else ():
            copies[0].register_post_accumulate_grad_hook(self._arrived)  # type: ignore[no-untyped-call]

    def arm(self) -> None:
        """The next backward is the last: begin when every gradient of this bucket has come."""
        self._missing = len(self.weights)

    def _arrived(self, weight: Tensor) -> None:
        if self._missing:
            self._missing -= 1
            if self._missing == 0:
                self.begin()

    def begin(self) -> None:
        """Start the sum, if it has not been."""
        if self.begun:
            return
        self.begun, self._missing = True, 0
        by_type: dict[torch.dtype, list[Copies]] = {}
        for copies in self.weights:
            by_type.setdefault(copies[0].dtype, []).append(copies)
        for weights in by_type.values():
            flat = torch.cat([_sum(copies).flatten() for copies in weights])
            if self.group is not None:
                self._works.append(dist.all_reduce(flat, group=self.group, async_op=True))
            self._flat.append((weights, flat))

    def end(self) -> None:
        """Wait for it; the gradients are sums now, in every copy."""
        for work in self._works:
            work.wait()
        for weights, flat in self._flat:
            parts = torch.split(flat, [local(copies[0]).numel() for copies in weights])
            for copies, part in zip(weights, parts, strict=True):
                for weight in copies:
                    _gradient(weight).copy_(part.view_as(local(weight)))
        self.begun, self._works, self._flat = False, [], []


def _gradient(weight: nn.Parameter) -> Tensor:
    """This rank's part of the gradient; zeros where no backward has reached the weight."""
    if weight.grad is None:
        weight.grad = torch.zeros_like(weight)
    return local(weight.grad)


def _sum(copies: Copies) -> Tensor:
    total = _gradient(copies[0])
    for copy in copies[1:]:
        total = total + _gradient(copy)
    return total


class Replicated:
    """The buckets of one stage; the last one is what belongs to no layer.

    copies: modules of this rank with the same weights (two of them where both directions of a schedule meet).
    apart: names of weights that are summed elsewhere.
    """

    def __init__(
        self,
        copies: Sequence[nn.Module],
        units: Sequence[nn.Module],
        group: dist.ProcessGroup | None,
        *,
        early: bool,
        apart: Collection[str] = (),
    ) -> None:
        self._group, self._agreed = group, False
        self.twins = len(copies) > 1
        module = copies[0]
        others_of = {id(first): others for first, *others in zip(*(copy.parameters() for copy in copies), strict=True)}
        taken = {id(weight) for name, weight in module.named_parameters() if name in apart}
        self.buckets: list[Bucket] = []
        for part in (*units, module):
            weights = [weight for weight in part.parameters() if weight.requires_grad and id(weight) not in taken]
            taken |= set(map(id, weights))
            if weights:
                found = [(weight, *others_of[id(weight)]) for weight in weights]
                self.buckets.append(Bucket(found, group, early=early and part is not module))

    def before_last_backward(self) -> None:
        """See `Bucket.arm`."""
        for bucket in self.buckets if self._agreed else ():
            bucket.arm()

    def begin(self) -> None:
        """Start what has not been started."""
        if not self._agreed:
            self._agree()
        for bucket in self.buckets:
            bucket.begin()

    def end(self) -> None:
        """Wait for all."""
        for bucket in self.buckets:
            bucket.end()

    def _agree(self) -> None:
        """Leave out what no backward on any rank has reached in the first step: its gradient stays None."""
        self._agreed = True
        weights = [copies for bucket in self.buckets for copies in bucket.weights]
        reached = torch.tensor([float(any(weight.grad is not None for weight in copies)) for copies in weights])
        if self._group is not None and weights:
            reached = reached.to(local(weights[0][0]).device)
            dist.all_reduce(reached, group=self._group)
        left = iter(reached.tolist())
        for bucket in self.buckets:
            bucket.weights = [copies for copies in bucket.weights if next(left)]
        self.buckets = [bucket for bucket in self.buckets if bucket.weights]


def complete_over_tensor(weights: Iterable[nn.Parameter]) -> None:
    """Add up gradients of which every tensor-parallel rank has its own share (norms of parts of a sequence, …).

    All such weights of a stage go in one message of each type.
    """
    shares: dict[torch.dtype, list[tuple[nn.Parameter, DTensor]]] = {}
    for weight in weights:
        gradient = weight.grad
        if isinstance(weight, DTensor) and isinstance(gradient, DTensor) and gradient.placements != weight.placements:
            shares.setdefault(weight.dtype, []).append((weight, gradient))
    for pairs in shares.values():
        flat = torch.cat([local(gradient).flatten() for _, gradient in pairs])
        mesh = pairs[0][1].device_mesh
        dist.all_reduce(flat, group=mesh.get_group())
        parts = torch.split(flat, [local(gradient).numel() for _, gradient in pairs])
        for (weight, gradient), part in zip(pairs, parts, strict=True):
            whole = part.view_as(local(gradient))
            placements = (*(Replicate() for _ in gradient.placements),)
            weight.grad = DTensor.from_local(whole, mesh, placements, run_check=False)
