"""`pipesim serving`: a model served to a batch, to a stream of requests, or at several rates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from pipesim.cli.options.outputs import ChartFile, Json
from pipesim.cli.serving_options import DeploymentOptions, WorkloadOptions, deployment_of, workload_of
from pipesim.cli.serving_workload import Workload, per_second, progress, run_json, stream_of
from pipesim.cli.views.tables import console
from pipesim.files import require_writable
from pipesim.serving.deployment import Deployment
from pipesim.serving.load import Load, load_curve, most_tokens, run_on
from pipesim.serving.pools import Pools
from pipesim.serving.serve import Service

_KEPT_STEPS = 4000  # of the first, for the chart

ModelName = Annotated[str, typer.Option("--model", help="A model of the catalogue, a config.json or its folder.")]
ClusterName = Annotated[str, typer.Option("--cluster", help="PRESET:NODES such as dgx-a100:1, or a file.")]


def serving(
    model: ModelName,
    cluster: ClusterName,
    deployment: DeploymentOptions,
    requests: WorkloadOptions,
    out: ChartFile = None,
    as_json: Json = False,
) -> None:
    """Simulate serving: time to first token, time per token, throughput, memory, bubble.

    Example: pipesim serving --model llama-3-70b --cluster dgx-a100:1 --tp 4 --pp 2 --rate 3/s --duration 10min
    """
    if out is not None:
        require_writable(out)
    target, asked = deployment_of(model, cluster, deployment), workload_of(requests)
    if requests.rates is not None:
        points = load_curve(
            target, [per_second("--rates", text) for text in requests.rates.split(",")],
            duration_s=asked.duration_s, prompt=asked.prompt, output=asked.output, seed=asked.seed,
        )  # fmt: skip
        _show_curve(target, points, out, as_json)
        return
    stream = stream_of(asked, most_tokens(target))
    batch = asked.batch
    if batch is not None and isinstance(target, Deployment):
        room = max(deployment.max_batch, -(-batch // deployment.dp))
        target = replace(target, batch=room, tokens=max(target.most_tokens, batch))
    with progress(len(stream)) as tell:
        found = run_on(target, stream, progress=tell, keep=_KEPT_STEPS if out else 0)
    _show(target, found, asked, out, as_json)


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
