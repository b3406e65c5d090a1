"""Figures of serving as tables for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from pipesim.cli.serving_workload import Workload, memory_json, notes
from pipesim.serving.deployment import Deployment
from pipesim.serving.load import Load
from pipesim.serving.memory import memory_of
from pipesim.serving.pools import Pools
from pipesim.serving.results import Overload, Served, Spread
from pipesim.serving.serve import Service
from pipesim.units import format_bytes, format_seconds


def run_tables(target: Deployment | Pools, found: Service, asked: Workload) -> list[Table]:
    """Latencies and throughput, then memory of each stage."""
    decode = target.decode if isinstance(target, Pools) else target
    title = f"{decode.model.name} on {decode.cluster.name}: {decode.describe()}"
    if isinstance(target, Pools):
        title += f"\nprompts: {target.prefill.describe()}"
    table = Table(title=f"{title}\n{asked.describe()}", show_header=False, title_justify="left")
    for label, text in summary_rows(found.served):
        table.add_row(label, text)
    return [table, memory_table(decode, asked)]


def summary_rows(found: Served) -> list[tuple[str, str]]:
    """Label and text of each figure."""
    if found.overload is not None:
        latencies = [("OVERLOADED", overload_text(found.overload))]
    else:
        latencies = [
            (label, spread_text(spread))
            for label, spread in (
                ("time to first token", found.ttft),
                ("time per output token", found.tpot),
                ("latency", found.latency),
                ("wait for the first step", found.queue),
            )
            if spread is not None
        ]
    return [
        *latencies,
        ("output tokens/s", f"{found.output_tokens_per_s:,.1f} ({found.output_tokens_per_s_per_gpu:,.1f} a GPU)"),
        ("tokens/s with prompts", f"{found.total_tokens_per_s:,.1f}"),
        ("requests", f"{found.requests:,} in {format_seconds(found.duration_s)} ({found.requests_per_s:.3g}/s)"),
        ("requests in the system, mean", f"{found.in_system:.4g}"),
        ("bubble (stages idle while requests are there)", f"{found.bubble:.2%}"),
        ("tensor-parallel communication, of busy time", f"{found.communication:.2%}"),
        ("cache in use at the peak", f"{found.cache_peak:.1%}"),
        ("preemptions", f"{found.preemptions:,}"),
    ]


def spread_text(spread: Spread) -> str:
    """Mean and percentiles."""
    parts = (("p50", spread.p50), ("p90", spread.p90), ("p99", spread.p99), ("mean", spread.mean))
    return " · ".join(f"{name} {format_seconds(value, digits=3)}" for name, value in parts)


def overload_text(over: Overload) -> str:
    """Why no latency is given."""
    return (
        f"{over.offered_per_s:.3g} requests/s come, {over.served_per_s:.3g} are done: the queue grows by "
        f"{over.growth_per_s:.3g}/s without bound, and so do latencies"
    )


def memory_table(deployment: Deployment, asked: Workload) -> Table:
    """What each stage holds on a GPU."""
    table = Table(title="memory of one GPU", title_justify="left")
    for column in ("stage", "layers", "weights", "buffers", "cache", "cache of a token"):
        table.add_column(column, justify="right")
    for index, (stage, held) in enumerate(zip(deployment.stages, memory_of(deployment), strict=True)):
        cells = (held.weights, held.buffers, held.cache, held.token)
        table.add_row(str(index), str(stage.layers), *(format_bytes(value) for value in cells))
    largest = memory_json(deployment, asked)["largest_batch"]
    tokens = round(asked.prompt.mean + asked.output.mean)
    table.caption = f"largest batch that fits: {largest} requests of {tokens} tokens a replica\n" + "\n".join(
        notes(deployment)
    )
    return table


def curve_table(title: str, points: Sequence[Load]) -> Table:
    """A row a rate."""
    table = Table(title=title, title_justify="left")
    for column in ("requests/s", "TTFT p50", "TTFT p99", "TPOT p50", "TPOT p99", "latency p99", "output tokens/s"):
        table.add_column(column, justify="right")
    for point in points:
        found = point.served
        if found.ttft is None or found.latency is None:
            cells = ["overloaded", *[""] * 4]
        else:
            tpot = (found.tpot.p50, found.tpot.p99) if found.tpot is not None else (0.0, 0.0)
            values = (found.ttft.p50, found.ttft.p99, *tpot, found.latency.p99)
            cells = [format_seconds(value, digits=3) for value in values]
        table.add_row(f"{point.rate:g}", *cells, f"{found.output_tokens_per_s:,.0f}")
    return table
