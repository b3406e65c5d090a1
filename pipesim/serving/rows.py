"""What a row of measured inference would read: latency, time of a token, throughput.

A row has the model's shape, GPU, tp, pp, precision, engine and the workload, matched leniently; what it leaves out is
the engine's usual setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from pipesim.costs.clusters.cluster import Cluster
from pipesim.costs.clusters.cluster_catalogue import plain_cluster
from pipesim.costs.clusters.gpu import Gpu, find_gpu, gpu_keys
from pipesim.costs.models.model import Model
from pipesim.costs.rows import Row, count_of, words_of
from pipesim.errors import PipesimError
from pipesim.serving.bench import requests_sent, tuned_limits
from pipesim.serving.build import instance_of
from pipesim.serving.deployment import Deployment
from pipesim.serving.encoder import drawn_lengths, forward_seconds, microbatches_of
from pipesim.serving.engine import closest_engine
from pipesim.serving.formats import weight_format
from pipesim.serving.memory import largest_batch
from pipesim.serving.requests import Requests, at_once
from pipesim.serving.results import Served
from pipesim.serving.serve import serve

_CLOSED_LOOP_ROUNDS = 10
"""Requests of a closed loop, over its concurrency: enough for a steady state."""
_FEWEST = 100
_NODE_GPUS = 8


def is_inference(row: Mapping[str, object]) -> bool:
    """Whether a row of runs is of inference rather than training."""
    return "input_len" in row or "output_len" in row or "engine" in row


_count = partial(count_of, least=0)  # 0 is no output, or the usual


def predict_inference(row: Mapping[str, object]) -> dict[str, float]:
    """Every figure that a row of its kind measures. Raises PipesimError where the row does not say enough."""
    kind = words_of(row, "kind")
    if kind == "prefill_like_forward" or _count(row, "output_len", 1) == 0:
        return {"latency_s": _forward(row)}
    if kind == "offline_max_throughput" or ("throughput" in kind and row.get("batch") is None):
        return _figures(_offline(row), row)
    if kind == "online_concurrency":
        return _figures(_closed_loop(row), row)
    return _figures(_static(row), row)


def deployment_of(row: Row) -> Deployment:
    """Model, cluster, split, formats and engine of a row."""
    engine = closest_engine(words_of(row, "engine"))
    tp, pp = _count(row, "tp", 1), _count(row, "pp", 1)
    gpus = max(_count(row, "num_gpus", tp * pp), tp * pp)
    fields = {**row, "arch": "llama" if "llama" in words_of(row, "arch") or row.get("gated_mlp") else "gpt"}
    fields.setdefault("vocab", 1)
    model = Model.from_fields({key: value for key, value in fields.items() if value is not None})
    weights = weight_format(words_of(row, "precision") or "bf16")
    narrow = engine.name.startswith("trt-llm") and weights.name in ("fp8", "fp4")  # its checkpoints' caches are fp8
    return Deployment(
        model=model,
        cluster=_cluster(_gpu(str(row.get("gpu") or "")), gpus, words_of(row, "fabric")),
        tp=tp,
        pp=pp,
        replicas=max(1, _count(row, "dp", 1)),
        weights=weights,
        cache_bytes=1.0 if narrow else 2.0,
        engine=engine,
        context=1 << 30,
    )


def _forward(row: Row) -> float:
    """An encoder's forward, or a prompt's without any output."""
    deployment = deployment_of(row)
    batch, seq = _count(row, "batch", 1), _count(row, "input_len", 1)
    if "bert" in words_of(row, "arch") and deployment.engine.name == "faster-transformer":
        lengths = drawn_lengths(batch, seq, deployment.model.hidden)
    else:
        lengths = (seq,) * batch
    microbatches = microbatches_of(lengths, padded=seq, stages=deployment.pp)
    return forward_seconds(instance_of(deployment, most_tokens=batch * seq), microbatches)


def _static(row: Row) -> Served:
    """A batch that starts together and ends together."""
    deployment = deployment_of(row)
    batch, prompt, output = (
        _count(row, "batch", 1),
        _count(row, "input_len", 1),
        _count(row, "output_len", 1),
    )
    groups = deployment.pp if batch % deployment.pp == 0 and not deployment.engine.in_turn else 1
    deployment = replace(deployment, batch=batch, tokens=batch * prompt, chunked=False, groups=groups)
    return _served(deployment, at_once(count=batch, prompt=prompt, output=output))


def _closed_loop(row: Row) -> Served:
    deployment = deployment_of(row)
    clients, prompt, output = (
        _count(row, "batch", 1),
        _count(row, "input_len", 1),
        _count(row, "output_len", 1),
    )
    count = max(_CLOSED_LOOP_ROUNDS * clients, min(_FEWEST, 10 * clients))
    return _served(deployment, at_once(count=count, prompt=prompt, output=output, concurrency=clients))


def _offline(row: Row) -> Served:
    """All requests are there from the start; engine limits as its benchmark tunes them."""
    deployment = deployment_of(row)
    prompt, output = _count(row, "input_len", 1), _count(row, "output_len", 1)
    fit = largest_batch(replace(deployment, batch=1), prompt + output)
    batch, tokens = tuned_limits(fit=fit, prompt=prompt, output=output, stages=deployment.pp)
    deployment = replace(deployment, batch=batch * deployment.pp, tokens=max(tokens, batch * deployment.pp))
    return _served(deployment, at_once(count=requests_sent(prompt, output), prompt=prompt, output=output))


def _served(deployment: Deployment, requests: Requests) -> Served:
    return serve(deployment, requests).served


def _figures(found: Served, row: Row) -> dict[str, float]:
    """All keys that rows use; those of a step are of a whole batch."""
    batch = max(1, _count(row, "batch", 1))
    output = max(1, _count(row, "output_len", 1))
    step = found.duration_s / output
    figures: dict[str, float] = {
        "latency_s": found.duration_s,
        "time_per_decode_step_s": step,
        "ms_per_token_total": 1e3 * step / batch,
        "tokens_per_s": found.output_tokens_per_s,
        "output_tokens_per_s_total": found.output_tokens_per_s,
        "requests_per_s": found.requests_per_s,
    }
    if found.ttft is not None:
        figures["ttft_ms"] = 1e3 * found.ttft.mean
    if found.tpot is not None:
        figures["itl_ms"] = 1e3 * found.tpot.mean
    return figures


def _cluster(gpu: Gpu, gpus: int, fabric: str) -> Cluster:
    per_node = min(gpus, 72 if "nvlink-domain" in fabric or gpu.key.startswith("gb") else _NODE_GPUS)
    while gpus % per_node:
        per_node -= 1
    return plain_cluster(gpu, nodes=gpus // per_node, gpus_per_node=per_node, node_gbit_per_s=200.0 * per_node)


def _gpu(text: str) -> Gpu:
    """The GPU a free text means: its name, or the longest catalogue key whose words begin it."""
    try:
        return find_gpu(text)
    except PipesimError:
        low = text.lower()
        names = sorted((find_gpu(key) for key in gpu_keys()), key=lambda gpu: -len(gpu.name))
        for gpu in names:
            if low.startswith(gpu.name.lower()):
                return gpu
        word = low.replace("(", " ").split()[0] if low.split() else ""
        return find_gpu(word)
