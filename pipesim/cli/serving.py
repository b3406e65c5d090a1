"""`pipesim serving`: a model served to a batch, to a stream of requests, or at several rates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from pipesim.cli.options.case import BadCase, Tp
from pipesim.cli.options.outputs import ChartFile, Json
from pipesim.cli.serving_workload import (
    CacheFormat,
    EngineName,
    Output,
    Prompt,
    Weights,
    Workload,
    lengths,
    per_second,
    progress,
    run_json,
    stream_of,
)
from pipesim.cli.views.tables import console
from pipesim.costs.clusters.cluster_catalogue import load_cluster
from pipesim.costs.models.model_catalog import load_model
from pipesim.files import require_writable
from pipesim.serving.deployment import Deployment
from pipesim.serving.engine import find_engine
from pipesim.serving.formats import cache_bytes, weight_format
from pipesim.serving.load import Load, load_curve, most_tokens, run_on
from pipesim.serving.pools import Pools, pools_of
from pipesim.serving.serve import Service
from pipesim.units import parse_seconds

_KEPT_STEPS = 4000  # of the first, for the chart

ModelName = Annotated[str, typer.Option("--model", help="A model of the catalogue, a config.json or its folder.")]
ClusterName = Annotated[str, typer.Option("--cluster", help="PRESET:NODES such as dgx-a100:1, or a file.")]
Pp = Annotated[int, typer.Option("--ranks", "--pp", "-p", min=1, help="Pipeline stages of a replica.")]
Replicas = Annotated[int, typer.Option("--dp", min=1, help="Replicas, to which requests are dealt in turn.")]
Graphs = Annotated[
    bool | None, typer.Option("--graphs/--no-graphs", help="Decode steps as CUDA graphs (as the engine does).")
]
Groups = Annotated[int, typer.Option("--groups", min=0, help="Groups of requests in flight (as many as stages).")]
Batch = Annotated[int | None, typer.Option("--batch", min=1, help="Requests that start together.")]
Trace = Annotated[Path | None, typer.Option("--requests", help="CSV: arrival_s,prompt_tokens,output_tokens.")]
Rate = Annotated[str | None, typer.Option("--rate", help="Requests that arrive at random: 3/s or 100/min.")]
Rates = Annotated[str | None, typer.Option("--rates", help="A load curve over rates: 1,2,4,8 (a second).")]
Duration = Annotated[str, typer.Option("--duration", help="How long requests arrive: 60s, 10min, 1h.")]
Clients = Annotated[int | None, typer.Option("--concurrency", min=1, help="Clients that each wait for their answer.")]
Count = Annotated[int | None, typer.Option("--count", min=1, help="Requests of all clients together.")]
MaxBatch = Annotated[int, typer.Option("--max-batch", min=0, help="Most requests a replica runs at a time.")]
MaxTokens = Annotated[int, typer.Option("--max-tokens", min=0, help="Most new tokens in a step.")]
BlockTokens = Annotated[int, typer.Option("--block", min=1, help="Tokens in a block of the cache.")]
Chunked = Annotated[bool, typer.Option("--chunked/--no-chunked", help="Cut prompts to the room in a step.")]
Prefill = Annotated[
    str | None, typer.Option("--prefill", metavar="TPxPPxN", help="A pool of its own for prompts: 4x1x2 is 2 of tp4.")
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of arrivals and lengths.")]


def serving(
    model: ModelName,
    cluster: ClusterName,
    tp: Tp = 1,
    pp: Pp = 1,
    dp: Replicas = 1,
    weights: Weights = "bf16",
    cache: CacheFormat = "bf16",
    engine: EngineName = "vllm",
    graphs: Graphs = None,
    groups: Groups = 0,
    prompt: Prompt = "512",
    output: Output = "128",
    batch: Batch = None,
    requests: Trace = None,
    rate: Rate = None,
    rates: Rates = None,
    duration: Duration = "10min",
    concurrency: Clients = None,
    count: Count = None,
    max_batch: MaxBatch = 0,
    max_tokens: MaxTokens = 0,
    block: BlockTokens = 16,
    chunked: Chunked = True,
    prefill: Prefill = None,
    seed: Seed = 0,
    out: ChartFile = None,
    as_json: Json = False,
) -> None:
    """Simulate serving: time to first token, time per token, throughput, memory, bubble.

    Example: pipesim serving --model llama-3-70b --cluster dgx-a100:1 --tp 4 --pp 2 --rate 3/s --duration 10min
    """
    if out is not None:
        require_writable(out)
    habits = find_engine(engine)
    if graphs is not None:
        habits = replace(habits, graph=graphs)
    made = Deployment(
        model=load_model(model), cluster=load_cluster(cluster), tp=tp, pp=pp, replicas=dp,
        weights=weight_format(weights), cache_bytes=cache_bytes(cache), engine=habits, groups=groups,
        batch=max_batch, tokens=max_tokens, block_tokens=block, chunked=chunked,
    )  # fmt: skip
    target = _with_pool(made, prefill) if prefill is not None else made
    asked = Workload(prompt=lengths("--input", prompt), output=lengths("--output", output), seed=seed,
                     duration_s=parse_seconds(duration, name="--duration", positive=True), batch=batch, trace=requests,
                     rate=rate, clients=concurrency, count=count)  # fmt: skip
    if rates is not None:
        points = load_curve(
            target, [per_second("--rates", text) for text in rates.split(",")],
            duration_s=asked.duration_s, prompt=asked.prompt, output=asked.output, seed=seed,
        )  # fmt: skip
        _show_curve(target, points, out, as_json)
        return
    stream = stream_of(asked, most_tokens(target))
    if batch is not None and isinstance(target, Deployment):
        target = replace(target, batch=max(max_batch, -(-batch // dp)), tokens=max(target.most_tokens, batch))
    with progress(len(stream)) as tell:
        found = run_on(target, stream, progress=tell, keep=_KEPT_STEPS if out else 0)
    _show(target, found, asked, out, as_json)


def _with_pool(decode: Deployment, text: str) -> Pools:
    """The deployment with a pool for prompts before it: "4x1x2" is two replicas of tp 4 and one stage."""
    parts = text.lower().split("x")
    if len(parts) != 3 or not all(part.isdecimal() and int(part) for part in parts):
        raise BadCase(f"--prefill {text}: not TPxPPxREPLICAS", "expected e.g. 4x1x2")
    tp, pp, copies = (int(part) for part in parts)
    return pools_of(replace(decode, tp=tp, pp=pp, replicas=copies, groups=0), decode)


def _show(target: Deployment | Pools, found: Service, asked: Workload, out: Path | None, as_json: bool) -> None:
    decode = target.decode if isinstance(target, Pools) else target
    if out is not None:
        from pipesim.cli.views.serving_chart import write_run

        write_run(out, _headline(decode), found)
    if as_json:
        print(json.dumps(run_json(target, found, asked)))
        return
    from pipesim.cli.views.serving_tables import run_tables

    for table in run_tables(target, found, asked):
        console().print(table)


def _show_curve(target: Deployment | Pools, points: Sequence[Load], out: Path | None, as_json: bool) -> None:
    decode = target.decode if isinstance(target, Pools) else target
    if out is not None:
        from pipesim.cli.views.serving_chart import write_curve

        write_curve(out, _headline(decode), points)
    if as_json:
        print(json.dumps([{"rate_per_s": point.rate, **point.served.to_json()} for point in points]))
        return
    from pipesim.cli.views.serving_tables import curve_table

    console().print(curve_table(_headline(decode), points))


def _headline(made: Deployment) -> str:
    return f"{made.model.name} on {made.cluster.name}: {made.describe()}"
