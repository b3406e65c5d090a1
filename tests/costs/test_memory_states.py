"""Weights, gradients and optimizer states of a rank."""

import pytest

from pipesim.costs.layouts.layout import Layout
from pipesim.costs.layouts.split import StageLayers, split_layers
from pipesim.costs.memory import (
    StageParameters,
    layer_rank_parameters,
    rank_memory,
    stage_memory,
    stage_parameters,
    state_bytes,
)
from pipesim.costs.models.model_catalog import load_model
from pipesim.costs.models.params import parameters

# Megatron-LM, docs/source/api-guide/dist_optimizer.md: bytes per parameter, by data-parallel size d.
MEGATRON = {
    ("fp16", 0): lambda d: 20,
    ("bf16", 0): lambda d: 18,
    ("fp32", 0): lambda d: 16,
    ("fp16", 1): lambda d: 4 + 16 / d,
    ("bf16", 1): lambda d: 6 + 12 / d,
    ("fp32", 1): lambda d: 8 + 8 / d,
}


@pytest.mark.parametrize(("precision", "stage"), MEGATRON)
def test_state_bytes_are_megatron_s(precision: str, stage: int) -> None:
    layout = Layout(dp=8, cp=2, global_batch=8, precision=precision, zero_stage=stage)
    assert state_bytes(layout, StageParameters(100.0, 0.0)).total == pytest.approx(100 * MEGATRON[precision, stage](16))


def test_each_zero_stage_shards_one_more_thing() -> None:
    totals = []
    for stage in range(4):
        states = state_bytes(Layout(dp=4, global_batch=4, zero_stage=stage), StageParameters(1.0, 0.0))
        totals.append((states.weights, states.gradients, states.optimizer))
    assert totals == [(2, 4, 12), (2, 4, 3), (2, 1, 3), (0.5, 1, 3)]


def test_deepspeed_keeps_half_gradients_beside_those_it_adds_up() -> None:
    def gradients(framework: str, precision: str) -> float:
        layout = Layout(framework=framework, precision=precision)
        return state_bytes(layout, StageParameters(1.0, 0.0)).gradients

    assert [gradients("Megatron-DeepSpeed", name) for name in ("bf16", "fp16", "fp32")] == [6, 2, 4]
    assert gradients("megatron-lm", "bf16") == 4


def test_experts_are_sharded_over_their_own_replicas() -> None:
    layout = Layout(dp=8, ep=4, global_batch=8, zero_stage=1)
    assert state_bytes(layout, StageParameters(0.0, 1.0)).optimizer == 12 / 2
    assert state_bytes(layout, StageParameters(1.0, 0.0)).optimizer == 12 / 8


@pytest.mark.parametrize("name", ["llama-3-70b", "gpt3-175b", "falcon-40b", "bloom-176b", "mixtral-8x7b"])
def test_stages_hold_the_whole_model(name: str) -> None:
    model = load_model(name)
    layout = Layout(pp=4)
    held = [stage_parameters(model, layout, stage) for stage in split_layers(model, layout)]
    copy_of_tied = model.vocab * model.hidden if model.tied_embeddings else 0
    final = model.hidden * (2 if model.norm == "layer" else 1) * (model.final_norm + model.embedding_norm)
    total = sum(part.dense + part.experts for part in held)
    assert total == parameters(model).total + copy_of_tied - final


def test_one_stage_holds_tied_embeddings_once() -> None:
    model = load_model("gpt2")
    held = stage_parameters(model, Layout(), split_layers(model, Layout())[0])
    assert held.dense == parameters(model).total - 2 * model.hidden


def test_tensor_parallel_ranks_share_weights_and_copy_key_value_heads() -> None:
    model = load_model("llama-3-70b")
    kind = model.kind(0)
    one = layer_rank_parameters(model, Layout(), kind).dense
    eight = layer_rank_parameters(model, Layout(tp=8), kind).dense
    sixteen = layer_rank_parameters(model, Layout(tp=16), kind).dense
    norms = 2 * model.hidden
    assert eight == (one - norms) / 8 + norms
    assert sixteen == (one - norms) / 16 + norms + 2 * model.hidden * 1024 / 16  # half of the heads are copies


def test_zero_3_gathers_two_layers() -> None:
    model = load_model("llama-3-8b")
    stage = StageLayers(first=0, layers=32)
    one = stage_memory(model, Layout(dp=8, global_batch=8, zero_stage=2), stage).activations
    three = stage_memory(model, Layout(dp=8, global_batch=8, zero_stage=3), stage).activations
    assert three.stored == one.stored
    assert three.working - one.working == 2 * 2 * layer_rank_parameters(model, Layout(), model.kind(0)).dense


def test_peak_of_a_rank_adds_what_is_in_flight() -> None:
    model, layout = load_model("llama-3-8b"), Layout(pp=2, virtual=2)
    stages = [stage_memory(model, layout, stage) for stage in split_layers(model, layout)][::2]
    peak = rank_memory(stages, [3, 2], message=5.0)
    assert peak.activations == 3 * stages[0].activations.stored + 2 * stages[1].activations.stored
    assert peak.allocated == peak.states.total + peak.activations + peak.working + 10
    assert peak.states.weights == stages[0].states.weights + stages[1].states.weights
