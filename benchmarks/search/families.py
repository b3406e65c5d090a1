"""The search against published families: the V at three limits, uneven stages, large cases, and how long it takes.

`python benchmarks/search/families.py [--quick]` writes families.txt beside it.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipesim.costs.plain import PlainCosts, plain_costs
from pipesim.ir.memory import peak_activations
from pipesim.ir.placement import Placement, linear, vee
from pipesim.plan.search.find import Result, find_order
from pipesim.plan.search.limit import Limit
from pipesim.plan.search.rivals import rivals
from pipesim.plan.search.search import Effort, search
from pipesim.plan.search.setting import Setting
from pipesim.schedules.lookup import build

RESULTS = Path(__file__).with_name("families.txt")
COSTS = {
    "equal": (1, 1, 1, 0),
    "10/12/8/1": (10, 12, 8, 1),
    "profiled": (28.814, 28.76, 19.352, 1.61),
}  # ms, 2401.10241
FIXED = {"ZB-V": "zb-v", "V-Half": "v-half", "V-Min": "v-min"}


def priced(times: tuple[float, ...]) -> PlainCosts:
    return plain_costs(dict(zip("FIWC", map(float, times), strict=True)))


def found_in(setting: Setting, times: Mapping[str, object], effort: Effort) -> Result:
    return find_order(setting, others=rivals(setting, times), effort=effort)


def vee_rows(effort: Effort, sizes: list[tuple[int, int]]) -> Iterator[str]:
    """On the V with limits p, ⌈p/2⌉+1 and ⌈p/3⌉+1: against the family made for about that memory."""
    yield "V placement: search / published, at the limit of the row (peak of the published one in brackets)"
    head = f"{'costs':12}{'p':>4}{'m':>5}{'limit':>7}{'search':>10}{'bound':>10}{'gap':>8}"
    yield head + "   ratio to fixed orders, and to v-auto"
    for name, times in COSTS.items():
        for ranks, microbatches in sizes:
            for limit in (ranks, math.ceil(ranks / 2) + 1, math.ceil(ranks / 3) + 1):
                setting = Setting(vee(ranks), microbatches, priced(times), Limit(limit, "microbatches"))
                result = found_in(setting, _offered(times), effort)
                best, bound = result.best.step_time_s, result.found.bounds.best_s
                ratios = []
                for word, family in FIXED.items():
                    made = build(family, ranks=ranks, microbatches=microbatches)
                    rival = next(one for one in result.rivals if one.name == family)
                    held = peak_activations(made).max()
                    ratios.append(f"{word} {best / rival.step_time_s:.3f} [{held:g}]")
                auto = next((one for one in result.rivals if one.name == "v-auto" and one.fits), None)
                ratios += [] if auto is None else [f"v-auto {best / auto.step_time_s:.3f}"]
                head = f"{name:12}{ranks:4}{microbatches:5}{limit:7}{best:10.2f}{bound:10.2f}{best / bound - 1:8.2%}   "
                yield head + ", ".join(ratios)


def _offered(times: tuple[float, ...]) -> dict[str, float]:
    return dict(zip(("forward", "input_grad", "weight_grad", "latency"), times, strict=True))


def uneven_rows(effort: Effort, sizes: list[tuple[int, int]]) -> Iterator[str]:
    """Head stage 1.5 times as long, or one GPU 1.3 times as slow: the gain over the best family that fits."""
    yield "uneven stages, F/I/W/C = 10/12/8/1 a stage: gain over the best family on the same placement and limit"
    head = f"{'what':24}{'placement':>10}{'p':>4}{'m':>5}{'limit':>7}{'search':>10}"
    yield head + f"{'best family':>24}{'gain':>8}{'gap':>8}"
    for ranks, microbatches in sizes:
        for placement in (linear(ranks), vee(ranks)):
            for limit in (ranks, ranks // 2 + 1):
                for word, stretch in (("head stage 1.5", _head(placement)), ("one GPU 1.3", _slow(placement))):
                    setting = Setting(
                        placement, microbatches, _stretched(placement, stretch), Limit(limit, "microbatches")
                    )
                    result = found_in(setting, _offered((10, 12, 8, 1)), effort)
                    best, rival = result.best.step_time_s, result.best_rival
                    assert rival is not None
                    where = f"{word:24}{placement.kind():>10}{ranks:4}{microbatches:5}{limit:7}{best:10.1f}"
                    family = f"{rival.name} {rival.step_time_s:.1f}"
                    yield where + f"{family:>24}{1 - best / rival.step_time_s:8.2%}{result.gap:8.2%}"


def _head(placement: Placement) -> np.ndarray:
    stretch = np.ones(placement.stages)
    stretch[-1] = 1.5
    return stretch


def _slow(placement: Placement) -> np.ndarray:
    return np.where(np.asarray(placement.ranks_of_stages) == placement.ranks // 2, 1.3, 1.0)


def _stretched(placement: Placement, stretch: np.ndarray) -> PlainCosts:
    share = placement.share
    times = {
        kind: tuple((value * share * stretch).tolist()) for kind, value in zip("FIW", (10.0, 12.0, 8.0), strict=True)
    }
    return plain_costs({**times, "C": 1.0})


@dataclass(frozen=True)
class Timed:
    """Seconds and the gap to the lower bound after construction alone, and after the usual search."""

    name: str
    construct_s: float
    constructed: float
    search_s: float
    searched: float


def speed_rows(sizes: list[tuple[Placement, int, float]]) -> Iterator[str]:
    """How long construction and the usual search take."""
    yield "speed, F/I/W/C = 10/12/8/1: construction alone, and with twelve rounds of local search"
    yield f"{'case':34}{'actions':>9}{'construct s':>13}{'gap':>8}{'search s':>10}{'gap':>8}"
    for placement, microbatches, limit in sizes:
        problem = Setting(placement, microbatches, priced((10, 12, 8, 1)), Limit(limit, "microbatches")).problem()
        begun = time.process_time()
        first = search(problem, effort=Effort(rounds=0, exact_s=0))
        construct_s = time.process_time() - begun
        found = search(problem, effort=Effort(exact_s=0))
        name = f"{placement.kind()} p={placement.ranks} m={microbatches} limit={limit:g}"
        yield (f"{name:34}{problem.actions:9}{construct_s:13.1f}{first.gap:8.2%}{found.spent_s:10.1f}{found.gap:8.2%}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="small sizes, nothing written")
    given = options.parse_args()
    effort = Effort(exact_s=0)
    vees = [(4, 12)] if given.quick else [(4, 12), (8, 24), (16, 48)]
    uneven = [(4, 12)] if given.quick else [(4, 16), (8, 32)]
    speeds = [(vee(8), 32, 5.0), (vee(16), 128, 9.0), (linear(16), 128, 16.0)]
    if not given.quick:
        speeds += [
            (vee(16), 128, 6.0),
            (linear(8), 32, 8.0),
            (linear(8), 512, 8.0),
            (vee(8), 512, 5.0),
            (vee(32), 512, 32.0),
        ]
    search(Setting(vee(2), 4, priced((1, 1, 1, 0))).problem(), effort=effort)  # compile
    lines: list[str] = []
    for part in (vee_rows(effort, vees), uneven_rows(effort, uneven), speed_rows(speeds)):
        for line in part:
            lines.append(line)
            print(line, flush=True)
        lines.append("")
    if not given.quick:
        RESULTS.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
