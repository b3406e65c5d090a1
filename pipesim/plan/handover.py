"""A planned layout in other words: our own commands, Megatron-LM's arguments, torchtitan's TOML.

Megatron-LM: megatron/training/arguments.py and megatron/core/transformer/transformer_config.py (core 0.14);
its zero-bubble fork: sail-sg/zero-bubble-pipeline-parallelism. torchtitan: torchtitan/config/job_config.py (0.1).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

from pipesim.costs.layouts.layout import Layout
from pipesim.costs.models.model import Model
from pipesim.plan.space import Choice

_ZERO_BUBBLE_FORK = {"zb-h1": ["--enable-zero-bubble"], "zb-v": ["--zero-bubble-v-schedule"]}
_MEGATRON_SCHEDULES = ("1f1b", "interleaved", *_ZERO_BUBBLE_FORK)
_TITAN_SCHEDULES = {
    "1f1b": "1F1B",
    "gpipe": "GPipe",
    "interleaved": "Interleaved1F1B",
    "looped-bfs": "LoopedBFS",
    "interleaved-zb": "InterleavedZeroBubble",
    "zb-v": "ZBVZeroBubble",
    "dualpipe-v": "DualPipeV",
}


def simulate_command(choice: Choice, layout: Layout, model: str, cluster: str) -> str:
    """The `pipesim simulate` that shows this choice in full."""
    words = ["pipesim", "simulate", choice.schedule, "--model", model, "--cluster", cluster]
    words += ["--pp", str(layout.pp), "--tp", str(layout.tp), "--dp", str(layout.dp)]
    options: tuple[tuple[str, int | str, int | str], ...] = (
        ("--cp", layout.cp, 1),
        ("--ep", layout.ep, 1),
        ("--virtual", choice.virtual or 1, 1),
        ("--zero", layout.zero_stage, 0),
        ("--recompute", layout.recompute, "none"),
        ("--precision", layout.precision, "bf16"),
        ("--split", _split_text(layout), "even"),
    )
    for option, value, usual in options:
        if value != usual:
            words += [option, str(value)]
    words += ["--micro-batch", str(layout.micro_batch), "--global-batch", str(layout.global_batch)]
    words += ["--seq", str(layout.seq)]
    if layout.tp > 1 and not layout.sequence_parallel:
        words.append("--no-sequence-parallel")
    return shlex.join(words)


def launch_command(choice: Choice, layout: Layout, *, nodes: int, gpus_per_node: int, schedule: str | None) -> str:
    """The `pipesim launch` that runs it; `schedule` is a file of it, if one was written."""
    words = ["pipesim", "launch", "--nnodes", str(nodes), "--gpus-per-node", str(gpus_per_node), "--slurm"]
    words += ["--", schedule or choice.schedule]
    degrees = {"pp": layout.pp, "tp": layout.tp, "dp": layout.dp, "cp": layout.cp, "ep": layout.ep}
    words += ["--layout", ",".join(f"{name}={value}" for name, value in degrees.items() if value > 1 or name == "pp")]
    if schedule is None and choice.virtual:
        words += ["--virtual", str(choice.virtual)]
    words += ["--microbatches", str(layout.microbatches), "--micro-batch", str(layout.micro_batch)]
    return shlex.join([*words, "--seq", str(layout.seq), "--device", "cuda"])


def _split_text(layout: Layout) -> str:
    return layout.split if isinstance(layout.split, str) else ",".join(map(str, layout.split))


def megatron_arguments(model: Model, choice: Choice, layout: Layout, layers: Sequence[int]) -> list[str]:
    """Arguments of pretrain_gpt.py; ["# …"] first where Megatron-LM cannot do the same."""
    words = [
        "--tensor-model-parallel-size", str(layout.tp),
        "--pipeline-model-parallel-size", str(layout.pp),
        "--context-parallel-size", str(layout.cp),
        "--micro-batch-size", str(layout.micro_batch),
        "--global-batch-size", str(layout.global_batch),
        "--seq-length", str(layout.seq),
        "--max-position-embeddings", str(max(layout.seq, model.max_positions)),
        *_megatron_model(model),
        *_megatron_pipeline(choice, layout, layers),
    ]  # fmt: skip
    if model.experts is not None:
        words += ["--expert-model-parallel-size", str(layout.ep)]
    if layout.sequence_parallel:
        words.append("--sequence-parallel")
    if layout.zero_stage:
        words += ["--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather"]
    if layout.zero_stage >= 2:
        words += ["--use-megatron-fsdp", "--data-parallel-sharding-strategy"]
        words.append("optim_grads" if layout.zero_stage == 2 else "optim_grads_params")
    if layout.recompute == "full":
        words += ["--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", "1"]
    if layout.recompute == "selective":
        names = {"core_attention": "core_attn", "norms": "layernorm", "mlp_activation": "mlp", "mlp": "mlp"}
        modules = dict.fromkeys(names[module] for module in layout.recompute_modules)
        words += ["--recompute-granularity", "selective", "--recompute-modules", *modules]
    words += ["--fp8-format", "hybrid"] if layout.precision == "fp8" else []
    words.append("--fp16" if layout.precision == "fp16" else "--bf16")
    if choice.schedule not in _MEGATRON_SCHEDULES and layout.pp > 1:
        return [f"# Megatron-LM has no schedule {choice.schedule}; with 1F1B the rest would be:", *words]
    return words


def _megatron_model(model: Model) -> list[str]:
    words = [
        "--num-layers", str(model.layers), "--hidden-size", str(model.hidden), "--ffn-hidden-size", str(model.ffn),
        "--num-attention-heads", str(model.heads),
    ]  # fmt: skip
    if model.kv_heads < model.heads and model.latent is None:
        words += ["--group-query-attention", "--num-query-groups", str(model.kv_heads)]
    if model.head_dim * model.heads != model.hidden:
        words += ["--kv-channels", str(model.head_dim)]
    words += ["--normalization", "RMSNorm" if model.norm == "rms" else "LayerNorm"]
    words += ["--position-embedding-type", "rope"] if model.positions == "rotary" else []
    words += ["--swiglu"] if model.gated_mlp else []
    words += [] if model.tied_embeddings else ["--untie-embeddings-and-output-weights"]
    words += [] if model.mlp_bias or model.qkv_bias or model.output_bias else ["--disable-bias-linear"]
    if model.experts is not None:
        words += ["--num-experts", str(model.experts.count), "--moe-router-topk", str(model.experts.per_token)]
        words += ["--moe-ffn-hidden-size", str(model.experts.ffn), "--moe-grouped-gemm"]
    return words


def _megatron_pipeline(choice: Choice, layout: Layout, layers: Sequence[int]) -> list[str]:
    """Stages on ranks: an even split by numbers, any other by its layout string (E embedding, t layer, L loss)."""
    if layout.pp == 1:
        return []
    fork = _ZERO_BUBBLE_FORK.get(choice.schedule, [])
    if len(set(layers)) > 1:
        parts = [f"t*{count}" if count else "" for count in layers]
        parts[0], parts[-1] = "E" + parts[0], parts[-1] + "L"
        return ["--pipeline-model-parallel-layout", "|".join(parts), *fork]
    if choice.virtual:
        return ["--num-virtual-stages-per-pipeline-rank", str(choice.virtual), *fork]
    return fork


def torchtitan_toml(
    model: Model, choice: Choice, layout: Layout, layers: Sequence[int], *, schedule_csv: str | None = None
) -> str:
    """A torchtitan configuration; its optimizer, data and checkpoints are the user's to add.

    schedule_csv: a file of the schedule, for one that torch does not have by name.
    """
    sharded = layout.zero_stage > 0
    pipelined = layout.pp > 1
    local = layout.microbatches * layout.micro_batch if pipelined else layout.micro_batch
    lines = [
        f"# {model.name}: {layout.gpus} GPUs",
        *(["# torchtitan shards gradients with the optimizer (ZeRO-2)"] if layout.zero_stage == 1 else []),
        "[training]",
        f"local_batch_size = {local}",
        f"global_batch_size = {layout.global_batch}",
        f"seq_len = {layout.seq}",
        "",
        "[parallelism]",
        f"data_parallel_replicate_degree = {1 if sharded else layout.dp}",
        f"data_parallel_shard_degree = {layout.dp if sharded else 1}",
        f'fsdp_reshard_after_forward = "{"always" if layout.zero_stage == 3 else "never"}"',
        f"tensor_parallel_degree = {layout.tp}",
        f"context_parallel_degree = {layout.cp}",
        f"expert_parallel_degree = {layout.ep}",
        f"pipeline_parallel_degree = {layout.pp}",
    ]
    if pipelined:
        known = _TITAN_SCHEDULES.get(choice.schedule)
        lines.append(f'pipeline_parallel_schedule = "{known or "_PipelineScheduleRuntime"}"')
        if known is None:
            lines.append(f'pipeline_parallel_schedule_csv = "{schedule_csv or choice.schedule + ".csv"}"')
        lines.append(f"pipeline_parallel_microbatch_size = {layout.micro_batch}")
        lines.append(f"module_fqns_per_model_part = {json.dumps(_parts(layers))}")
    lines += ["", "[activation_checkpoint]", f'mode = "{layout.recompute}"']
    if layout.recompute == "selective":
        lines.append('selective_ac_option = "op"')
    return "\n".join(lines) + "\n"


def _parts(layers: Sequence[int]) -> list[list[str]]:
    """Names of the modules of each stage."""
    first, found = 0, []
    for count in layers:
        found.append([f"layers.{layer}" for layer in range(first, first + count)])
        first += count
    found[0].insert(0, "tok_embeddings")
    found[-1] += ["norm", "output"]
    return found
