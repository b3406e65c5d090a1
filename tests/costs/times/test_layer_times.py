"""Where the time of a layer and a stage goes, against published layer times and by what must hold."""

from dataclasses import replace

import pytest

from pipesim.costs.clusters.cluster_catalogue import load_cluster
from pipesim.costs.estimate import Estimate, estimate
from pipesim.costs.layouts.layout import Layout
from pipesim.costs.models.model import Model
from pipesim.costs.times.habits import Habits, habits_of
from pipesim.costs.times.parts import Part, add_up
from pipesim.ir.action import Kind
from pipesim.ir.placement import linear

GPT_22B = Model.from_fields(
    {"arch": "gpt", "layers": 2, "hidden": 6144, "heads": 64, "vocab": 51200, "seq": 2048}, name="22B"
)
LLAMA = Model.from_fields({"layers": 8, "hidden": 4096, "heads": 32, "ffn": 11008, "vocab": 32000}, name="llama")


def priced(model: Model, layout: Layout, cluster: str = "dgx-h100:1", habits: Habits | None = None) -> Estimate:
    return estimate(model, load_cluster(cluster), layout, linear(layout.pp), contention=False, habits=habits)


def layer_ms(layout: Layout) -> tuple[float, float]:
    """Forward and backward of one layer with what is recomputed, in milliseconds."""
    parts = priced(GPT_22B, layout, "dgx-a100:1").parts[0]
    layers = [part for part in parts if part.name not in ("embedding", "head", "loss", "host")]
    return (
        1e3 * sum(part.forward_s for part in layers) / GPT_22B.layers,
        1e3 * sum(part.backward_s for part in layers) / GPT_22B.layers,
    )


MEASURED = {  # 2205.05198, table 4: milliseconds of forward, and of backward with recomputation
    "baseline": ({}, 7.7, 11.9),
    "sequence parallelism": ({"sequence_parallel": True}, 7.2, 11.8),
    "full recomputation": ({"recompute": "full"}, 7.7, 19.5),
    "selective recomputation": ({"recompute": "selective"}, 7.7, 13.2),
    "both": ({"recompute": "selective", "sequence_parallel": True}, 7.2, 13.1),
}


@pytest.mark.parametrize("case", MEASURED)
def test_layer_times_of_korthikanti(case: str) -> None:
    changes, forward, backward = MEASURED[case]
    layout = Layout(tp=8, micro_batch=4, global_batch=4, precision="fp16", attention="fused-softmax", **changes)
    ours = layer_ms(layout)
    assert ours[0] == pytest.approx(forward, rel=0.18)
    assert ours[1] == pytest.approx(backward, rel=0.10)


def named(made: Estimate, stage: int = 0) -> dict[str, Part]:
    return {part.name: part for part in add_up(made.parts[stage])}


def test_a_stage_is_its_layers_and_its_ends() -> None:
    made = priced(LLAMA, Layout(pp=2, dp=4, global_batch=8))
    first, last = named(made, 0), named(made, 1)
    assert set(first) - set(last) == {"embedding"}
    assert set(last) - set(first) == {"head", "loss"}
    assert first["mlp_up"] == last["mlp_up"]


def test_full_recomputation_repeats_the_forward() -> None:
    plain, again = (named(priced(LLAMA, Layout(dp=8, global_batch=8, recompute=mode))) for mode in ("none", "full"))
    layers = sum(part.forward_s for name, part in plain.items() if name not in ("embedding", "head", "loss", "host"))
    assert again["recompute"].input_s == pytest.approx(layers)
    half = named(priced(LLAMA, Layout(dp=8, global_batch=8, recompute="full", recompute_layers=4)))
    assert half["recompute"].input_s == pytest.approx(layers / 2)


def test_selective_recomputation_repeats_what_is_named() -> None:
    layout = Layout(dp=8, global_batch=8, recompute="selective", recompute_modules=("mlp", "norms"))
    parts = named(priced(LLAMA, layout))
    wanted = sum(parts[name].forward_s for name in ("mlp_up", "mlp_down", "activation function", "norms"))
    assert parts["recompute"].input_s == pytest.approx(wanted)
    flash = replace(layout, recompute_modules=("core_attention",))  # repeats its scores in its own backward anyway
    assert named(priced(LLAMA, flash))["recompute"].input_s == 0.0


def test_separate_kernels_move_more_bytes_than_fused_ones() -> None:
    layout = Layout(dp=8, global_batch=8)
    fused, eager = (habits_of(name) for name in ("megatron-lm", "nanotron"))
    one, other = (named(priced(LLAMA, layout, habits=habits)) for habits in (fused, eager))
    for name in ("activation function", "rotary", "copies"):
        assert other[name].total_s > 1.5 * one[name].total_s, name
    assert "gradient accumulation" not in one
    assert other["gradient accumulation"].weight_s > 0
    assert other["mlp_up"].weight_s < one["mlp_up"].weight_s  # which adds to an fp32 matrix inside the product
    norm = named(priced(LLAMA, replace(layout, eager_norm=True), habits=fused))["norms"]
    assert norm.total_s > 4 * one["norms"].total_s


def test_fp8_runs_products_faster_and_pays_for_casts() -> None:
    sixteen, eight = (named(priced(LLAMA, Layout(dp=8, global_batch=8, precision=name))) for name in ("bf16", "fp8"))
    assert eight["mlp_up"].forward_s < 0.75 * sixteen["mlp_up"].forward_s
    assert eight["mlp_up"].total_s < 0.9 * sixteen["mlp_up"].total_s
    assert eight["head"].total_s == pytest.approx(sixteen["head"].total_s)  # stays in 16 bits
    assert "casts" not in sixteen
    assert eight["casts"].total_s > 0


def test_overlap_is_an_assumption_that_can_be_switched() -> None:
    layout = Layout(tp=4, dp=2, sequence_parallel=True, global_batch=8, zero_stage=1)
    usual = habits_of("nemo")
    shown = replace(usual, tensor_overlap=0.0, reduce_behind_weights=False, reduce_overlap=False, gather_overlap=False)
    hidden, open_ = (priced(LLAMA, layout, habits=habits) for habits in (usual, shown))
    name = "tensor-parallel gather and scatter"
    assert named(hidden)[name].total_s < 0.5 * named(open_)[name].total_s
    assert named(open_)[name].forward_s == pytest.approx(named(open_)[name].backward_s)
    assert hidden.costs.reduce_s is not None
    assert open_.costs.reduce_s is not None
    assert hidden.costs.reduce_s[0] < open_.costs.reduce_s[0]
    assert hidden.gather_s[0] < open_.gather_s[0]


def test_sharding_moves_time_from_the_optimizer_to_the_network() -> None:
    made = {stage: priced(LLAMA, Layout(dp=8, global_batch=8, zero_stage=stage)) for stage in (0, 1, 3)}
    steps = {stage: float(one.costs.optimizer_s[0] - one.gather_s[0]) for stage, one in made.items()}  # type: ignore[index]
    assert steps[1] == pytest.approx(steps[0] / 8, rel=0.05)
    assert made[0].gather_s[0] == 0.0
    assert made[1].gather_s[0] > 0.0
    assert made[3].costs.reduce_s is not None
    assert made[3].costs.reduce_s[0] == 0.0
    assert "weight gather and gradient scatter" in named(made[3])


def test_gathers_of_zero_3_show_where_work_cannot_hide_them() -> None:
    name = "weight gather and gradient scatter"
    layout = Layout(dp=64, global_batch=64, zero_stage=3, seq=2048)
    fast, slow = (named(priced(LLAMA, layout, cluster))[name] for cluster in ("dgx-h100:8", "h100-pcie:8"))
    assert slow.forward_s > 20 * fast.forward_s


def test_the_host_shows_only_where_the_gpu_waits_for_it() -> None:
    habits = replace(habits_of("megatron-lm"), layer_host_s=2e-3)
    small, large = (priced(LLAMA, Layout(dp=8, global_batch=64, seq=seq), habits=habits) for seq in (128, 8192))
    seconds = small.costs.of_kind(Kind.F) + small.costs.of_kind(Kind.B)
    assert seconds[0] == pytest.approx(2 * (8 + 2) * 2e-3)  # layers, embedding and head, forward and backward
    assert named(large)["host"].total_s == 0.0


def test_equal_stages_are_priced_alike_wherever_they_are() -> None:
    made = priced(replace(LLAMA, layers=16), Layout(pp=8, dp=8, global_batch=64), "dgx-h100:8")
    assert made.parts[1] is made.parts[5]
