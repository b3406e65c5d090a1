"""Published families on the same costs: what a search starts from, and what it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pipesim.costs.costs import Costs, Floats
from pipesim.engine.choose import simulate
from pipesim.engine.direct import can_walk, step
from pipesim.errors import PipesimError
from pipesim.ir.lower import lower
from pipesim.ir.schedule import Schedule
from pipesim.plan.search.search import Start
from pipesim.plan.search.setting import Setting
from pipesim.schedules.catalogue import FAMILIES
from pipesim.schedules.family import Family

_SLOW = ("zb-auto", "zb-v", "v-auto")  # searches of their own, left out where there are more actions than these
_MOST_ACTIONS = 25_000


@dataclass(frozen=True, eq=False)
class Rival:
    """A family's schedule, the seconds of its last action and of its step, whether it fits the limit, and the most
    bytes each rank holds, where the costs know them.

    start: the same family for any number of microbatches.
    """

    name: str
    schedule: Schedule
    makespan_s: float
    step_time_s: float
    fits: bool
    peak_bytes: Floats | None = None
    start: Start | None = None

    @property
    def placement(self) -> str:
        return self.schedule.placement.kind()


def rivals(setting: Setting, times: Mapping[str, Any], *, goes_on: Callable[[], bool] = lambda: True) -> list[Rival]:
    """Every synchronous family that these ranks, microbatches and costs allow, the fastest that fit first.

    times: `forward`, `input_grad`, `weight_grad` and `latency` for families that build for the actual costs.
    goes_on: asked before each, those that take seconds last; False leaves out what is left.
    """
    found = []
    for name, start in sorted(_starts(setting, times), key=lambda each: each[0] in _SLOW):
        if not goes_on():
            break
        try:
            made = priced(name, start(setting.microbatches), setting)
        except PipesimError:  # there is none for these numbers, or the costs are for others
            continue
        found.append(replace(made, start=start))
    return sorted(found, key=lambda one: (not one.fits, one.step_time_s))


def priced(name: str, schedule: Schedule, setting: Setting) -> Rival:
    """How a schedule does. Raises WrongStages, NoCost."""
    costs = setting.prices.of(schedule)
    makespan_s, step_time_s = times_of(schedule, costs)
    peak = None if costs.held is None else setting.peak_bytes(schedule)
    return Rival(name, schedule, makespan_s, step_time_s, bool(setting.over(schedule, peak).max() <= 0), peak)


def times_of(schedule: Schedule, costs: Costs) -> tuple[float, float]:
    """Seconds of the last compute action and of the whole step."""
    if can_walk(schedule, costs):
        found = step(schedule, costs)
        return found.makespan_s, found.step_time_s
    timeline = simulate(lower(schedule), costs)
    return timeline.makespan_s, timeline.step_time_s


def _starts(setting: Setting, times: Mapping[str, Any]) -> Iterator[tuple[str, Start]]:
    """Families by name, as functions of the number of microbatches."""
    large = 3 * setting.placement.stages * setting.microbatches > _MOST_ACTIONS
    for name, family in FAMILIES.items():
        if family.trains and family.synchronous and not (large and name in _SLOW):
            yield name, partial(_build, family, setting.placement.ranks, _options(family, setting, times))


def _build(family: Family, ranks: int, options: Mapping[str, Any], microbatches: int) -> Schedule:
    return family.build(ranks=ranks, microbatches=microbatches, **options)


def _options(family: Family, setting: Setting, times: Mapping[str, Any]) -> dict[str, Any]:
    """What a family is told beside ranks and microbatches: times, limit and stages a rank, where it takes them."""
    options = {key: value for key, value in times.items() if key in family.options}
    if setting.limit is not None and setting.limit.unit == "microbatches" and "memory_limit" in family.options:
        options["memory_limit"] = setting.limit.value
    virtual = setting.placement.stages // setting.placement.ranks
    if "virtual" in family.options and virtual > 1:
        options["virtual"] = virtual
    return options
