"""`pipesim plan --serving`: the split and batch that serve the most requests within limits on latency."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import typer

from pipesim.cli.serving_workload import CacheFormat, EngineName, Output, Prompt, Weights, lengths
from pipesim.costs.clusters.cluster_catalogue import load_cluster
from pipesim.costs.models.model_catalog import load_model
from pipesim.serving.deployment import Deployment
from pipesim.serving.engine import find_engine
from pipesim.serving.formats import cache_bytes, weight_format
from pipesim.serving.plan import Choice, ServingPlan, parse_objective, plan_serving
from pipesim.units import format_seconds


@dataclass(frozen=True)
class ServiceOptions:
    """What is served and within which limits, as given."""

    panel: ClassVar[str] = "With --serving"

    slo: Annotated[str, typer.Option("--slo", help="Limits that 90 % of the requests keep.")] = "ttft=500ms,tpot=50ms"
    prompt: Prompt = "512±0.5"
    output: Output = "128±0.5"
    weights: Weights = "bf16"
    cache: CacheFormat = "bf16"
    engine: EngineName = "vllm"


def plan_service(model: str, cluster: str, given: ServiceOptions, *, as_json: bool) -> None:
    """Search and print. Raises PipesimError."""
    base = Deployment(
        model=load_model(model),
        cluster=load_cluster(cluster),
        weights=weight_format(given.weights),
        cache_bytes=cache_bytes(given.cache),
        engine=find_engine(given.engine),
    )
    found = plan_serving(
        base,
        parse_objective(given.slo),
        prompt=lengths("--input", given.prompt),
        output=lengths("--output", given.output),
        progress=_tell if sys.stderr.isatty() else None,
    )
    words = {
        "--model": model,
        "--cluster": cluster,
        "--weights": given.weights,
        "--cache": given.cache,
        "--engine": given.engine,
        "--input": given.prompt,
        "--output": given.output,
    }
    command = _command(found.choices[0], words)
    if as_json:
        print(json.dumps({**_to_json(found), "objective": given.slo, "command": command}))
    else:
        title = f"{base.model.name} on {base.cluster.name}, {given.slo}: {given.prompt} tokens in, {given.output} out"
        _print(found, title, command)


def _tell(name: str) -> None:
    print(f"\r\033[K{name}", end="", file=sys.stderr, flush=True)


def _command(best: Choice, words: dict[str, str]) -> str:
    """The command that simulates the best choice at its rate."""
    made = best.deployment
    parts = ["pipesim", "serving", *(part for pair in words.items() for part in pair)]
    parts += ["--tp", str(made.tp), "--pp", str(made.pp), "--dp", str(made.replicas), "--max-batch", str(made.batch)]
    return shlex.join([*parts, "--rate", f"{best.goodput_per_s:.3g}/s"])


def _to_json(found: ServingPlan) -> dict[str, Any]:
    return {
        "ranking": [
            {
                "tp": choice.deployment.tp,
                "pp": choice.deployment.pp,
                "replicas": choice.deployment.replicas,
                "max_batch": choice.deployment.batch,
                "goodput_requests_per_s": choice.goodput_per_s,
                "served": choice.served.to_json() if choice.served else None,
            }
            for choice in found.choices
        ],
        "refused": dict(found.refused),
    }


def _print(found: ServingPlan, title: str, command: str) -> None:
    from rich.table import Table

    from pipesim.cli.views.tables import console

    table = Table(title=title, title_justify="left")
    for column in (
        "tp",
        "pp",
        "replicas",
        "batch",
        "requests/s in the limits",
        "TTFT p90",
        "TPOT p90",
        "tokens/s a GPU",
    ):
        table.add_column(column, justify="right")
    for choice in found.choices:
        made, figures = choice.deployment, choice.served
        cells = ["0", "", "", ""]
        if figures is not None and figures.ttft is not None and figures.tpot is not None:
            limits = (format_seconds(spread.p90, digits=3) for spread in (figures.ttft, figures.tpot))
            cells = [f"{choice.goodput_per_s:.3g}", *limits, f"{figures.output_tokens_per_s_per_gpu:,.1f}"]
        table.add_row(str(made.tp), str(made.pp), str(made.replicas), str(made.batch), *cells)
    table.caption = "\n".join(f"{name}: {reason}" for name, reason in found.refused.items())
    screen = console()
    screen.print(table)
    screen.print(f"simulate the best: {command}", soft_wrap=True)
