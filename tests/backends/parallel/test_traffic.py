"""Counts and bytes of every collective and message are those that were counted beforehand, exactly."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from pipesim.backends.measure.timelines import assemble, gather, record
from pipesim.backends.parallel.places import make_places
from pipesim.backends.parallel.predict import predicted
from pipesim.backends.parallel.traffic import Recorder
from pipesim.costs.communication.traffic import traffic
from pipesim.ir.action import Kind
from pipesim.ir.needs import Flow
from tests.backends.group import run_group
from tests.backends.parallel.cases import config, layout_of, my_rounds, pipeline_of, program_of

CASES: list[tuple[str, dict[str, Any], tuple[tuple[str, Any], ...]]] = [
    ("1f1b", {"pp": 2, "tp": 2}, ()),
    ("zb-v", {"pp": 2, "tp": 2, "sequence_parallel": True, "recompute": "full"}, ()),
    ("1f1b", {"pp": 2, "tp": 2, "sequence_parallel": True}, (("attention_bias", True), ("mlp_bias", True))),
    ("interleaved", {"pp": 2, "dp": 2}, ()),
    ("1f1b", {"pp": 2, "dp": 2, "zero_stage": 2}, (("tie_word_embeddings", True), ("vocab_size", 18))),
    ("zb-v", {"pp": 2, "dp": 2, "zero_stage": 3}, ()),
    ("chimera", {"pp": 2, "dp": 2}, ()),
    (
        "1f1b",
        {"tp": 2, "dp": 2, "zero_stage": 3, "sequence_parallel": True},
        (("num_key_value_heads", 1), ("model_type", "qwen3"), ("head_dim", 4)),
    ),
    (
        "1f1b",
        {"pp": 2, "tp": 2, "recompute": "selective", "recompute_modules": ("mlp",)},
        (("num_key_value_heads", 1), ("tie_word_embeddings", True)),
    ),
]


def differences(which: list[int]) -> dict[str, Any]:
    """Where the second step of each case differs from what was counted."""
    found = {}
    for schedule, numbers, changes in (CASES[number] for number in which):
        layout, made = layout_of(**numbers), config(changes)
        places, program = make_places(layout), program_of(schedule, layout)
        pipeline = pipeline_of(program, places, made, dtype=torch.float32)
        pipeline.step(my_rounds(places))
        with Recorder() as recorder:
            pipeline.step(my_rounds(places))
        counted = traffic(made.model, layout, program, clip=True)[places.pp_rank]
        measured = recorder.traffic()
        for key in {*counted, *measured}:
            if counted.get(key) != measured.get(key):
                found[f"{schedule} {numbers} {key}"] = (counted.get(key), measured.get(key))
    return found


@pytest.mark.slow
def test_counts_and_bytes_are_those_of_the_simulation() -> None:
    for found in run_group(4, differences, list(range(len(CASES))), timeout_s=150):
        assert found == {}


def reductions(zero: int) -> list[tuple[str, str]]:
    """Gradient reductions of one step, in order; each weight is in one of them."""
    layout = layout_of(dp=2, zero_stage=zero)
    places = make_places(layout)
    pipeline = pipeline_of(program_of("1f1b", layout), places, config(), dtype=torch.float32)
    pipeline.step(my_rounds(places))
    with Recorder() as recorder:
        pipeline.step(my_rounds(places))
    numbers = sum(weight.numel() for module in pipeline.modules.values() for weight in module.parameters())
    reduced = [one for one in recorder.collectives if one.key[1] in ("all-reduce", "reduce-scatter")]
    reduced = [one for one in reduced if one.key[0] == "data"]
    assert sum(one.bytes for one in reduced) == 4 * numbers
    return [one.key for one in reduced]


@pytest.mark.slow
def test_gradients_are_reduced_once_a_step() -> None:
    units = config().model.layers + 1  # the last one: embedding, norm and head
    assert run_group(2, reductions, 0) == [[("data", "all-reduce")] * units] * 2
    for zero in (1, 3):
        assert run_group(2, reductions, zero) == [[("data", "reduce-scatter")] * units] * 2


def timelines() -> Any:
    """Operations that were measured, their messages' bytes, and the same of the simulation."""
    layout = layout_of(pp=2, tp=2)
    places, program, made = make_places(layout), program_of("zb-v", layout), config()
    pipeline = pipeline_of(program, places, made, dtype=torch.float32)
    pipeline.step(my_rounds(places))
    result = pipeline.step(my_rounds(places))
    everyone = gather(record(pipeline.runner, result, 0, 0, 0))
    sizes = [pipeline.runner.transport.message_bytes()] * 4
    torch.distributed.all_gather_object(sizes, sizes[0])
    if everyone is None:
        return None
    measured = assemble(program, [everyone[rank] for rank in places.pipeline])
    simulated, costs = predicted(measured, made.model, layout, {})
    sends = np.flatnonzero(program.ops.kind == Kind.SEND)
    by_stage = {flow: bytes_.tolist() for flow, bytes_ in costs.message_bytes.items()}
    simulated_bytes = {int(op): by_stage[Flow(int(program.flow[op]))][int(program.ops.stage[op])] for op in sends}
    measured_bytes = {op: float(size) for rank in places.pipeline for op, size in sizes[rank].items()}
    ran = [int(op) for rank in places.pipeline for op in (*everyone[rank].begin, *everyone[rank].posted)]
    assert (measured.end[measured.boxes] > measured.start[measured.boxes]).all()
    return sorted(ran), list(range(len(simulated.program))), measured_bytes, simulated_bytes


@pytest.mark.slow
def test_measured_and_simulated_timelines_have_the_same_actions_and_bytes() -> None:
    ran, simulated, measured_bytes, simulated_bytes = run_group(4, timelines)[0]
    assert Counter(ran) == Counter(simulated)
    assert measured_bytes == simulated_bytes
