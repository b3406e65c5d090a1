"""Layouts: what fits together, and errors that say what would."""

import pickle

import pytest

from pipesim.costs.layouts.layout import BadLayout, Layout
from pipesim.costs.layouts.row_layout import layout_of_row
from pipesim.costs.models.model_catalog import load_model
from pipesim.costs.rows import BadRow


def test_what_follows_from_a_layout() -> None:
    layout = Layout(tp=8, pp=4, dp=16, cp=2, virtual=3, micro_batch=2, global_batch=1024, seq=8192)
    assert (layout.gpus, layout.stages, layout.microbatches) == (1024, 12, 32)
    assert (layout.tokens, layout.tokens_per_step) == (8192, 1024 * 8192)


BROKEN = {
    "tp": ({"tp": 0}, "tp=0 must be a whole number; from 1 to"),
    "pp": ({"pp": 2.5}, "pp=2.5 must be a whole number"),
    "dp": ({"dp": True}, "dp=True must be a whole number"),
    "zero": ({"zero_stage": 4}, "zero_stage=4 is not a ZeRO stage; 0, 1, 2 and 3 work"),
    "batch": (
        {"dp": 3, "micro_batch": 2, "global_batch": 64},
        "global_batch=64 is not a multiple of dp=3 × micro_batch=2 = 6; 60 and 66 work",
    ),
    "small batch": ({"dp": 8, "global_batch": 4}, "global_batch=4 is not .* = 8; 8 work"),
    "seq": ({"cp": 3, "seq": 2048}, "seq=2048 cannot be split over cp=3; 2046 and 2049 work"),
    "precision": ({"precision": "int8"}, "precision='int8' is not known; known: fp32, fp16, bf16"),
    "recompute": ({"recompute": "some"}, "recompute='some' is not known; known: none, selective, full"),
    "module": ({"recompute_modules": ("mlp", "moe")}, "has 'moe'; known: core_attention, norms"),
    "rule": ({"split": "random"}, "split='random' is not known; known: even, ends-one-fewer"),
    "order": ({"rank_order": "tp-dp-pp"}, "rank_order='tp-dp-pp'; must name each of tp, cp, ep, dp, pp once"),
    "counts": ({"pp": 4, "split": (1, 2, 3)}, r"\[1, 2, 3\] are 3 numbers for pp=4 × virtual=1 = 4 stages"),
    "negative": ({"pp": 2, "split": (3, -1)}, "must be whole numbers of at least 0"),
    "experts": ({"dp": 4, "global_batch": 4, "ep": 3}, "ep=3 does not divide tp·cp·dp / expert_tp = 4; .* 1, 2, 4"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_layout_that_cannot_be(kind: str) -> None:
    fields, message = BROKEN[kind]
    with pytest.raises(BadLayout, match=message) as error:
        Layout(**fields)  # type: ignore[arg-type]
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)


def test_gpus() -> None:
    layout = Layout(tp=8, pp=4)
    layout.check_gpus(32)
    with pytest.raises(BadLayout, match="tp=8 · pp=4 · dp=1 · cp=1 = 32 GPUs, not 64; dp=2 works"):
        layout.check_gpus(64)
    with pytest.raises(BadLayout, match="= 32 GPUs, not 72; 64 and 96 GPUs work"):
        layout.check_gpus(72)


MISFITS = {
    "heads": ("qwen2.5-14b", {"tp": 16}, "40 attention heads of qwen2.5-14b cannot be split over 16.* 1, 2, 4, 5, 8"),
    "kv heads": ("gpt2", {"tp": 5}, "12 attention heads .* cannot be split over 5"),
    "stages": ("llama-3-8b", {"pp": 64}, "32 layers cannot fill pp=64 × virtual=1 = 64 stages; at most 32"),
    "sum": ("llama-3-8b", {"pp": 2, "split": (15, 15)}, r"\[15, 15\] add up to 30, but llama-3-8b has 32 layers"),
    "experts": ("mixtral-8x7b", {"dp": 3, "ep": 3, "global_batch": 3}, "8 experts .* ep=3; ep that work: 1, 2, 4, 8"),
    "dense": ("llama-3-8b", {"dp": 2, "ep": 2, "global_batch": 2}, "1 experts cannot be split over ep=2"),
}


@pytest.mark.parametrize("kind", MISFITS)
def test_a_model_that_does_not_fit(kind: str) -> None:
    name, fields, message = MISFITS[kind]
    layout = Layout(**fields)  # type: ignore[arg-type]
    with pytest.raises(BadLayout, match=message):
        layout.check_model(load_model(name))


def test_the_usual_layout_of_a_row() -> None:
    row = {
        "tp": 4, "pp": 8, "vp": 5, "num_gpus": 64, "micro_batch": 1, "global_batch": 256, "seq": 8192,
        "precision": "fp8-cs", "attention": "TE flash/cuDNN", "framework": "NeMo/Megatron-Core", "extra": [1],
    }  # fmt: skip
    usual = layout_of_row(row)
    assert usual.layout == Layout(
        tp=4, pp=8, dp=2, virtual=5, sequence_parallel=True, precision="fp8", micro_batch=1, global_batch=256,
        seq=8192, zero_stage=1, framework="nemo/megatron-core",
    )  # fmt: skip
    assert dict(usual.assumed) == {
        "dp": 2, "sequence_parallel": True, "zero_stage": 1, "recompute": "none", "stage_split": "even",
    }  # fmt: skip


FREE_TEXT = {
    "full?": ({"recompute": "full?"}, "recompute", "full"),
    "none": ({"recompute": "none"}, "recompute", "none"),
    "selective": ({"recompute": "selective (core-attention, mlp)"}, "recompute_modules", ("core_attention", "mlp")),
    "triton": ({"attention": "flash (triton)"}, "attention", "flash"),
    "softmax": ({"attention": "unfused (megatron fused softmax)"}, "attention", "fused-softmax"),
    "torch": ({"attention": "torch"}, "attention", "unfused"),
    "of a framework without extensions": ({"attention": "unfused", "framework": "nanotron"}, "attention", "unfused"),
    "triton kernel": ({"attention": "flash (triton)"}, "attention_kernel", "triton"),
    "not stated": ({"attention": "unfused or flash (not stated)"}, "attention", "fused-softmax"),
    "fp16/bf16": ({"precision": "fp16/bf16"}, "precision", "bf16"),
    "fp16 of old": ({"precision": "fp16/bf16", "framework": "Megatron-DeepSpeed"}, "precision", "fp16"),
    "autocast": ({"precision": "amp_bf16"}, "precision", "amp_bf16"),
    "mxfp8": ({"precision": "MXFP8"}, "precision", "mxfp8"),
    "vocab": ({"schedule": "1f1b+vocab-2"}, "vocabulary", "stages"),
    "interlaced": ({"stage_split": "vocab-interlaced"}, "vocabulary", "interlaced"),
    "flops": ({"stage_split": "balanced-flops"}, "split", "balanced"),
    "optimizer": ({"dist_optimizer": True}, "zero_stage", 1),
    "a2a": ({"notes": "cp_comm_type a2a"}, "context_comm", "all-to-all"),
    "layers": ({"pp": 2, "layer_split": [3, 5]}, "split", (3, 5)),
}


@pytest.mark.parametrize("kind", FREE_TEXT)
def test_free_text_is_matched_leniently(kind: str) -> None:
    row, name, value = FREE_TEXT[kind]
    assert getattr(layout_of_row({"seq": 128, **row}).layout, name) == value


@pytest.mark.parametrize("row", [{}, {"seq": "long"}, {"seq": 128, "tp": -1}, {"seq": 128, "num_gpus": 3, "tp": 2}])
def test_a_bad_row_has_no_layout(row: dict[str, object]) -> None:
    with pytest.raises((BadLayout, BadRow)):
        layout_of_row(row)
