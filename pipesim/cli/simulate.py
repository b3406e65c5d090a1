"""`pipesim simulate`: one schedule on given costs, as a table, JSON, chart, trace and timeline file."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from pipesim.cli.options import variation
from pipesim.cli.options.case import BadCase, Case, CostOptions, make_case, notes
from pipesim.cli.options.groups import Without
from pipesim.cli.options.outputs import Outputs
from pipesim.cli.options.schedule import Name, ScheduleOptions
from pipesim.cli.options.variation import VariationOptions
from pipesim.engine.choose import ENGINES, Engine
from pipesim.engine.choose import simulate as run_engine
from pipesim.engine.durations import Durations
from pipesim.ir.versions import staleness, versions_kept
from pipesim.metrics import Metrics, summarize
from pipesim.timeline import Timeline

EngineName = Annotated[str, typer.Option("--engine", help="event (reference), fast (compiled), or auto.")]


def simulate(
    name: Name,
    schedule: ScheduleOptions,
    costs: CostOptions,
    varying: VariationOptions,
    outputs: Annotated[Outputs, Without("metrics")],
    engine: EngineName = "auto",
) -> None:
    """Simulate one schedule: step time, bubbles, memory, chart.

    Example: pipesim simulate 1f1b -p 8 -m 24 --costs F=18.5ms,I=18ms,W=9.3ms,C=0.6ms --out chart.html
    """
    outputs.require_writable()
    case = make_case(name, schedule, costs)
    how = variation.variation(case, varying, costs.seq)
    case, timing = variation.varied(case, how)
    made, found = run_case(case, engine_of(engine), timing)
    many = variation.sampled(case, how)
    outputs.write(made, found)
    if outputs.as_json:
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
    from pipesim.cli.views.tables import breakdown, console, rank_table, summary

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
    from pipesim.cli.views.tables import console

    for table in variation.sample_tables(found):
        console().print(table)
