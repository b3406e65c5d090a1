"""What `pipesim run --layout` tells of a run: its step, and its communication measured and simulated."""

from __future__ import annotations

import json
import sys
from typing import Any

from pipesim.metrics import Metrics, summarize
from pipesim.timeline import Timeline
from pipesim.units import format_bytes, format_seconds


def report(task: Any, found: Any, made: Timeline, figures: Metrics, *, as_json: bool) -> None:
    """Print it, as tables or as one JSON object."""
    rows, simulated = _communication(task, found, made)
    if as_json:
        print(json.dumps(_to_json(task, found, figures, rows, simulated)))
    else:
        _print(task, found, figures, rows, simulated)


def _communication(task: Any, found: Any, made: Timeline) -> tuple[list[Any], Metrics | None]:
    """Rows of the report and the simulated figures, where traffic was counted."""
    from pipesim.backends.parallel.predict import predicted
    from pipesim.backends.parallel.report import rows
    from pipesim.costs.communication.traffic import traffic

    if found.measured is None:
        return [], None
    model = task.source.config.model
    counted = traffic(model, task.layout, task.program, clip=task.clip_norm is not None, rounds=task.rounds)
    timeline, costs = predicted(made, model, task.layout, found.lines)
    return rows(found.measured, counted), summarize(timeline, costs)


def _to_json(task: Any, found: Any, figures: Metrics, rows: list[Any], simulated: Metrics | None) -> dict[str, Any]:
    schedule = task.program.schedule
    head = {"name": schedule.name, "ranks": task.layout.gpus, "microbatches": schedule.microbatches}
    tail: dict[str, Any] = {
        "source": "measured",
        "losses": [step.loss for step in found.steps],
        "step_s": [step.step_s for step in found.steps],
        "tokens_per_s": found.steps[-1].tokens_per_s,
        "communication": [row.to_json() for row in rows],
    }
    if simulated is not None:
        tail["simulated"] = {"step_time_s": simulated.step_time_s, "exposed_comm_s": dict(simulated.exposed_comm_s)}
    return head | figures.to_json() | tail


def _print(task: Any, found: Any, figures: Metrics, rows: list[Any], simulated: Metrics | None) -> None:
    from pipesim.cli.options.case import describe
    from pipesim.cli.views.tables import console, rank_table, summary

    screen = console()
    schedule, steps = task.program.schedule, found.steps
    title = f"{schedule.name}: {describe(task.layout)}, {schedule.microbatches} microbatches, measured"
    title += f"\nloss {steps[0].loss:.4f} → {steps[-1].loss:.4f} in {len(steps)} steps"
    screen.print(summary(title, figures))
    screen.print(rank_table(figures))
    if rows:
        screen.print(_table(rows))
    if simulated is not None:
        screen.print(_exposed(figures, simulated, found))
    sys.stdout.flush()


def _table(rows: list[Any]) -> Any:
    from rich.table import Table

    table = Table(title="communication of one pipeline in one step", title_justify="left")
    for column in ("dimension", "operation", "count", "simulated", "bytes", "simulated", "under way", "stood still"):
        table.add_column(column)
    for row in rows:
        table.add_row(
            row.dimension,
            row.operation,
            str(row.measured.count),
            str(row.predicted.count),
            format_bytes(row.measured.bytes),
            format_bytes(row.predicted.bytes),
            format_seconds(row.seconds.under_way),
            format_seconds(row.seconds.exposed),
        )
    return table


def _exposed(figures: Metrics, simulated: Metrics, found: Any) -> Any:
    """What compute waited for, mean over ranks; tensor-parallel sums are inside actions and were noted there."""
    from rich.table import Table

    tensor = [one.seconds for one in found.measured]
    stood = sum(seconds.exposed for one in tensor for key, seconds in one.items() if key[0] == "tensor") / len(tensor)
    measured = dict(figures.exposed_comm_s) | {"tensor": stood}
    table = Table(title="exposed communication, mean of ranks", title_justify="left")
    for column in ("dimension", "measured", "of the step", "simulated", "of the step"):
        table.add_column(column)
    for dimension, seconds in measured.items():
        guess = simulated.exposed_comm_s.get(dimension, 0.0)
        shares = [
            f"{part / whole:.1%}" if whole else "0%"
            for part, whole in ((seconds, figures.step_time_s), (guess, simulated.step_time_s))
        ]
        table.add_row(dimension, format_seconds(seconds), shares[0], format_seconds(guess), shares[1])
    return table
