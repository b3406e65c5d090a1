"""`pipesim simulate`: one schedule on given costs, as a table, JSON, chart, trace and timeline file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from pipesim.cli import case as options
from pipesim.cli import variation
from pipesim.cli.case import BadCase, Case, CostOptions, make_case, notes
from pipesim.cli.options import Group, MemoryLimit, Microbatches, Name, Offload, Option, Ranks, Slices, Virtual
from pipesim.engine.choose import ENGINES, Engine
from pipesim.engine.choose import simulate as run_engine
from pipesim.engine.durations import Durations
from pipesim.files import require_writable
from pipesim.ir.versions import staleness, versions_kept
from pipesim.metrics import Metrics, summarize
from pipesim.timeline import Timeline

Out = Annotated[Path | None, typer.Option("--out", help="Interactive chart, .html; or an image: .png, .svg, .pdf.")]
Trace = Annotated[Path | None, typer.Option("--trace", help="Chrome/Perfetto trace, a JSON file.")]
TimelineFile = Annotated[Path | None, typer.Option("--timeline", help="The timeline itself: OUT.jsonl or OUT.npz.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
EngineName = Annotated[str, typer.Option("--engine", help="event (reference), fast (compiled), or auto.")]


def simulate(
    name: Name,
    ranks: Ranks = None,
    microbatches: Microbatches = None,
    virtual: Virtual = None,
    group: Group = None,
    slices: Slices = None,
    memory_limit: MemoryLimit = None,
    offload: Offload = None,
    option: Option = None,
    costs: options.CostsText = None,
    model: options.ModelName = None,
    cluster: options.ClusterName = None,
    tp: options.Tp = 1,
    dp: options.Dp = None,
    cp: options.Cp = 1,
    ep: options.Ep = 1,
    micro_batch: options.MicroBatch = 1,
    global_batch: options.GlobalBatch = None,
    seq: options.Seq = 4096,
    precision: options.PrecisionName = "bf16",
    recompute: options.RecomputeName = "none",
    zero: options.Zero = 0,
    sequence_parallel: options.SequenceParallel = None,
    split: options.Split = "even",
    comm: options.CommPolicy = "edge",
    engine: EngineName = "auto",
    jitter: variation.Jitter = None,
    straggler: variation.Stragglers = None,
    lengths: variation.Lengths = None,
    samples: variation.SampleCount = None,
    seed: variation.Seed = 0,
    out: Out = None,
    trace: Trace = None,
    timeline: TimelineFile = None,
    as_json: Json = False,
) -> None:
    """Simulate one schedule: step time, bubbles, memory, chart.

    Example: pipesim simulate 1f1b -p 8 -m 24 --costs F=18.5ms,I=18ms,W=9.3ms,C=0.6ms --out chart.html
    """
    for path in (out, trace, timeline):
        if path is not None:
            require_writable(path)
    given = CostOptions(
        costs, model, cluster, tp, dp, cp, ep, micro_batch, global_batch, seq, precision, recompute, zero,
        sequence_parallel, split, comm,
    )  # fmt: skip
    case = make_case(
        name, given, ranks=ranks, microbatches=microbatches, virtual=virtual, group=group, slices=slices,
        memory_limit=memory_limit, offload=offload, option=option,
    )  # fmt: skip
    how = variation.variation(case, jitter, straggler, lengths, samples, seed, seq)
    case, timing = variation.varied(case, how)
    made, found = run_case(case, engine_of(engine), timing)
    many = variation.sampled(case, how)
    write_outputs(made, found, out=out, trace=trace, timeline=timeline)
    if as_json:
        print(json.dumps(to_json(case, found) | ({} if many is None else {"sampled": many.to_json()})))
    else:
        _print(case, found)
        if many is not None:
            _print_samples(many)
    warn_if_too_large(case, found)


def engine_of(text: str) -> Engine:
    """The engine of that name. Raises BadCase."""
    for engine in ENGINES:
        if engine == text:
            return engine
    raise BadCase(f"--engine {text}: no such engine", f"there are {', '.join(ENGINES)}")


def run_case(case: Case, engine: Engine, timing: Durations | None = None) -> tuple[Timeline, Metrics]:
    """Simulate a case; the timeline carries its facts. timing: times to take instead of those of its costs."""
    made = run_engine(case.program, case.costs, engine, timing)
    made.facts.update(case.facts or {})
    return made, summarize(made, case.costs)


def write_outputs(
    made: Timeline, found: Metrics, *, out: Path | None, trace: Path | None, timeline: Path | None
) -> None:
    """Write what was asked for. Raises CannotWrite."""
    if out is not None:
        from pipesim.viz.chart import chart
        from pipesim.viz.output import drawing_for, write_figure

        write_figure(chart(made, found, **drawing_for(out)), out)
    if trace is not None:
        from pipesim.viz.trace import write_trace

        write_trace(made, trace)
    if timeline is not None:
        from pipesim.timeline_file import save_timeline

        save_timeline(made, timeline)


def to_json(case: Case, found: Metrics) -> dict[str, Any]:
    """The stable object of --json."""
    schedule = case.schedule
    head = {"name": schedule.name, "ranks": schedule.ranks, "microbatches": schedule.microbatches}
    tail: dict[str, Any] = {"notes": list(notes(case))}
    if case.estimate is not None:
        tail["layers_per_stage"] = [stage.layers for stage in case.estimate.stages]
        tail |= case.facts or {}
    if schedule.update_every is not None:
        tail["weight_versions"] = versions_kept(schedule).tolist()
        tail["staleness"] = staleness(schedule).tolist()
    return head | found.to_json() | tail


def warn_if_too_large(case: Case, found: Metrics) -> None:
    """Say loudly on stderr when a rank needs more memory than its GPU has."""
    if found.fits is not False or case.costs.held is None or case.costs.held.limit is None:
        return
    assert found.peak_memory_bytes is not None
    over = found.peak_memory_bytes - case.costs.held.limit
    rank = int(over.argmax())
    print(
        f"pipesim: warning: DOES NOT FIT: rank {rank} needs {found.peak_memory_bytes[rank] / 2**30:.1f} GiB of "
        f"{case.costs.held.limit[rank] / 2**30:.1f} GiB; try --recompute full, --zero 1, more --tp or more GPUs",
        file=sys.stderr,
    )


def _print(case: Case, found: Metrics) -> None:
    from pipesim.cli.tables import breakdown, console, rank_table, summary

    screen = console()
    facts = case.facts or {}
    title = f"{case.schedule.name}: {case.schedule.ranks} ranks, {case.schedule.microbatches} microbatches"
    screen.print(summary(title + "".join(f"\n{key}: {value}" for key, value in facts.items()), found))
    if case.schedule.update_every is not None:
        kept, late = versions_kept(case.schedule).tolist(), staleness(case.schedule).tolist()
        screen.print(f"asynchronous: weight versions a stage keeps {kept}, steps its gradients are late {late}")
    screen.print(rank_table(found))
    table = breakdown(case)
    if table is not None:
        screen.print(table)


def _print_samples(found: Any) -> None:
    from pipesim.cli.tables import console

    for table in variation.sample_tables(found):
        console().print(table)
