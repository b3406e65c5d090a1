"""What training frameworks do differently: usual settings, and how they keep gradients, logits and buffers.

Values are read from the frameworks' public sources and documentation, as noted; where a number is not
stated anywhere it is marked "estimate".
"""

from __future__ import annotations

from dataclasses import dataclass

from pipesim.costs.layout import SplitRule


@dataclass(frozen=True, kw_only=True)
class Framework:
    """One framework's habits. Bytes are per number, overheads per rank."""

    name: str
    words: tuple[str, ...]
    """Lower-case words by which a free text names it."""
    split: SplitRule = "even"
    zero_stage: int = 0
    half_gradients: bool = False
    """A half-precision gradient is kept beside the accumulated fp32 one."""
    fused_mlp: bool = True
    """The gated activation is one kernel that stores its input only (and recomputes the rest)."""
    logits_bytes: float = 8.0
    """Of one logit while loss and its gradient are computed."""
    stored_logits_bytes: float = 4.0
    """Of one logit from the forward until the backward."""
    vocabulary_over_tp: bool = True
    overhead_bytes: float = 1.0e9
    """CUDA context, libraries and communication buffers: not in the allocator's own count (estimate)."""


FRAMEWORKS: tuple[Framework, ...] = (
    # Vocabulary-parallel cross entropy on fp32 logits: exp in place, its gradient in half precision.
    Framework(name="megatron", words=("megatron", "nemo"), logits_bytes=8.0),
    # BF16_Optimizer and fp16 ZeRO-1 (deepspeed/runtime); Megatron's layers.
    Framework(name="megatron-deepspeed", words=("deepspeed",), zero_stage=1, split="even"),
    # models/llama.py: GLUActivation in plain torch; logits cast to fp32, and the loss keeps its own copy.
    Framework(
        name="nanotron",
        words=("nanotron",),
        split="cost-threshold",
        fused_mlp=False,
        logits_bytes=10.0,
        stored_logits_bytes=4.0,
    ),
    Framework(
        name="fsdp",
        words=("fsdp", "foundry", "composer", "torchtitan", "mosaic"),
        zero_stage=3,
        fused_mlp=False,
        logits_bytes=10.0,
        vocabulary_over_tp=False,
    ),
    Framework(name="aleph-alpha-scaling", words=("aa-scaling", "aleph"), zero_stage=1),
)
"""Later entries win where a text has words of several ("Megatron-DeepSpeed")."""


def closest_framework(text: str) -> Framework:
    """The framework a free text means; Megatron's habits where it names none that is known."""
    low = text.lower()
    named = [framework for framework in FRAMEWORKS if any(word in low for word in framework.words)]
    return named[-1] if named else FRAMEWORKS[0]
