"""`pipesim schedules`: every family with its rule, options, closed forms and paper."""

from __future__ import annotations

import json
from typing import Any

from pipesim.cli.options.outputs import Json
from pipesim.schedules.family import Family, Form
from pipesim.schedules.lookup import families


def schedules(as_json: Json = False) -> None:
    """List the schedules with what they need, their options and their closed forms.

    p ranks, m microbatches, v stages a rank, N group size, s slices, r the rank; F, I, W the times of a
    rank's whole share of a microbatch, C that of a message.

    Example: pipesim schedules
    """
    found = families()
    if as_json:
        print(json.dumps([describe(family) for family in found.values()], indent=1, ensure_ascii=False, default=repr))
    else:
        _print_table(found)


def describe(family: Family) -> dict[str, Any]:
    """A family as plain values."""
    return {
        "name": family.name,
        "summary": family.summary,
        "rule": family.rule,
        "options": family.options,
        "makespan": _form(family.makespan),
        "latency": _form(family.latency),
        "span": _form(family.span),
        "peak_activations": family.peak_formula,
        "synchronous": family.synchronous,
        "trains": family.trains,
        "paper": family.paper,
    }


def _form(form: Form | None) -> dict[str, str] | None:
    return None if form is None else {"formula": form.formula, "where": form.where}


def _print_table(found: dict[str, Family]) -> None:
    from rich import box
    from rich.table import Table

    from pipesim.cli.views.tables import console

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("schedule", "needs", "options", "makespan (C = 0)", "peak activations, microbatches", "paper"):
        table.add_column(heading, overflow="fold")
    for family in found.values():
        table.add_row(
            family.name,
            family.rule,
            ", ".join(f"{name}={'' if value is None else value}" for name, value in family.options.items()) or "-",
            "-" if family.makespan is None else _with_condition(family.makespan),
            family.peak_formula or "-",
            family.paper + ("" if family.synchronous else " (asynchronous)"),
        )
    console().print(table)


def _with_condition(form: Form) -> str:
    return form.formula if form.where == "always" else f"{form.formula} for {form.where}"
