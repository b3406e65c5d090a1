"""`pipesim estimate`: where the time and the bytes of a step go, by layer, stage, step and rank."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from pipesim.cli.options.case import BadCase, Case, CostOptions, make_case, notes
from pipesim.cli.options.groups import Without
from pipesim.cli.options.outputs import Json
from pipesim.cli.options.schedule import ScheduleOptions
from pipesim.costs.costs import StageBytes
from pipesim.costs.estimate import Estimate
from pipesim.costs.times.layer_times import layer_parts
from pipesim.costs.times.parts import COMMUNICATION, Part, add_up
from pipesim.engine.choose import simulate as run_engine
from pipesim.metrics import Metrics, summarize

ScheduleName = Annotated[str, typer.Argument(help="A schedule (`pipesim schedules` lists them).")]


def estimate(
    name: ScheduleName = "1f1b",
    *,
    schedule: ScheduleOptions,
    costs: Annotated[CostOptions, Without("costs")],
    as_json: Json = False,
) -> None:
    """Break a step down: pieces of work of a layer and of each stage, bytes of each rank, and the whole step.

    Example: pipesim estimate 1f1b --model llama-3-70b --cluster dgx-h100:8 --tp 8 --pp 8 --global-batch 64
    """
    if costs.model is None:
        raise BadCase("no model", "give one of the catalogue or a config.json, e.g. --model llama-3-8b")
    case = make_case(name, schedule, costs)
    assert case.estimate is not None
    found = summarize(run_engine(case.program, case.costs), case.costs)
    if as_json:
        print(json.dumps(to_json(case, case.estimate, found)))
    else:
        _print(case, case.estimate, found)


def to_json(case: Case, made: Estimate, found: Metrics) -> dict[str, Any]:
    """The stable object of --json: seconds and bytes throughout."""
    held = case.costs.held
    assert held is not None
    return {
        **(case.facts or {}),
        "layers": [
            {"mixture": kind.mixture, "window": kind.window, "parts": _parts(layer_parts(made.sites[0], kind))}
            for kind in dict.fromkeys(made.sites[0].model.kinds())
        ],
        "stages": [
            {
                "layers": stage.layers,
                "embedding": stage.embedding,
                "head": stage.head,
                "parts": _parts(parts),
                "reduce_s": float(case.costs.reduce_s[index]) if case.costs.reduce_s is not None else 0.0,
                "optimizer_s": float(case.costs.optimizer_s[index]) if case.costs.optimizer_s is not None else 0.0,
                "bytes": _bytes(held, index),
            }
            for index, (stage, parts) in enumerate(zip(made.stages, made.parts, strict=True))
        ],
        "step": found.to_json(),
        "assumptions": list(notes(case)),
    }


def _parts(parts: Iterable[Part]) -> list[dict[str, Any]]:
    return [
        {
            "name": part.name,
            "group": part.group,
            "forward_s": part.forward_s,
            "input_s": part.input_s,
            "weight_s": part.weight_s,
        }
        for part in add_up(parts)
    ]


def _bytes(held: StageBytes, stage: int) -> dict[str, float]:
    return {
        "weights": float(held.weights[stage]),
        "gradients": float(held.gradients[stage]),
        "optimizer": float(held.optimizer[stage]),
        "activations_per_microbatch": float(held.activation[stage]),
        "workspace": float(held.workspace[stage]),
    }


def _print(case: Case, made: Estimate, found: Metrics) -> None:
    from pipesim.cli.views.tables import console, summary
    from pipesim.units import format_bytes, format_seconds

    screen = console()
    screen.print(_work("one layer, one microbatch, one rank", layer_parts(made.sites[0], made.sites[0].model.kind(0))))
    for index in _shown(made):
        stage = made.stages[index]
        ends = " with embedding" * (stage.embedding > 0) + " with head" * (stage.head > 0)
        screen.print(_work(f"stage {index}: {stage.layers} layers{ends}, one microbatch", made.parts[index]))
    held = case.costs.held
    assert held is not None
    rows = [
        [
            str(index),
            str(stage.layers),
            *(format_seconds(value) for value in _totals(made.parts[index])),
            *(format_bytes(value) for value in _bytes(held, index).values()),
        ]
        for index, stage in enumerate(made.stages)
    ]
    columns = ["stage", "layers", "forward", "backward", "of it communication"]
    columns += ["weights", "gradients", "optimizer", "activations", "workspace"]
    screen.print(_table("stages: seconds and activations of one microbatch", columns, rows))
    title = f"{case.schedule.name}: {case.schedule.ranks} ranks, {case.schedule.microbatches} microbatches"
    screen.print(summary(title + "".join(f"\n{key}: {value}" for key, value in (case.facts or {}).items()), found))
    for note in notes(case):
        screen.print(f"- {note}")


def _shown(made: Estimate) -> list[int]:
    """The first stage, one in the middle and the last, where they differ."""
    last = len(made.stages) - 1
    return sorted({0, last // 2, last})


def _totals(parts: Sequence[Part]) -> tuple[float, float, float]:
    talks = sum(part.total_s for part in parts if part.group in COMMUNICATION)
    return sum(part.forward_s for part in parts), sum(part.backward_s for part in parts), talks


def _work(title: str, parts: Iterable[Part]) -> Any:
    from pipesim.units import format_seconds

    merged = add_up(parts)
    whole = sum(part.total_s for part in merged) or 1.0
    rows = [
        [
            part.name,
            part.group,
            *(format_seconds(value) for value in (part.forward_s, part.input_s, part.weight_s)),
            f"{part.total_s / whole:.1%}",
        ]
        for part in merged
        if part.total_s > 0
    ]
    forward, backward, _ = _totals(merged)
    rows.append(["all", "", format_seconds(forward), format_seconds(backward), "", ""])
    return _table(title, ["work", "kind", "forward", "input gradient", "weight gradient", "share"], rows)


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Any:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < 1 or column == "kind" else "right")
    for row in rows:
        table.add_row(*row)
    return table
