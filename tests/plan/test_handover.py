"""What a plan says to other programs."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest

from pipesim.cli.app import main
from pipesim.costs.layouts.layout import Layout
from pipesim.costs.models.model_catalog import load_model
from pipesim.plan.handover import launch_command, megatron_arguments, simulate_command, torchtitan_toml
from pipesim.plan.space import Choice, Core

LLAMA = load_model("llama-3-70b")
CORE = Core(tp=8, cp=1, ep=1, micro_batch=1, sequence_parallel=True, recompute="full")
CHOICE = Choice(core=CORE, pp=4, dp=2, schedule="interleaved", virtual=5, zero=1, split="even")
LAYOUT = Layout(
    tp=8, pp=4, dp=2, virtual=5, sequence_parallel=True, zero_stage=1, recompute="full", micro_batch=1,
    global_batch=16, seq=8192,
)  # fmt: skip


def test_megatron_arguments_say_the_same():
    words = " ".join(megatron_arguments(LLAMA, CHOICE, LAYOUT, [4] * 20))
    for part in (
        "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 --context-parallel-size 1",
        "--micro-batch-size 1 --global-batch-size 16 --seq-length 8192",
        "--num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64",
        "--group-query-attention --num-query-groups 8 --normalization RMSNorm --position-embedding-type rope --swiglu",
        "--untie-embeddings-and-output-weights --disable-bias-linear --num-virtual-stages-per-pipeline-rank 5",
        "--sequence-parallel --use-distributed-optimizer",
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
        "--bf16",
    ):
        assert part in words


def test_megatron_gets_an_uneven_split_as_a_layout_string():
    choice = replace(CHOICE, schedule="1f1b", virtual=None)
    words = megatron_arguments(LLAMA, choice, LAYOUT, [19, 21, 21, 19])
    assert words[words.index("--pipeline-model-parallel-layout") + 1] == "Et*19|t*21|t*21|t*19L"


def test_what_megatron_cannot_do_is_said():
    assert megatron_arguments(LLAMA, replace(CHOICE, schedule="chimera"), LAYOUT, [20] * 4)[0] == (
        "# Megatron-LM has no schedule chimera; with 1F1B the rest would be:"
    )


def test_torchtitan_toml_says_the_same():
    found = tomllib.loads(torchtitan_toml(LLAMA, CHOICE, LAYOUT, [4] * 20))
    parallel = found["parallelism"]
    parts = parallel.pop("module_fqns_per_model_part")
    assert parallel == {
        "data_parallel_replicate_degree": 1,
        "data_parallel_shard_degree": 2,
        "fsdp_reshard_after_forward": "never",
        "tensor_parallel_degree": 8,
        "context_parallel_degree": 1,
        "expert_parallel_degree": 1,
        "pipeline_parallel_degree": 4,
        "pipeline_parallel_schedule": "Interleaved1F1B",
        "pipeline_parallel_microbatch_size": 1,
    }
    assert found["training"] == {"local_batch_size": 8, "global_batch_size": 16, "seq_len": 8192}
    assert found["activation_checkpoint"] == {"mode": "full"}
    assert parts[0] == ["tok_embeddings", "layers.0", "layers.1", "layers.2", "layers.3"]
    assert parts[-1] == ["layers.76", "layers.77", "layers.78", "layers.79", "norm", "output"]


def test_torchtitan_reads_a_schedule_it_has_no_name_for():
    found = tomllib.loads(
        torchtitan_toml(LLAMA, replace(CHOICE, schedule="zb-h1"), LAYOUT, [20] * 4, schedule_csv="best.csv")
    )
    assert found["parallelism"]["pipeline_parallel_schedule"] == "_PipelineScheduleRuntime"
    assert found["parallelism"]["pipeline_parallel_schedule_csv"] == "best.csv"


def test_our_own_command_runs(capsys: pytest.CaptureFixture[str]):
    command = simulate_command(CHOICE, LAYOUT, "llama-3-70b", "dgx-h100:8")
    assert command == (
        "pipesim simulate interleaved --model llama-3-70b --cluster dgx-h100:8 --pp 4 --tp 8 --dp 2 --virtual 5 "
        "--zero 1 --recompute full --micro-batch 1 --global-batch 16 --seq 8192"
    )
    assert main([*command.split()[1:], "--json"]) == 0
    assert '"step_time_s"' in capsys.readouterr().out


def test_launch_names_the_layout():
    command = launch_command(CHOICE, LAYOUT, nodes=8, gpus_per_node=8, schedule="best.json")
    assert command == (
        "pipesim launch --nnodes 8 --gpus-per-node 8 --slurm -- best.json --layout pp=4,tp=8,dp=2 "
        "--microbatches 8 --micro-batch 1 --seq 8192 --device cuda"
    )
