"""A found schedule beside 1F1B on emulated stages, over gloo: is the gain the predicted one?

The head stage takes 1.5 times as long and one rank is 1.3 times as slow; at most 4 microbatches on a rank.
Usage: python benchmarks/search/emulated.py [--json]; the table is in emulated.txt.
"""

from __future__ import annotations

import argparse
import json

from pipesim.backends.job.emulated_suite import compare_emulated
from pipesim.costs.plain import plain_costs
from pipesim.ir.placement import linear
from pipesim.plan.search.find import find_order
from pipesim.plan.search.limit import Limit
from pipesim.plan.search.search import Effort
from pipesim.plan.search.setting import Setting
from pipesim.schedules.lookup import build

RANKS, MICROBATCHES, LIMIT = 4, 12, 4
STRETCH = (1.0, 1.3, 1.0, 1.5)
TIMES = {kind: tuple(ms * 1e-3 * stretch for stretch in STRETCH) for kind, ms in (("F", 20), ("I", 20), ("W", 10))}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=3)
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    prices = plain_costs(TIMES)
    usual = build("1f1b", ranks=RANKS, microbatches=MICROBATCHES)
    setting = Setting(linear(RANKS), MICROBATCHES, prices, Limit(LIMIT, "microbatches"))
    found = find_order(setting, effort=Effort(rounds=4, exact_s=0)).best.schedule
    rows, _ = compare_emulated([usual, found], [prices.of(usual), prices.of(found)], steps=given.steps)
    gains = {
        "predicted_gain": 1 - rows[1].predicted_s / rows[0].predicted_s,
        "measured_gain": 1 - rows[1].measured_s / rows[0].measured_s,
    }
    if given.json:
        print(json.dumps(gains))
        return
    print(f"{'schedule':10}{'predicted ms':>14}{'measured ms':>14}")
    for row in rows:
        print(f"{row.name:10}{row.predicted_s * 1e3:14.1f}{row.measured_s * 1e3:14.1f}")
    print(f"{'gain':10}{gains['predicted_gain']:14.1%}{gains['measured_gain']:14.1%}")


if __name__ == "__main__":
    main()
