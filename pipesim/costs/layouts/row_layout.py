"""The `Layout` of one row of a table of runs, whose free texts are matched leniently.

What a row leaves out gets the framework's usual setting, and is listed as assumed. Unknown keys are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pipesim.costs.layouts.frameworks import Framework, closest_framework
from pipesim.costs.layouts.layout import RECOMPUTE_MODULES, BadLayout, Layout
from pipesim.costs.layouts.precision import closest_precision
from pipesim.costs.rows import Row, count_of, words_of

_SPLITS: dict[str, str] = {
    "even": "even",
    "ends-one-fewer": "ends-one-fewer",
    "balanced-flops": "balanced",
    "balanced": "balanced",
    "embedding-as-layer": "embedding-as-layer",
    "embedding-and-loss-as-layers": "embedding-and-loss-as-layers",
    "cost-threshold": "cost-threshold",
    "vocab-parallel": "even",
    "vocab-interlaced": "even",
}


@dataclass(frozen=True)
class RowLayout:
    """A layout, and which settings the row did not give."""

    layout: Layout
    assumed: Mapping[str, object] = field(default_factory=dict)


def layout_of_row(row: Row) -> RowLayout:
    """Layout of a row in the format of `docs/` (`tp`, `pp`, `micro_batch`, `recompute`, `stage_split`, ...).

    Raises BadRow where numbers are missing or are none, BadLayout where they do not fit together.
    """
    assumed: dict[str, object] = {}
    framework = closest_framework(words_of(row, "framework"))
    sizes = _sizes(row, assumed)
    if not row.get("framework"):
        assumed["framework"] = framework.name
    parallel = row.get("sequence_parallel")
    if not isinstance(parallel, bool):
        parallel = framework.sequence_parallel and sizes["tp"] > 1
        assumed["sequence_parallel"] = parallel
    mode, modules = _recompute(row, assumed)
    layers = row.get("recompute_layers")
    layout = Layout(
        **sizes,  # type: ignore[arg-type]  # all of them are whole numbers
        sequence_parallel=parallel,
        zero_stage=_zero_stage(row, framework.zero_stage, assumed),
        recompute=mode,  # type: ignore[arg-type]
        recompute_modules=modules,
        recompute_layers=layers if isinstance(layers, int) else None,
        precision=_precision(row, framework.half, assumed),
        attention=_attention(row, framework, assumed),  # type: ignore[arg-type]
        attention_kernel=_attention_kernel(row),  # type: ignore[arg-type]
        eager_norm="no fused rmsnorm" in words_of(row, "notes"),
        split=_split(row, framework.split, sizes["pp"] * sizes["virtual"], assumed),  # type: ignore[arg-type]
        vocabulary=_vocabulary(row),  # type: ignore[arg-type]
        vocabulary_over_tp=framework.vocabulary_over_tp,
        context_comm=_context_comm(row),  # type: ignore[arg-type]
        framework=words_of(row, "framework") or framework.name,
    )
    return RowLayout(layout, assumed)


def _sizes(row: Row, assumed: dict[str, object]) -> dict[str, int]:
    """Degrees of parallelism, batch and sequence; data parallelism fills the GPUs that are left."""
    sizes = {name: count_of(row, name, 1) for name in ("tp", "pp", "cp", "ep")}
    sizes["virtual"] = count_of(row, "vp", 1)
    rest = sizes["tp"] * sizes["pp"] * sizes["cp"]
    gpus = count_of(row, "num_gpus", rest * count_of(row, "dp", 1))
    if row.get("dp") is None:
        if gpus % rest:
            raise BadLayout(f"num_gpus={gpus} is not a multiple of tp·pp·cp={rest}", f"a multiple of {rest} works")
        assumed["dp"] = gpus // rest
    sizes["dp"] = count_of(row, "dp", max(1, gpus // rest))
    sizes["seq"] = count_of(row, "seq")
    sizes["micro_batch"] = _micro_batch(row, sizes["dp"], assumed)
    unit = sizes["dp"] * sizes["micro_batch"]
    sizes["global_batch"] = count_of(row, "global_batch", unit * count_of(row, "num_microbatches", 1))
    return sizes


def _micro_batch(row: Row, dp: int, assumed: dict[str, object]) -> int:
    if row.get("micro_batch") is not None:
        return count_of(row, "micro_batch")
    batch, count = row.get("global_batch"), row.get("num_microbatches")
    if isinstance(batch, int) and isinstance(count, int) and count > 0 and batch % (dp * count) == 0:
        return max(1, batch // (dp * count))
    assumed["micro_batch"] = 1
    return 1


def _zero_stage(row: Row, usual: int, assumed: dict[str, object]) -> int:
    stage = row.get("zero_stage")
    if isinstance(stage, int) and not isinstance(stage, bool):
        return stage
    sharded = row.get("dist_optimizer")
    if isinstance(sharded, bool):
        return 1 if sharded else 0
    assumed["zero_stage"] = usual
    return usual


def _recompute(row: Row, assumed: dict[str, object]) -> tuple[str, tuple[str, ...]]:
    """Mode and the modules of the selective one: "full?", "selective (core_attention, mlp)", "none" ..."""
    text = words_of(row, "recompute").replace("-", "_")
    named = tuple(module for module in RECOMPUTE_MODULES if re.search(rf"\b{module}\b", text))
    if "select" in text or (named and "full" not in text):
        return "selective", named or ("core_attention",)
    if "full" in text or "uniform" in text or "block" in text:
        return "full", ("core_attention",)
    if text not in ("none", "no", "false", "off"):
        assumed["recompute"] = "none"
    return "none", ("core_attention",)


def _precision(row: Row, half: str, assumed: dict[str, object]) -> str:
    text = words_of(row, "precision")
    if not text:
        assumed["precision"] = "bf16"
    return half if "fp16" in text and "bf16" in text else closest_precision(text or "bf16")


def _attention(row: Row, framework: Framework, assumed: dict[str, object]) -> str:
    """Flash attention or not; where not, frameworks with CUDA extensions still fuse scale, mask and softmax."""
    text = words_of(row, "attention")
    if not text:
        assumed["attention"] = "flash"
    if "torch" in text or "eager" in text or "naive" in text:
        return "unfused"
    if "unfused" in text or "softmax" in text:
        return "fused-softmax" if framework.fused_softmax or "softmax" in text else "unfused"
    return "flash"


def _attention_kernel(row: Row) -> str:
    """Which kernel: "flash1", "flash2", "flash (triton)", "torch"; else the vendor's, as in Transformer Engine."""
    text = words_of(row, "attention")
    return next((kind for kind in ("flash1", "flash2", "triton", "torch") if kind in text), "flash")


def _split(row: Row, usual: str, stages: int, assumed: dict[str, object]) -> str | tuple[int, ...]:
    given = row.get("layer_split")
    if isinstance(given, list) and all(isinstance(n, int) and not isinstance(n, bool) for n in given):
        return tuple(given)
    named = _SPLITS.get(words_of(row, "stage_split"))
    if named is None:
        if stages > 1:
            assumed["stage_split"] = usual
        return usual
    return named


def _vocabulary(row: Row) -> str:
    text = f"{words_of(row, 'stage_split')} {words_of(row, 'schedule')}"
    if "interlaced" in text:
        return "interlaced"
    return "stages" if "vocab" in text else "ends"


def _context_comm(row: Row) -> str:
    text = f"{words_of(row, 'cp_comm')} {words_of(row, 'notes')}"
    return "all-to-all" if "a2a" in text or "ulysses" in text or "all-to-all" in text else "ring"
