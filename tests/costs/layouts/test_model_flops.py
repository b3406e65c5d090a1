"""Matrix products and FLOPs against published formulas and figures."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pipesim.costs.layouts.flops import (
    AttentionShape,
    Gemm,
    attended_fraction,
    attention,
    expert_tokens,
    gemms,
    hardware_flops,
    head_gemm,
    model_flops,
    padded_vocab,
)
from pipesim.costs.layouts.layout import Layout
from pipesim.costs.models.model import Model
from pipesim.costs.models.model_catalog import load_model, model_names

DATA = Path(__file__).parents[2] / "data"


def narayanan(model: Model, *, batch: int, seq: int, factor: int) -> float:
    """F = factor·B·s·l·h²·(1 + s/(6h) + V/(factor/6·l·h)): 2104.04473, eq. 3, has 96 with recomputation."""
    layers, hidden, vocab = model.layers, model.hidden, model.vocab
    share = 1 + seq / (6 * hidden) + 6 * vocab / (factor * layers * hidden)
    return factor * batch * seq * layers * hidden**2 * share


@pytest.mark.parametrize("name", [name for name in model_names() if name.startswith("megatron")])
def test_flops_of_gpt_are_equation_3(name: str) -> None:
    model, layout = load_model(name), Layout(global_batch=8, seq=2048, recompute="full")
    assert hardware_flops(model, layout) == pytest.approx(narayanan(model, batch=8, seq=2048, factor=96), rel=1e-12)
    plain = model_flops(model, tokens=8 * 2048, seq=2048)
    assert plain == pytest.approx(narayanan(model, batch=8, seq=2048, factor=72), rel=1e-12)
    assert hardware_flops(model, replace(layout, recompute="none")) == plain


@pytest.mark.parametrize(("name", "overhead"), [("megatron-175b", 0.027), ("megatron-530b", 0.016)])
def test_selective_recomputation_repeats_few_flops(name: str, overhead: float) -> None:
    """Korthikanti et al. (2205.05198, section 5): 2.7 % and 1.6 % of a layer's forward for GPT-3 and MT-NLG."""
    model, layout = load_model(name), Layout(global_batch=1, seq=2048, recompute="selective")
    repeated = hardware_flops(model, layout) - model_flops(model, tokens=2048, seq=2048)
    whole = hardware_flops(model, replace(layout, recompute="full")) - model_flops(model, tokens=2048, seq=2048)
    assert repeated / whole == pytest.approx(overhead, abs=5e-4)


def test_recomputing_the_mlp_repeats_its_first_product() -> None:
    model = load_model("llama-3-8b")
    layout = Layout(global_batch=1, seq=1024, recompute="selective", recompute_modules=("mlp",))
    repeated = hardware_flops(model, layout) - model_flops(model, tokens=1024, seq=1024)
    assert repeated == pytest.approx(32 * 1024 * 2 * 4096 * 2 * 14336)


def test_flops_of_measured_runs() -> None:
    """Their TFLOP/s by one convention: 3 · (2 · weights of products + 4 · seq · hidden · layers) per token."""
    rows = [json.loads(line) for line in (DATA / "measured_memory.jsonl").read_text().splitlines()]
    for row in rows:
        per_token = model_flops(Model.from_fields(row), tokens=1, seq=row["seq"])
        flops = per_token * row["tokens_per_s_per_gpu"] / 1e12
        assert flops == pytest.approx(row["model_tflops_per_gpu_uniform"], rel=2e-3), row["id"]


def test_gemms_of_one_tensor_parallel_rank() -> None:
    model = load_model("llama-3-70b")
    layout = Layout(tp=8, pp=8, micro_batch=2, global_batch=64, seq=4096)
    assert gemms(model, layout, model.kind(0)) == (
        Gemm("qkv", 8192, (64 + 2 * 8) * 128 // 8, 8192),
        Gemm("attention_output", 8192, 8192, 1024),
        Gemm("mlp_up", 8192, 2 * 28672 // 8, 8192),
        Gemm("mlp_down", 8192, 8192, 3584),
    )
    assert attention(model, layout, model.kind(0)) == AttentionShape(2, 8, 1, 4096, 4096, 128, 128)
    assert head_gemm(model, layout) == Gemm("head", 8192, 128256 // 8, 8192)


def test_tensor_parallel_ranks_share_all_products() -> None:
    for name in ("llama-2-70b", "gpt3-175b", "qwen3-32b", "falcon-40b", "deepseek-v2-lite"):
        model = load_model(name)
        one = sum(gemm.flops for gemm in gemms(model, Layout(seq=512), model.kind(1)))
        eight = Layout(tp=8, seq=512, sequence_parallel=True)
        assert 8 * sum(g.flops for g in gemms(model, eight, model.kind(1))) == pytest.approx(one), name


def test_key_value_heads_are_copied_beyond_their_number() -> None:
    model = load_model("llama-3-70b")
    qkv = gemms(model, Layout(tp=16, seq=512), model.kind(0))[0]
    assert qkv.n == (64 // 16 + 2) * 128


def test_context_parallel_attention_by_ring_and_by_heads() -> None:
    model = load_model("llama-3-8b")
    ring = attention(model, Layout(cp=4, seq=8192), model.kind(0))
    heads = attention(model, Layout(cp=4, seq=8192, context_comm="all-to-all"), model.kind(0))
    assert (ring.heads, ring.seq_q, ring.seq_k) == (32, 2048, 8192)
    assert (heads.heads, heads.kv_heads, heads.seq_q, heads.seq_k) == (8, 2, 8192, 8192)
    assert ring.flops == heads.flops


def test_expert_products_cover_all_routed_tokens() -> None:
    model = load_model("mixtral-8x7b")
    layout = Layout(dp=8, ep=4, global_batch=8, seq=4096)
    up = gemms(model, layout, model.kind(0))[3]
    assert up == Gemm("expert_up", expert_tokens(model, layout), 2 * 14336, 4096, 2)
    assert up.m * up.count == 4096 * 2  # every rank works on as many tokens as it sends
    narrow = Layout(tp=2, dp=4, ep=4, expert_tp=1, global_batch=4, seq=4096)
    assert expert_tokens(model, narrow) * 2 == 4096 * 2 // 2


def test_deepseek_v3_flops_per_token() -> None:
    """About 6 per active parameter of the products, and attention (2412.19437 gives no figure to compare)."""
    model = load_model("deepseek-v3")
    active = 37.55e9 - 0.93e9  # without the input embedding
    scores = 61 * 2 * 4096 * 128 * (192 + 128)
    assert model_flops(model, tokens=1, seq=4096) == pytest.approx(6 * active + 3 * scores, rel=2e-3)


def test_attended_share_counts_pairs() -> None:
    for seq, window in ((1, None), (7, None), (7, 3), (7, 7), (7, 1), (8, 20)):
        pairs = sum(1 for q in range(seq) for k in range(seq) if 0 <= q - k < (window or seq))
        assert attended_fraction(seq, causal=True, window=window) == pytest.approx(pairs / seq**2)
    assert attended_fraction(9, causal=False, window=None) == 1.0


def test_vocabulary_is_padded_to_tensor_parallel_ranks() -> None:
    gpt2 = load_model("gpt2")
    assert padded_vocab(gpt2, Layout(tp=4)) == 50260
    assert padded_vocab(gpt2, Layout(tp=4, vocabulary_over_tp=False)) == 50257
