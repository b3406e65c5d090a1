"""Losses, norms and every gradient under tensor, pipeline and data parallelism equal those of one process."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

from pipesim.backends.parallel.places import make_places
from tests.backends.group import run_group
from tests.backends.parallel.cases import (
    MICROBATCHES,
    STEPS,
    alone,
    config,
    layout_of,
    my_rounds,
    pipeline_of,
    program_of,
    worst_error,
)

SCHEDULES = ("1f1b", "interleaved", "zb-v")
LAYOUTS = ((2, 1, 1), (1, 2, 1), (1, 1, 2), (2, 2, 1), (2, 1, 2), (1, 2, 2), (2, 2, 2))  # pp, tp, dp
Case = tuple[str, dict[str, Any]]


def variants(tp: int, dp: int) -> list[dict[str, Any]]:
    """With and without sequence parallelism, FSDP2 and activation checkpointing."""
    spread = [{"sequence_parallel": True}] if tp > 1 else []
    sharded = [{"zero_stage": 1}, {"zero_stage": 3}] if dp > 1 else []
    both: dict[str, Any] = {"recompute": "full"}
    for some in [*spread, *sharded[-1:]]:
        both |= some
    return [{}, *spread, *sharded, {"recompute": "selective"}, both]


def cases(pp: int, tp: int, dp: int) -> list[Case]:
    return [(schedule, {"pp": pp, "tp": tp, "dp": dp, **one}) for schedule in SCHEDULES for one in variants(tp, dp)]


def errors(which: list[Case]) -> dict[str, float]:
    return {f"{schedule} {numbers}": worst_error(schedule, numbers) for schedule, numbers in which}


@pytest.mark.slow
def test_gradients_equal_one_process() -> None:
    which: list[Case] = [
        ("1f1b", {"pp": 2, "tp": 2, "sequence_parallel": True}),
        ("interleaved", {"pp": 2, "dp": 2, "zero_stage": 1}),
        ("zb-v", {"pp": 2, "tp": 2, "recompute": "full"}),
        ("zb-v", {"pp": 2, "dp": 2, "zero_stage": 3}),
    ]
    for found in run_group(4, errors, which):
        assert {case: worst for case, worst in found.items() if not worst < 1e-9} == {}


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS[:-1])
def test_gradients_equal_one_process_in_every_variant(layout: tuple[int, int, int]) -> None:
    pp, tp, dp = layout
    for found in run_group(pp * tp * dp, errors, cases(*layout), timeout_s=280):
        assert {case: worst for case, worst in found.items() if not worst < 1e-9} == {}


@pytest.mark.slow
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_gradients_of_eight_ranks_equal_one_process(schedule: str) -> None:
    which = [case for case in cases(*LAYOUTS[-1]) if case[0] == schedule]
    for found in run_group(8, errors, [which[0], which[1], which[-1]], timeout_s=280):
        assert {case: worst for case, worst in found.items() if not worst < 1e-9} == {}


def shapes_of_models() -> dict[str, float]:
    """Biases, tied embeddings, norms of heads, fewer key/value heads than ranks, replicas in one pipeline."""
    biased = (("attention_bias", True), ("mlp_bias", True), ("hidden_act", "gelu"))
    tied = (("tie_word_embeddings", True),)
    normed = (("model_type", "qwen3"), ("head_dim", 4))
    few = (("num_key_value_heads", 1),)
    spread = {"pp": 2, "tp": 2, "sequence_parallel": True}
    sharded = {"tp": 2, "dp": 2, "zero_stage": 2, "sequence_parallel": True}
    return {
        "biases": worst_error("1f1b", spread, biased),
        "biases, sharded": worst_error("1f1b", sharded, biased),
        "tied": worst_error("1f1b", {"pp": 2, "tp": 2}, tied),
        "tied on one rank": worst_error("zb-v", {"pp": 2, "dp": 2, "zero_stage": 3}, tied),
        "tied in one stage": worst_error("1f1b", sharded, tied),
        "norms of heads": worst_error("zb-v", spread, normed),
        "one key/value head": worst_error("1f1b", spread, few),
        "one key/value head, sharded": worst_error("1f1b", sharded, few),
        "both directions": worst_error("chimera", {"pp": 2, "dp": 2}, tied),
        "embedding and head alone": worst_error("1f1b", {"pp": 4, "split": (0, 2, 2, 0)}, tied),
        "no overlap": worst_error("1f1b", {"pp": 2, "dp": 2}, overlap=False),
        "balanced, other rank order": worst_error(
            "1f1b", {"pp": 2, "tp": 2, "split": "balanced", "rank_order": "pp-tp-cp-ep-dp"}
        ),
    }


@pytest.mark.slow
def test_gradients_of_models_of_all_shapes() -> None:
    for found in run_group(4, shapes_of_models, timeout_s=150):
        assert {case: worst for case, worst in found.items() if not worst < 1e-9} == {}


def accumulated() -> float:
    """Two runs of half the microbatches for one step."""
    layout = layout_of(pp=2, dp=2, zero_stage=1)
    places = make_places(layout)
    half = program_of("1f1b", layout)
    half_program = _halved(half)
    pipeline = pipeline_of(half_program, places, config())
    worst = 0.0
    for loss, norm, _ in alone(2, ()):
        found = pipeline.job_loss(pipeline.step(my_rounds(places, rounds=2)).loss)
        assert pipeline.updates.norm is not None
        worst = max(worst, abs(found / loss - 1), abs(pipeline.updates.norm / norm - 1))
    return worst


def _halved(program: Any) -> Any:
    from pipesim.ir.lower import lower
    from pipesim.schedules.lookup import build

    made = build(program.schedule.name, ranks=program.ranks, microbatches=MICROBATCHES // 2)
    return lower(made, reduce=True, clip=True)


@pytest.mark.slow
def test_gradients_accumulate_over_runs_of_the_pipeline() -> None:
    assert max(run_group(4, accumulated)) < 1e-9


def mixed() -> list[float]:
    """Losses in bf16 with fp32 weights: replicas whole and in parts, and with tensor parallelism."""
    found = []
    for numbers in ({"dp": 2}, {"dp": 2, "zero_stage": 3}, {"tp": 2, "sequence_parallel": True}):
        places = make_places(layout_of(**numbers))
        pipeline = pipeline_of(
            program_of("1f1b", places.layout),
            places,
            config(),
            dtype=torch.float32,
            compute_dtype=torch.bfloat16,
        )
        for _ in range(STEPS):
            loss = pipeline.job_loss(pipeline.step(my_rounds(places)).loss)
        weights = [weight for module in pipeline.modules.values() for weight in module.parameters()]
        assert {weight.dtype for weight in weights} == {torch.float32}
        found.append(loss / alone(places.layout.dp, ())[-1][0])
    dist.barrier()
    return found


@pytest.mark.slow
def test_mixed_precision_keeps_wide_weights() -> None:
    for ratios in run_group(2, mixed):
        assert ratios == pytest.approx([1, 1, 1], abs=0.02)
        assert all(abs(ratio - 1) > 1e-9 for ratio in ratios)  # it was not computed in double precision
