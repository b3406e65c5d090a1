"""How training frameworks spend time beside matrix products: fused or separate kernels, overlap, host work.

What is fused, copied and overlapped is read from the frameworks' public sources; the host's times are fitted
(`catalog/fitted.yaml`, `frameworks`). Bytes are those that kernels read and write in 16-bit training.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from pipesim.costs.catalog_files import read_catalogue
from pipesim.costs.layouts.frameworks import closest_framework
from pipesim.ir.program import Comm

Accumulation = Literal["fused", "half", "fp32"]
"""A microbatch's weight gradient: added to the fp32 sum inside the product, or by kernels of their own."""

ACCUMULATION_BYTES: dict[Accumulation, float] = {"fused": 0.0, "half": 6.0, "fp32": 10.0}
"""Per parameter and microbatch: read two and write one in 16 bits; read 16 and 32 bits, write 32 bits."""

USUAL_TENSOR_OVERLAP = 0.7
"""Share of gathers and scatters that pieces of products hide, where a framework cuts them up for it (estimate)."""


@dataclass(frozen=True, kw_only=True)
class Habits:
    """One framework's way of running a step."""

    fused: bool = True
    """Gated activation and rotary embedding are one kernel each; else torch operations one after the other."""
    copies: float = 1.0
    """How often queries, keys, values and result are copied around fused attention."""
    loss: tuple[float, float] = (38.0, 14.0)
    """Bytes a logit that the loss moves forward and backward."""
    accumulation: Accumulation = "fused"
    tensor_overlap: float = 0.0
    """Share of tensor-parallel communication that runs behind products."""
    reduce_behind_weights: bool = False
    """The backward's tensor-parallel reductions run behind the products of weight gradients."""
    reduce_overlap: bool = False
    """Gradients are reduced in buckets while the last backward goes on."""
    gather_overlap: bool = False
    """Updated weights are gathered while the next forward goes on."""
    reduce_bytes: float | None = None
    """Of one gradient on the network; None: as it is accumulated."""
    comm: Comm = "blocking"
    interleaved_comm: Comm = "edge"
    layer_host_s: float = 0.0
    """Host time of one layer's forward; the backward takes as long."""
    message_host_s: float = 0.0
    """What sending and receiving through the framework adds to the latency of a message."""
    step_host_s: float = 0.0
    """Host time of one step: data, gradient norm, logging."""


_HABITS: dict[str, Habits] = {
    # async_tensor_model_parallel_allreduce, fused_bias_gelu, fused_bias_dropout, gradient_accumulation_fusion;
    # vocab_parallel_cross_entropy: float, max, subtract, exp, sum, divide; then times the gradient, half.
    "megatron-lm": Habits(reduce_behind_weights=True, interleaved_comm="rank"),
    # Transformer Engine, cross_entropy_loss_fusion.
    "megatron-core": Habits(
        copies=0.0, loss=(14.0, 10.0), reduce_behind_weights=True, reduce_overlap=True, gather_overlap=True
    ),
    # tp_comm_overlap beside overlap_grad_reduce and overlap_param_gather.
    "nemo": Habits(
        copies=0.0,
        loss=(14.0, 10.0),
        reduce_behind_weights=True,
        tensor_overlap=USUAL_TENSOR_OVERLAP,
        reduce_overlap=True,
        gather_overlap=True,
    ),
    # Gradients accumulate by autograd in fp16; reduced after the last backward.
    "megatron-deepspeed": Habits(accumulation="half"),
    # nn/activations.py: silu and product apart; optim/gradient_accumulator.py: hooks add to fp32, whose reduction
    # waits for the last of them.
    "nanotron": Habits(fused=False, copies=2.0, accumulation="fp32"),
    # torch's GELU; flash-attention's loss works in place on the logits; weights gathered a layer ahead.
    "fsdp": Habits(
        fused=False, copies=1.0, loss=(6.0, 4.0), accumulation="half", reduce_overlap=True, gather_overlap=True
    ),
    # Pipeline instructions and ZeRO as in DeepSpeed; plain torch modules.
    "aleph-alpha-scaling": Habits(fused=False, copies=2.0, accumulation="half"),
}


@cache
def habits_of(framework: str) -> Habits:
    """Habits of the framework that a free text means."""
    name = closest_framework(framework).name
    base, fitted = _HABITS[name], read_catalogue("fitted.yaml")["frameworks"].get(name, {})
    return Habits(
        **{
            **{field: getattr(base, field) for field in base.__dataclass_fields__},
            "layer_host_s": fitted.get("layer_us", 0.0) * 1e-6,
            "message_host_s": fitted.get("message_us", 0.0) * 1e-6,
            "step_host_s": fitted.get("step_ms", 0.0) * 1e-3,
        }
    )
