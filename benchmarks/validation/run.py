"""Predicted against measured step time of every family, on emulated stages (F=20ms, I=20ms, W=10ms a rank).

What the host adds to an action and to a message is measured on a 1F1B of other times and counts; nothing of the
schedules themselves is fitted. Usage: python benchmarks/validation/run.py [--ranks 4,8] [--microbatches 16]
"""

from __future__ import annotations

import argparse
import itertools
import json
from dataclasses import asdict
from typing import Any

from pipesim.backends.job.emulated_suite import Compared, compare_emulated
from pipesim.costs.plain import plain_costs
from pipesim.ir.action import MOVES
from pipesim.ir.schedule import Schedule
from pipesim.schedules.catalogue import FAMILIES
from pipesim.schedules.constraints import Unsuitable
from pipesim.schedules.lookup import build

TIMES = {"F": 0.020, "I": 0.020, "W": 0.010}


def schedules(ranks: int, microbatches: int, names: list[str]) -> list[Schedule]:
    """The families that run, with two stages a rank or two slices where they have such."""
    found = []
    for name in names or list(FAMILIES):
        options: dict[str, Any] = {key: 2 for key in ("virtual", "slices") if key in FAMILIES[name].options}
        try:
            schedule = build(name, ranks=ranks, microbatches=microbatches, **options)
        except Unsuitable:
            continue
        if not any((schedule.atoms.kind == kind).any() for kind in MOVES):
            found.append(schedule)
    return found


def misordered(rows: list[Compared]) -> list[str]:
    """Pairs of families whose predicted order is not the measured one although they differ by more than 5 %."""
    wrong = []
    for one, other in itertools.combinations(rows, 2):
        apart = abs(one.measured_s / other.measured_s - 1) > 0.05
        if apart and (one.measured_s < other.measured_s) != (one.predicted_s < other.predicted_s):
            wrong.append(f"{one.name} and {other.name}")
    return wrong


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--ranks", default="4,8")
    options.add_argument("--microbatches", type=int, default=16)
    options.add_argument("--steps", type=int, default=5)
    options.add_argument("--schedules", default="")
    options.add_argument("--comm", default="edge", choices=["edge", "blocking"])
    options.add_argument("--json", action="store_true", help="one object, for the first of --ranks")
    given = options.parse_args()
    for ranks in map(int, given.ranks.split(",")):
        some = schedules(ranks, given.microbatches, list(filter(None, given.schedules.split(","))))
        costs = [plain_costs(TIMES).of(schedule) for schedule in some]
        rows, host = compare_emulated(some, costs, steps=given.steps, comm=given.comm)
        if given.json:
            found = [asdict(row) | {"error": row.error} for row in rows]
            print(json.dumps({"rows": found, "misordered": misordered(rows)}))
            return
        print(
            f"p = {ranks}, m = {given.microbatches}, {given.comm}; host {host.action_s * 1e6:.0f} µs an action, ",
            end="",
        )
        print(f"{host.message_s * 1e6:.0f} µs a message")
        print(f"{'schedule':16}{'predicted ms':>14}{'measured ms':>14}{'error':>9}{'same order':>12}")
        for row in rows:
            numbers = f"{row.predicted_s * 1e3:14.1f}{row.measured_s * 1e3:14.1f}{row.error:+9.1%}"
            print(f"{row.name:16}{numbers}{row.same_order:12.1%}", flush=True)
        print(
            f"largest error {max(abs(row.error) for row in rows):.1%}; misordered pairs: {misordered(rows) or 'none'}"
        )


if __name__ == "__main__":
    main()
