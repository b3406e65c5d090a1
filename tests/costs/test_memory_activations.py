"""Stored activations against the formulas and figures of Korthikanti et al. (2205.05198)."""

from dataclasses import replace

import pytest

from pipesim.costs.activations import layer_activations, layer_tensors
from pipesim.costs.layouts.layout import Layout
from pipesim.costs.layouts.split import StageLayers
from pipesim.costs.memory import message_bytes, stage_activations
from pipesim.costs.models.model import Model
from pipesim.costs.models.model_catalog import load_model, model_names

# Table 3: micro batch 4 for 22B, else 1; tensor parallel 8.
CASES = [("megatron-22b", 4), ("megatron-175b", 1), ("megatron-530b", 1), ("megatron-1t", 1)]


def stored(model: Model, layout: Layout) -> float:
    return layer_activations(model, layout, model.kind(0)).stored


@pytest.mark.parametrize(("name", "batch"), CASES)
def test_activations_of_a_layer_are_equations_1_to_6(name: str, batch: int) -> None:
    model = load_model(name)
    s, b, h, a, t = 2048, batch, model.hidden, model.heads, 8
    one = Layout(seq=s, micro_batch=b, global_batch=b, attention="fused-softmax")
    tensor = replace(one, tp=t)
    sequence = replace(tensor, sequence_parallel=True)
    scores = 5 * a * s / h
    assert stored(model, one) == pytest.approx(s * b * h * (34 + scores))  # eq. 1
    assert stored(model, tensor) == pytest.approx(s * b * h * (10 + 24 / t + scores / t))  # eq. 2
    assert stored(model, sequence) == pytest.approx(s * b * h / t * (34 + scores))  # eq. 4
    assert stored(model, replace(sequence, recompute="selective")) == pytest.approx(s * b * h * 34 / t)  # eq. 6
    assert stored(model, replace(tensor, recompute="full")) == 2 * s * b * h  # section 5
    assert stored(model, replace(sequence, recompute="full")) == pytest.approx(2 * s * b * h / t)


@pytest.mark.parametrize(("name", "saved"), [("megatron-175b", 0.70), ("megatron-530b", 0.65)])
def test_selective_recomputation_saves_70_and_65_percent(name: str, saved: float) -> None:
    """Section 5: of the activations of GPT-3 and MT-NLG."""
    model = load_model(name)
    layout = Layout(tp=8, seq=2048, sequence_parallel=True, attention="fused-softmax")
    assert 1 - stored(model, replace(layout, recompute="selective")) / stored(model, layout) == pytest.approx(
        saved, abs=5e-3
    )


@pytest.mark.parametrize(("name", "batch"), CASES)
def test_both_techniques_leave_under_a_fifth(name: str, batch: int) -> None:
    """Figure 7: sequence parallelism with selective recomputation, of the tensor-parallel baseline."""
    model = load_model(name)
    base = Layout(tp=8, seq=2048, micro_batch=batch, global_batch=batch, attention="fused-softmax")
    both = replace(base, sequence_parallel=True, recompute="selective")
    assert 0.15 < stored(model, both) / stored(model, base) < 0.21


def test_flash_attention_stores_as_little_as_selective_recomputation() -> None:
    model = load_model("megatron-175b")
    selective = Layout(seq=2048, attention="fused-softmax", recompute="selective")
    row_sums = 4 * 96 * 2048
    assert stored(model, Layout(seq=2048)) == stored(model, selective) + row_sums


def test_a_split_backward_keeps_32_of_34() -> None:
    """Zero-bubble paper, 2401.10241, table 1: W needs 32·s·b·h of the s·b·h·(34 + 5·a·s/h) before B."""
    model = load_model("megatron-22b")
    layout = Layout(seq=1024, attention="unfused")
    unit = 1024 * model.hidden
    activations = layer_activations(model, layout, model.kind(0))
    assert activations.kept == 32 * unit
    assert activations.released_at_input == pytest.approx(1 - 32 / (34 + 5 * 64 * 1024 / 6144))


def test_a_llama_layer_tensor_by_tensor() -> None:
    model = load_model("llama-3-8b")
    layout = Layout(tp=4, seq=8192, sequence_parallel=True)
    token = 8192 * 2 / 4
    assert {tensor.name: tensor.bytes for tensor in layer_tensors(model, layout, model.kind(0))} == {
        "norm 0 input": token * 4096,
        "norm 1 input": token * 4096,
        "attention input": token * 4096,
        "mlp input": token * 4096,
        "queries": token * 4096,
        "keys and values": token * 2 * 1024,
        "softmax row sums": 8192 * 4 * 32 / 4,
        "attention output": token * 4096,
        "mlp inner": token * 2 * 14336,
        "mlp output input": token * 14336,
    }


def test_selective_recomputation_of_other_modules() -> None:
    model = load_model("llama-3-8b")
    layout = Layout(seq=4096)
    token = 4096 * 2
    fewer = {
        ("core_attention",): 0.0,
        ("norms",): token * 2 * 4096,
        ("mlp_activation",): token * 14336,
        ("norms", "mlp_activation", "mlp"): token * (2 * 4096 + 3 * 14336),
    }
    for modules, saved in fewer.items():
        selective = replace(layout, recompute="selective", recompute_modules=modules)
        assert stored(model, layout) - stored(model, selective) == saved, modules


def test_recomputing_some_layers_of_a_stage() -> None:
    model = load_model("llama-3-8b")
    layout = Layout(seq=4096, recompute="full", recompute_layers=3)
    stage = StageLayers(first=4, layers=8)
    layer_input = 4096 * 4096 * 2
    assert stage_activations(model, layout, stage).stored == 3 * layer_input + 5 * stored(model, Layout(seq=4096))


def test_the_head_holds_fp32_logits() -> None:
    """Section 4.3: 4·s·b·v/t beside the norm's and the product's input, 2·s·b·h/t each."""
    model = load_model("megatron-22b")
    layout = Layout(tp=8, seq=2048, sequence_parallel=True)
    head = stage_activations(model, layout, StageLayers(first=48, layers=0, head=1.0))
    assert head.stored == 2048 * (4 * 6144 + 4 * 51200) / 8
    first = stage_activations(model, layout, StageLayers(first=0, layers=0, embedding=1.0))
    assert first.stored == 2048 * 6144 / 8  # the dropout mask


def test_fp8_halves_the_inputs_of_products() -> None:
    model = load_model("llama-3-8b")

    def inputs(precision: str) -> float:
        tensors = layer_tensors(model, Layout(seq=512, precision=precision), model.kind(0))
        return sum(tensor.bytes for tensor in tensors if tensor.for_weights)

    assert inputs("fp8") == inputs("bf16") / 2 == inputs("fp32") / 4


def test_experts_store_what_is_routed_to_them() -> None:
    model = load_model("mixtral-8x7b")
    tensors = layer_tensors(model, Layout(dp=8, ep=8, global_batch=8, seq=4096), model.kind(0))
    by_name = {tensor.name: tensor.bytes for tensor in tensors}
    routed = 2 * 4096 * 2
    assert by_name["expert input"] == by_name["expert output"] == routed * 4096
    assert by_name["mlp inner"] == routed * 2 * 14336


def test_every_model_has_more_activations_with_more_tokens() -> None:
    for name in model_names():
        model = load_model(name)
        for kind in set(model.kinds()):
            small = layer_activations(model, Layout(seq=1024), kind)
            large = layer_activations(model, Layout(seq=2048), kind)
            assert 0 < small.stored < large.stored, name
            assert 0 <= small.released_at_input <= 1, name


def test_messages_are_split_with_the_sequence() -> None:
    model = load_model("llama-3-70b")
    whole = Layout(tp=8, seq=8192, framework="megatron-deepspeed")
    assert message_bytes(model, whole) == 2 * 8192 * 8192
    assert message_bytes(model, replace(whole, sequence_parallel=True)) == 2 * 8192 * 8192 / 8
    assert message_bytes(model, replace(whole, framework="megatron-lm")) == 2 * 8192 * 8192 / 8
