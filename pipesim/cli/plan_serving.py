"""`pipesim plan --serving`: the split and batch that serve the most requests within limits on latency."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Any

from pipesim.cli.serving_workload import lengths
from pipesim.costs.clusters.cluster_catalogue import load_cluster
from pipesim.costs.models.model_catalog import load_model
from pipesim.serving.deployment import Deployment
from pipesim.serving.engine import find_engine
from pipesim.serving.formats import cache_bytes, weight_format
from pipesim.serving.plan import Choice, ServingPlan, parse_objective, plan_serving
from pipesim.units import format_seconds


def plan_service(
    model: str,
    cluster: str,
    *,
    slo: str,
    prompt: str,
    output: str,
    weights: str,
    cache: str,
    engine: str,
    as_json: bool,
) -> None:
    """Search and print. Raises PipesimError."""  # fmt: skip
    base = Deployment(
        model=load_model(model), cluster=load_cluster(cluster), weights=weight_format(weights),
        cache_bytes=cache_bytes(cache), engine=find_engine(engine),
    )  # fmt: skip
    found = plan_serving(
        base,
        parse_objective(slo),
        prompt=lengths("--input", prompt),
        output=lengths("--output", output),
        progress=_tell if sys.stderr.isatty() else None,
    )
    words = {"--model": model, "--cluster": cluster, "--weights": weights, "--cache": cache, "--engine": engine,
             "--input": prompt, "--output": output}  # fmt: skip
    command = _command(found.choices[0], words)
    if as_json:
        print(json.dumps({**_to_json(found), "objective": slo, "command": command}))
    else:
        _print(found, f"{base.model.name} on {base.cluster.name}, {slo}: {prompt} tokens in, {output} out", command)


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

    from pipesim.cli.tables import console

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
