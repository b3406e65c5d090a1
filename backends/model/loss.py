"""Mean cross entropy of next tokens, also where the logits are spread over ranks by vocabulary."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard
from torch.nn import functional

IGNORED = -100  # a target that does not count


def token_loss(logits: Tensor, target: Tensor) -> Tensor:
    """Mean over the targets that count, in no less than float32."""
    flat = logits.flatten(0, 1)
    flat = flat.to(torch.promote_types(flat.dtype, torch.float32))
    return functional.cross_entropy(flat, target.flatten(), ignore_index=IGNORED)


def spread_loss(mesh: DeviceMesh) -> Callable[[Tensor, Tensor], Tensor]:
    """The same of logits of which each rank of `mesh` has a part; to be called inside `loss_parallel`.

    Per microbatch three all-reduces of a number a token: largest logit, sum of exponentials, logit of the target.
    """

    def loss(logits: Tensor, target: Tensor) -> Tensor:
        whole = DTensor.from_local(logits, mesh, [Shard(-1)], run_check=False)
        found = token_loss(whole, target)
        assert isinstance(found, DTensor)
        return found.to_local()

    return loss


def count_targets(target: Tensor) -> float:
    """How many targets count: the weight of a microbatch."""
    return float((target != IGNORED).sum())
