"""A GPU as its vendor describes it, from `catalog/gpus.yaml`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from pipesim.costs.catalog_files import read_catalogue, unknown
from pipesim.errors import PipesimError

PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4")
"""Number formats of matrix products, all accumulating in fp32."""

_FORMATS = {
    "fp16/bf16": "bf16", "amp": "bf16", "float16": "fp16", "bfloat16": "bf16", "half": "fp16", "float32": "fp32",
    "mxfp8": "fp8", "mxfp4": "fp4", "nvfp4": "fp4", "float8": "fp8",
}  # fmt: skip

_SAID_BY_THE_REST = {
    "nvidia", "amd", "instinct", "geforce", "tesla", "tensor", "core", "gpu", "superchip", "nvl36", "nvl72",
    "hbm2", "hbm2e", "hbm3", "hbm3e",
}  # fmt: skip


@dataclass(eq=False)
class UnknownPrecision(PipesimError):
    """A number format that no GPU here knows."""

    precision: str

    def __str__(self) -> str:
        return f"unknown precision {self.precision!r}; known: {', '.join(PRECISIONS)}"


@dataclass(eq=False)
class NoSuchPrecision(PipesimError):
    """A number format that this GPU has no units for."""

    gpu: str
    precision: str
    has: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.gpu} has no {self.precision} matrix units; it has {', '.join(self.has)}"


@dataclass(frozen=True, kw_only=True)
class GpuLink:
    """The GPU's own link to its neighbours, all its lanes together."""

    kind: str
    """"nvlink3", "nvlink4", "xgmi4", or "pcie"."""
    bytes_per_s: float
    """One direction."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Gpu:
    """One device; equal only to itself, so that it is a cheap key of a cache."""

    key: str
    name: str
    architecture: str
    like: str
    """Architecture whose measured kernels stand in for this one's."""
    multiprocessors: int
    memory_bytes: float
    memory_bytes_per_s: float
    peaks: Mapping[str, float]
    """Dense FLOP/s by precision."""
    link: GpuLink
    host_bytes_per_s: float
    """To host memory over PCIe, one direction."""

    def peak(self, precision: str) -> float:
        """Dense FLOP/s of matrix products in `precision` ("bf16", "fp8", …).

        Units for bf16 do fp16 as fast, so an entry that names only bf16 has both.
        """
        name = precision_name(precision)
        if name == "fp16" and name not in self.peaks:
            name = "bf16"
        if name not in self.peaks:
            raise NoSuchPrecision(self.name, precision_name(precision), tuple(self.peaks))
        return self.peaks[name]


def precision_name(text: str) -> str:
    """One of `PRECISIONS` for a framework's word: "amp_bf16" and "fp16/bf16" are bf16, "nvfp4" is fp4."""
    word = text.strip().lower()
    if word in PRECISIONS:
        return word
    if word in _FORMATS:
        return _FORMATS[word]
    for name in ("fp4", "fp8", "bf16", "fp16", "tf32", "fp32"):  # the narrowest one named does the products
        if name in word:
            return name
    raise UnknownPrecision(text)


def gpu_keys() -> tuple[str, ...]:
    """Keys of the GPUs in the catalogue, in its order."""
    return tuple(read_catalogue("gpus.yaml")["gpus"])


@cache
def find_gpu(name: str) -> Gpu:
    """GPU of the catalogue by key ("h100-sxm"), name ("H100-SXM5-80GB"), alias ("h100"), or what a driver calls it.

    Words may come in any case and order ("NVIDIA H100 80GB HBM3 SXM"). Raises UnknownName.
    """
    key = _gpu_names().get(name.strip().lower()) or _gpu_words().get(_words(name))
    if key is None:
        raise unknown("GPU", name, _gpu_names(), listed=gpu_keys())
    return _catalogue_gpu(key)


def gpu_of(key: str, entry: Mapping[str, Any]) -> Gpu:
    """A `Gpu` from an entry written as in `gpus.yaml`."""
    link = entry.get("link")
    pcie = GpuLink(kind="pcie", bytes_per_s=entry["pcie_gb_per_s"] * 1e9)
    return Gpu(
        key=key,
        name=entry.get("name") or key,
        architecture=entry["architecture"],
        like=entry["like"],
        multiprocessors=entry["multiprocessors"],
        memory_bytes=entry["memory_gib"] * 2.0**30,
        memory_bytes_per_s=entry["memory_gb_per_s"] * 1e9,
        peaks={name: tflops * 1e12 for name, tflops in entry["peak_tflops"].items()},
        link=GpuLink(kind=f"{link['kind']}{link['generation']}", bytes_per_s=link["gb_per_s"] * 1e9) if link else pcie,
        host_bytes_per_s=pcie.bytes_per_s,
    )


@cache
def _catalogue_gpu(key: str) -> Gpu:
    return gpu_of(key, read_catalogue("gpus.yaml")["gpus"][key])


@lru_cache(maxsize=1)
def _gpu_names() -> Mapping[str, str]:
    names: dict[str, str] = {}
    for key, entry in read_catalogue("gpus.yaml")["gpus"].items():
        for name in (key, entry["name"], *entry["aliases"]):
            names.setdefault(str(name).lower(), key)
    return names


@lru_cache(maxsize=1)
def _gpu_words() -> Mapping[tuple[str, ...], str]:
    words: dict[tuple[str, ...], str] = {}
    for name, key in _gpu_names().items():
        words.setdefault(_words(name), key)
    return words


def _words(name: str) -> tuple[str, ...]:
    """The words of a name that tell GPUs apart, in one order."""
    text = re.sub(r"(\d+) *gi?b\b", r"\1gb", name.lower()).replace("sxm5", "sxm").replace("sxm4", "sxm")
    return tuple(sorted(set(re.findall(r"[a-z0-9]+", text)) - _SAID_BY_THE_REST))
