"""Number formats of weights and key/value caches when serving: bytes, and the units that multiply them."""

from __future__ import annotations

from dataclasses import dataclass

from pipesim.costs.clusters.gpu import Gpu
from pipesim.errors import PipesimError


@dataclass(eq=False)
class UnknownFormat(PipesimError):
    """A number format that nobody serves in."""

    what: str
    name: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        return f"unknown {self.what} format {self.name!r}; known: {', '.join(self.known)}"


@dataclass(frozen=True, kw_only=True)
class WeightFormat:
    """How the matrices of the layers are stored. Embedding, output layer and norms stay in 16 bits."""

    name: str
    weight_bytes: float
    """Of one weight with its share of scales."""
    units: tuple[str, ...]
    """Precisions of the matrix units it can run on, best first: the first that the GPU has is used."""
    weight_only: bool = False
    """Only stored so: multiplied in 16 bits, after conversion."""

    def multiplies_in(self, gpu: Gpu) -> str:
        """Precision in which this GPU multiplies weights of this format."""
        return next((unit for unit in self.units if unit in gpu.peaks), "fp16")


WEIGHTS: dict[str, WeightFormat] = {
    "fp32": WeightFormat(name="fp32", weight_bytes=4.0, units=("fp32",)),
    "bf16": WeightFormat(name="bf16", weight_bytes=2.0, units=("bf16", "fp16")),
    "fp16": WeightFormat(name="fp16", weight_bytes=2.0, units=("fp16", "bf16")),
    "fp8": WeightFormat(name="fp8", weight_bytes=1.0, units=("fp8", "bf16", "fp16")),
    "int8": WeightFormat(name="int8", weight_bytes=1.0, units=("bf16", "fp16"), weight_only=True),
    # blocks of 16 with an 8-bit scale
    "fp4": WeightFormat(name="fp4", weight_bytes=0.5 + 1 / 16, units=("fp4", "bf16", "fp16")),
    # groups of 128 with a 16-bit scale and a 4-bit zero point
    "int4": WeightFormat(name="int4", weight_bytes=0.5 + 2.5 / 128, units=("bf16", "fp16"), weight_only=True),
}
CACHES: dict[str, float] = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5 + 1 / 16}
"""Bytes of one number in the key/value cache."""

_WORDS = {
    "fp4": ("fp4", "nvfp4", "mxfp4"),
    "int4": ("int4", "w4a16", "4-bit", "4bit", "awq", "gptq", "u4"),
    "int8": ("int8", "w8a16", "8-bit", "8bit"),
    "fp8": ("fp8", "e4m3", "w8a8"),
    "bf16": ("bf16", "bfloat16", "half"),
    "fp16": ("fp16", "float16"),
    "fp32": ("fp32", "float32"),
}


def weight_format(text: str) -> WeightFormat:
    """The format a text names: "fp8", "nvfp4", "w4a16", "AWQ 4-bit", … Raises UnknownFormat."""
    return WEIGHTS[_named("weight", text, tuple(WEIGHTS))]


def cache_bytes(text: str) -> float:
    """Bytes of one cached number in the format a text names. Raises UnknownFormat."""
    name = _named("cache", text, tuple(CACHES))
    if name not in CACHES:
        raise UnknownFormat("cache", text, tuple(CACHES))
    return CACHES[name]


def _named(what: str, text: str, known: tuple[str, ...]) -> str:
    low = text.strip().lower()
    for name, words in _WORDS.items():
        if any(word in low for word in words):
            return name
    raise UnknownFormat(what, text[:40], known)
