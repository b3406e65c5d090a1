"""What a precision stands for: bytes of a weight, an activation and of all that the optimizer keeps.

Bytes per parameter as in Megatron-LM's table (docs/source/api-guide/dist_optimizer.md): fp16 4 + 16,
bf16 with fp32 gradients 6 + 12, fp32 8 + 8, where the second number is what ZeRO stage 1 shards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MatrixType = Literal["fp32", "fp16", "bf16", "fp8", "fp4"]


@dataclass(frozen=True, kw_only=True)
class Precision:
    """Bytes per number, and the type in which matrix products run."""

    name: str
    matrix: MatrixType
    activation_bytes: float
    """Of a stored activation."""
    matrix_input_bytes: float
    """Of a stored input of a matrix product (1 in fp8, where the quantised copy is kept)."""
    weight_bytes: float
    gradient_bytes: float
    """Of an accumulated gradient."""
    optimizer_bytes: float
    """Master weights, moments of Adam, fp32 copies of gradients."""


def _of(
    name: str, matrix: MatrixType, activation: float, inputs: float, states: tuple[float, float, float]
) -> Precision:
    weight, gradient, optimizer = states
    return Precision(
        name=name,
        matrix=matrix,
        activation_bytes=activation,
        matrix_input_bytes=inputs,
        weight_bytes=weight,
        gradient_bytes=gradient,
        optimizer_bytes=optimizer,
    )


_BF16_STATES = (2, 4, 12)
_AMP_STATES = (4, 4, 8)  # torch.autocast: weights stay fp32 and are their own masters

PRECISIONS: dict[str, Precision] = {
    "fp32": _of("fp32", "fp32", 4, 4, (4, 4, 8)),
    "fp16": _of("fp16", "fp16", 2, 2, (2, 2, 16)),
    "bf16": _of("bf16", "bf16", 2, 2, _BF16_STATES),
    "amp_fp16": _of("amp_fp16", "fp16", 2, 2, _AMP_STATES),
    "amp_bf16": _of("amp_bf16", "bf16", 2, 2, _AMP_STATES),
    "fp8": _of("fp8", "fp8", 2, 1, _BF16_STATES),
    "amp_fp8": _of("amp_fp8", "fp8", 2, 1, _AMP_STATES),
    "mxfp8": _of("mxfp8", "fp8", 2, 1, _BF16_STATES),
    "nvfp4": _of("nvfp4", "fp4", 2, 0.5, _BF16_STATES),
}
"""By name. fp8 and fp4 are those of Transformer Engine: weights and their masters as with bf16."""


def closest_precision(text: str) -> str:
    """Name of the precision that a free text means ("fp16/bf16" → bf16, "fp8-cs" → fp8); bf16 if none."""
    low = text.lower()
    if low in PRECISIONS:
        return low
    kinds = ("nvfp4", "mxfp8", "fp8", "bf16", "fp16", "fp32")
    found = next((kind for kind in kinds if kind in low), "bf16")
    amp = f"amp_{found}"
    return amp if "amp" in low and amp in PRECISIONS else found
