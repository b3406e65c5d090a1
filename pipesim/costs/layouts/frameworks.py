"""What training frameworks do differently: usual settings, and how they keep gradients, logits and buffers.

Habits are read from the frameworks' public sources, as noted at each. The two numbers that no source states,
fragments and fixed overhead, are estimates; Megatron-DeepSpeed's are fitted to 44 runs of the BLOOM project.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pipesim.costs.layouts.layout import SplitRule

GIB = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Framework:
    """One framework's habits. Bytes are per number, overheads per rank."""

    name: str
    words: tuple[str, ...]
    """Lower-case words by which a free text names it."""
    split: SplitRule = "even"
    zero_stage: int = 0
    sequence_parallel: bool = False
    vocabulary_over_tp: bool = True
    half: str = "bf16"
    """The precision meant where a text names both ("fp16/bf16")."""
    half_gradients: bool = False
    """A half-precision gradient of every weight lives beside the accumulated fp32 one."""
    fused_softmax: bool = True
    """Attention without flash has scale, mask and softmax in one kernel (Megatron's masked_softmax_fusion)."""
    fused_mlp: bool = True
    """The gated activation is one kernel that stores its input only, and repeats the rest in the backward."""
    scatters_messages: bool = False
    """Without sequence parallelism, tensor-parallel ranks send a part of the message each and gather it."""
    stored_logits_bytes: float = 4.0
    """Of one logit from the forward until the backward."""
    logits_bytes: float = 8.0
    """Of one logit at the peak, while loss and gradient are computed."""
    fragments: float = 0.05
    """Share of allocated memory that the caching allocator holds in vain."""
    overhead_bytes: float = 1.5 * GIB
    """CUDA context, libraries and communication buffers: what the allocator does not count."""
    reports: Literal["allocated", "device"] = "allocated"
    """What published figures count: the allocator's peak, or all that the device holds (nvidia-smi)."""


FRAMEWORKS: tuple[Framework, ...] = (
    # cross_entropy.py: fp32 logits, a second copy less their maximum, exp in place.
    Framework(name="megatron-lm", words=("megatron",), scatters_messages=True),
    # cross_entropy_loss_fusion: exp in place of the fp32 logits, then a half-precision gradient.
    Framework(
        name="megatron-core",
        words=("megatron-core", "megatron core", "0.1"),
        sequence_parallel=True,
        logits_bytes=6.0,
    ),
    # Megatron-core with the recipes of NeMo or Megatron-Bridge.
    Framework(name="nemo", words=("nemo", "megatron-bridge"), zero_stage=1, sequence_parallel=True, logits_bytes=6.0),
    # ZeRO-1 of fp16, and BF16_Optimizer, which accumulates in fp32 beside each bf16 gradient.
    Framework(
        name="megatron-deepspeed",
        words=("deepspeed",),
        zero_stage=1,
        half="fp16",
        half_gradients=True,
        fragments=0.15,
        overhead_bytes=5.0 * GIB,
        reports="device",
    ),
    # models/base.py: blocks by cost; optim/gradient_accumulator.py: fp32 beside each half gradient;
    # models/llama.py: gate in plain torch. Rows of unknown mode fit all-reduce, not reduce-scatter.
    Framework(
        name="nanotron",
        words=("nanotron",),
        split="cost-threshold",
        half_gradients=True,
        fused_mlp=False,
        fused_softmax=False,
        logits_bytes=10.0,
    ),
    Framework(
        name="fsdp",
        words=("fsdp", "foundry", "composer", "torchtitan", "mosaic"),
        zero_stage=3,
        fused_mlp=False,
        fused_softmax=False,
        logits_bytes=10.0,
        vocabulary_over_tp=False,
    ),
    Framework(name="aleph-alpha-scaling", words=("aa-scaling", "aleph"), zero_stage=1),
)
"""Later entries win where a text has words of several ("Megatron-DeepSpeed")."""


def closest_framework(text: str) -> Framework:
    """The framework a free text means; Megatron-LM's habits where it names none that is known."""
    low = text.lower()
    named = [framework for framework in FRAMEWORKS if any(word in low for word in framework.words)]
    return named[-1] if named else FRAMEWORKS[0]
