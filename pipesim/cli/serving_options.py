"""Options of serving: how a model is deployed, and what it is asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from pipesim.cli.options.case import BadCase, Tp
from pipesim.cli.serving_workload import CacheFormat, EngineName, Output, Prompt, Weights, Workload, lengths
from pipesim.costs.clusters.cluster_catalogue import load_cluster
from pipesim.costs.models.model_catalog import load_model
from pipesim.serving.deployment import Deployment
from pipesim.serving.engine import find_engine
from pipesim.serving.formats import cache_bytes, weight_format
from pipesim.serving.pools import Pools, pools_of
from pipesim.units import parse_seconds


@dataclass(frozen=True)
class DeploymentOptions:
    """How a model is deployed, as given."""

    panel: ClassVar[str] = "Deployment"

    tp: Tp = 1
    pp: Annotated[int, typer.Option("--ranks", "--pp", "-p", min=1, help="Pipeline stages of a replica.")] = 1
    dp: Annotated[int, typer.Option("--dp", min=1, help="Replicas, to which requests are dealt in turn.")] = 1
    weights: Weights = "bf16"
    cache: CacheFormat = "bf16"
    engine: EngineName = "vllm"
    graphs: Annotated[
        bool | None, typer.Option("--graphs/--no-graphs", help="Decode steps as CUDA graphs (as the engine does).")
    ] = None
    groups: Annotated[
        int, typer.Option("--groups", min=0, help="Groups of requests in flight (as many as stages).")
    ] = 0
    max_batch: Annotated[
        int, typer.Option("--max-batch", min=0, help="Most requests a replica runs at a time (as memory allows).")
    ] = 0
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", min=0, help="Most new tokens in a step (as the engine does).")
    ] = 0
    block: Annotated[int, typer.Option("--block", min=1, help="Tokens in a block of the cache.")] = 16
    chunked: Annotated[bool, typer.Option("--chunked/--no-chunked", help="Cut prompts to the room in a step.")] = True
    prefill: Annotated[
        str | None,
        typer.Option("--prefill", metavar="TPxPPxN", help="A pool of its own for prompts: 4x1x2 is 2 of tp4."),
    ] = None


@dataclass(frozen=True)
class WorkloadOptions:
    """What is asked for, as given."""

    panel: ClassVar[str] = "Requests"

    prompt: Prompt = "512"
    output: Output = "128"
    batch: Annotated[int | None, typer.Option("--batch", min=1, help="Requests that start together.")] = None
    requests: Annotated[Path | None, typer.Option("--requests", help="CSV: arrival_s,prompt_tokens,output_tokens.")] = (
        None
    )
    rate: Annotated[str | None, typer.Option("--rate", help="Requests that arrive at random: 3/s or 100/min.")] = None
    rates: Annotated[str | None, typer.Option("--rates", help="A load curve over rates: 1,2,4,8 (a second).")] = None
    duration: Annotated[str, typer.Option("--duration", help="How long requests arrive: 60s, 10min, 1h.")] = "10min"
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", min=1, help="Clients that each wait for their answer.")
    ] = None
    count: Annotated[int | None, typer.Option("--count", min=1, help="Requests of all clients together.")] = None
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of arrivals and lengths.")] = 0


def deployment_of(model: str, cluster: str, given: DeploymentOptions) -> Deployment | Pools:
    """The deployment, with a pool for prompts where there is one. Raises BadCase, and what reading names raises."""
    habits = find_engine(given.engine)
    made = Deployment(
        model=load_model(model),
        cluster=load_cluster(cluster),
        tp=given.tp,
        pp=given.pp,
        replicas=given.dp,
        weights=weight_format(given.weights),
        cache_bytes=cache_bytes(given.cache),
        engine=habits if given.graphs is None else replace(habits, graph=given.graphs),
        groups=given.groups,
        batch=given.max_batch,
        tokens=given.max_tokens,
        block_tokens=given.block,
        chunked=given.chunked,
    )
    return made if given.prefill is None else _with_pool(made, given.prefill)


def workload_of(given: WorkloadOptions) -> Workload:
    """What is asked for. Raises BadCase, BadQuantity."""
    return Workload(
        prompt=lengths("--input", given.prompt),
        output=lengths("--output", given.output),
        duration_s=parse_seconds(given.duration, name="--duration", positive=True),
        seed=given.seed,
        batch=given.batch,
        trace=given.requests,
        rate=given.rate,
        clients=given.concurrency,
        count=given.count,
    )


def _with_pool(decode: Deployment, text: str) -> Pools:
    """The deployment with a pool for prompts before it: "4x1x2" is two replicas of tp 4 and one stage."""
    parts = text.lower().split("x")
    if len(parts) != 3 or not all(part.isdecimal() and int(part) for part in parts):
        raise BadCase(f"--prefill {text}: not TPxPPxREPLICAS", "expected e.g. 4x1x2")
    tp, pp, copies = (int(part) for part in parts)
    return pools_of(replace(decode, tp=tp, pp=pp, replicas=copies, groups=0), decode)
