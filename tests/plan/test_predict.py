"""Rows of a table of runs: what is read from them, what is assumed, and what makes no sense."""

from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipesim.errors import PipesimError
from pipesim.plan.predict import predict_row

LLAMA = {
    "id": "a",
    "model": "llama-7b",
    "layers": 32,
    "hidden": 4096,
    "heads": 32,
    "ffn": 11008,
    "vocab": 32000,
    "seq": 4096,
    "gpu": "H100-SXM5-80GB",
    "num_gpus": 64,
    "gpus_per_node": 8,
    "tp": 2,
    "pp": 4,
    "dp": 8,
    "micro_batch": 1,
    "global_batch": 256,
    "precision": "bf16",
    "attention": "TE flash",
    "recompute": "none",
    "sequence_parallel": True,
    "zero_stage": 1,
    "schedule": "1f1b",
    "framework": "NeMo/Megatron-Core",
    "fabric": "infiniband",
    "node_network_gbit_s": 3200,
    "stage_split": "even",
}


def predict(**changes: Any) -> Any:
    return predict_row({**LLAMA, **changes})


def test_a_whole_row_assumes_nothing_and_its_figures_agree() -> None:
    found = predict()
    tokens = 256 * 4096
    assert found.assumed == ()
    assert found.tokens_per_s_per_gpu == pytest.approx(tokens / found.step_time_s / 64)
    assert 0.3 < found.mfu < 0.6
    assert 0.05 < found.bubble_fraction < 0.3
    assert 0 < found.exposed_comm_s < found.step_time_s
    assert 10 < found.memory_gb < 80


def test_what_is_left_out_is_assumed_and_said() -> None:
    bare = {name: LLAMA[name] for name in ("layers", "hidden", "vocab", "seq", "gpu", "num_gpus", "pp", "global_batch")}
    found = predict_row(bare)
    names = {text.partition("=")[0] for text in found.assumed}
    assert names == {
        "framework", "dp", "micro_batch", "sequence_parallel", "recompute", "zero_stage", "precision", "attention",
        "stage_split", "gpus_per_node", "fabric", "node_network_gbit_s",
    }  # fmt: skip


def test_a_gpu_without_bf16_runs_mixed_precision_in_fp16() -> None:
    old = predict_row({**LLAMA, "gpu": "Tesla V100-SXM2-32GB", "precision": "mixed"})
    assert old == predict_row({**LLAMA, "gpu": "v100", "precision": "fp16"})
    with pytest.raises(PipesimError, match="V100-SXM2-32GB has no bf16 matrix units"):
        predict_row({**LLAMA, "gpu": "v100"})


def test_unknown_keys_are_ignored() -> None:
    assert predict(colour="blue", measured={"step_time_s": 1.0}) == predict()


KINDS = {
    "zbv": {"schedule": "zbv", "vp": 2},
    "v-half": {"schedule": "V-Half", "vp": 2},
    "zb-2p": {"schedule": "ZB-2p"},
    "gpipe": {"schedule": "gpipe"},
    "interleaved, odd microbatches": {"schedule": "interleaved-1f1b", "vp": 2, "global_batch": 8 * 13},
    "vocabulary": {"schedule": "1f1b+vocab-1", "stage_split": "vocab-parallel"},
    "interlaced": {"schedule": "1f1b+interlaced", "stage_split": "vocab-interlaced"},
    "balanced": {"stage_split": "balanced-flops"},
    "ends": {"stage_split": "ends-one-fewer", "layers": 30},
    "given layers": {"layer_split": [7, 8, 9, 8]},
    "nvfp4": {"gpu": "GB200", "precision": "nvfp4"},
    "mxfp8 on GB300": {"gpu": "GB300", "precision": "MXFP8", "fabric": "nvlink-domain-72", "gpus_per_node": 4},
    "amp_fp8": {"gpu": "H200-SXM5-141GB", "precision": "amp_fp8"},
    "H800": {"gpu": "H800"},
    "A800": {"gpu": "A800-SXM4-80GB", "precision": "fp16"},
    "B200": {"gpu": "B200-SXM-180GB", "precision": "fp8-cs"},
    "V100": {"gpu": "V100-SXM2-16GB", "precision": "fp16"},
    "cp 16": {"tp": 1, "pp": 1, "cp": 16, "dp": 4, "seq": 131072, "global_batch": 4},
    "cp by all-to-all": {"tp": 1, "pp": 1, "cp": 8, "dp": 8, "notes": "CP uses all-to-all"},
    "ZeRO 2": {"zero_stage": 2},
    "ZeRO 3": {"zero_stage": 3, "framework": "torchtitan FSDP2", "pp": 1, "dp": 32},
    "selective": {"recompute": "selective (core_attn, mlp)"},
    "selective modules": {"recompute": "selective: norms, mlp_activation"},
    "full?": {"recompute": "full?"},
    "one GPU": {"tp": 1, "pp": 1, "dp": 1, "num_gpus": 1, "global_batch": 4, "sequence_parallel": False},
    "half a node": {"tp": 2, "pp": 2, "dp": 1, "num_gpus": 4, "global_batch": 8},
    "unusual framework": {"framework": "my own"},
    "unfused": {"attention": "torch"},
    "floats that are whole": {"tp": 2.0, "global_batch": 256.0},
}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_many_kinds_have_sane_figures(kind: str) -> None:
    found = predict(**KINDS[kind])
    assert found.step_time_s > 0
    assert 0.02 < found.mfu < 1.5  # of the 16-bit peak, which 8 and 4 bits can pass
    assert 0 <= found.bubble_fraction < 0.7
    assert 0 <= found.exposed_comm_s < found.step_time_s
    assert found.memory_gb > 1


def test_a_rack_of_72_is_one_domain() -> None:
    inside = predict(gpu="GB200", fabric="nvlink-domain-72", gpus_per_node=4, tp=16, pp=1, dp=4)
    across = predict(gpu="GB200", fabric="infiniband", gpus_per_node=4, tp=16, pp=1, dp=4)
    assert inside.step_time_s < 0.95 * across.step_time_s


BAD = {
    "no layers": ({"layers": None}, "a model needs layers, hidden, vocab"),
    "GPU": ({"gpu": "H1000"}, "unknown GPU 'H1000'; did you mean h100"),
    "no GPU": ({"gpu": None}, "unknown GPU"),
    "degrees": ({"dp": 4}, "tp=2 · pp=4 · dp=4 · cp=1 = 32 GPUs, not 64"),
    "heads": ({"heads": 31}, "31 attention heads"),
    "batch": ({"global_batch": 255}, "global_batch=255 is not a multiple of"),
    "zero": ({"tp": 0}, "tp=0 must be a whole number"),
    "text": ({"pp": "four"}, "pp='four' must be a whole number"),
    "too few layers": ({"layers": 2, "pp": 4}, "2 layers cannot fill"),
    "layers given": ({"layer_split": [1, 2, 3, 4]}, "add up to 10"),
    "stages": ({"vp": 3, "schedule": "interleaved-1f1b", "layers": 10}, "10 layers cannot fill"),
    "precision": ({"gpu": "V100-SXM2-32GB", "precision": "fp8"}, "has no fp8 matrix units"),
    "nodes": ({"gpus_per_node": 0}, "gpus_per_node=0 must be a whole number"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_rows_say_what_is_wrong(kind: str) -> None:
    changes, message = BAD[kind]
    with pytest.raises(PipesimError) as caught:
        predict(**changes)
    assert message in str(caught.value)


def test_more_of_everything_costs_what_it_should() -> None:
    base = predict()
    assert predict(recompute="full").step_time_s > 1.15 * base.step_time_s
    assert predict(recompute="full").memory_gb < base.memory_gb
    assert predict(node_network_gbit_s=400).step_time_s > base.step_time_s
    assert predict(global_batch=512).bubble_fraction < base.bubble_fraction
    assert predict(precision="fp8").step_time_s < base.step_time_s
    assert predict(attention="torch").step_time_s > base.step_time_s
    assert predict(schedule="zb-2p").step_time_s < base.step_time_s
    assert predict(framework="nanotron v0.5", sequence_parallel=False).step_time_s > base.step_time_s


@given(
    st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2])
)
def test_twice_the_batch_takes_at_most_twice_as_long(tp: int, pp: int, micro: int, zero: int) -> None:
    dp = 64 // (tp * pp)
    layout = {"tp": tp, "pp": pp, "dp": dp, "micro_batch": micro, "zero_stage": zero, "sequence_parallel": tp > 1}
    one, two = (predict(**layout, global_batch=count * 512) for count in (1, 2))
    assert one.step_time_s < two.step_time_s <= 2 * one.step_time_s
    assert all(value == value for value in asdict(one).values())
