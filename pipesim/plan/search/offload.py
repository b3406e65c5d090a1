"""Orders for more memory than there is, made to fit by moving activations to the host and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipesim.costs.costs import Costs, Floats
from pipesim.costs.network import Route
from pipesim.ir.action import Kind
from pipesim.ir.atoms import Atoms, Ints
from pipesim.ir.schedule import Schedule
from pipesim.plan.search.bounds import Bounds, lower_bounds
from pipesim.plan.search.find import Result, find_order
from pipesim.plan.search.limit import BadLimit, Limit
from pipesim.plan.search.problem import FIT, LimitTooSmall
from pipesim.plan.search.rivals import Rival, priced
from pipesim.plan.search.search import Effort, Progress, Report, Start
from pipesim.plan.search.setting import Prices, Setting
from pipesim.schedules.offload import with_moves

_FACTORS = (1.1, 1.25, 1.5, 2.0, 3.0)  # of the limit
_LASTS = (1, 2, 4)  # actions that a way out may last
_AHEAD = (1, 2, 4)  # actions between the start of a load and its backward
_QUICK = Effort(climbs=100, rounds=4, exact_s=0)


@dataclass(frozen=True, eq=False)
class Offloading:
    """Costs with a link to host memory, in bytes/s each way and rank."""

    prices: Prices
    host_bytes_per_s: float

    def of(self, schedule: Schedule) -> Costs:
        """Raises what the prices raise."""
        costs = self.prices.of(schedule)
        return replace(costs, network=replace(costs.network, host=Route(0.0, self.host_bytes_per_s)))


def find_with_offload(
    setting: Setting,
    host_bytes_per_s: float,
    *,
    others: Sequence[Rival] = (),
    starts: Sequence[Start] = (),
    effort: Effort | None = None,
    seed: int = 0,
    report: Report = lambda progress: True,
) -> Result:
    """Search as `find_order` does, and for larger limits, where moves bring what was found back within the limit.

    Raises BadLimit for limits in microbatches: how long a move takes depends on its bytes.
    """
    if setting.limit is None or setting.limit.unit != "bytes":
        raise BadLimit(str(setting.limit or "of none"), "moving activations to the host needs a limit in bytes")
    limit_bytes = setting.limit.value
    setting = replace(setting, prices=Offloading(setting.prices, host_bytes_per_s))
    watched = _Watched(report)
    more: dict[str, Any] = {"others": others, "starts": starts, "seed": seed, "report": watched}
    best: Result | None = None
    for factor in _FACTORS:
        if watched.ended:
            break
        relaxed = replace(setting, limit=Limit(limit_bytes * factor, "bytes"))
        try:
            made = find_order(relaxed, effort=_QUICK, **more)
        except LimitTooSmall:
            continue
        capacity = relaxed.problem().memory.limit - (factor - 1.0) * limit_bytes
        for moved in _moved(made.found.schedule, setting, capacity):
            if moved.fits and (best is None or moved.step_time_s < best.best.step_time_s):
                best = replace(made, setting=setting, best=moved)
    try:
        still = find_order(setting, effort=effort, **more)
    except LimitTooSmall:
        if best is None:
            raise
        still = best
    else:
        if best is not None and (not still.best.fits or best.best.step_time_s < still.best.step_time_s):
            still = best
    return replace(still, found=replace(still.found, bounds=_of_any_moves(still.setting)))


def _of_any_moves(setting: Setting) -> Bounds:
    """Bounds whatever is moved: as if there were memory for all."""
    problem = replace(setting, limit=Limit(1e30, "bytes")).problem()
    return lower_bounds(problem.with_limit(np.full(problem.ranks, np.inf)))


@dataclass
class _Watched:
    """Remembers whether the search was asked to end."""

    report: Report
    ended: bool = False

    def __call__(self, progress: Progress) -> bool:
        self.ended = not self.report(progress)
        return not self.ended


def _moved(schedule: Schedule, setting: Setting, capacity: Floats) -> Iterator[Rival]:
    """A schedule with as few activations moved as bring each rank within its capacity, for some margins of time."""
    held = setting.prices.of(schedule).held
    assert held is not None
    for lasts in _LASTS:
        for ahead in _AHEAD:
            spans = _Spans(schedule, held.activation, held.released_at_input, lasts, ahead)
            rows = [spans.to_move(rank, float(capacity[rank])) for rank in range(schedule.ranks)]
            if all(row is not None for row in rows):
                forwards = np.sort(np.concatenate([row for row in rows if row is not None])).astype(np.int64)
                if len(forwards):
                    yield priced("search+offload", with_moves(schedule, forwards, ahead=ahead), setting)


@dataclass(frozen=True, eq=False)
class _Spans:
    """Where along its rank's order each activation is taken, needed and given back.

    lasts: actions that the way out is reckoned to last; ahead: actions that a load starts before its backward.
    """

    schedule: Schedule
    size: Floats
    part: Floats
    lasts: int
    ahead: int

    def to_move(self, rank: int, capacity: float) -> Ints | None:
        """Forwards (places in the schedule) whose activations to move; None where even that is not enough.

        Where a rank is about to hold too much, what is needed last goes (Belady 1966).
        """
        first, row = int(self.schedule.offsets[rank]), self.schedule.row(rank)
        needed = self._needed(row)
        inside: dict[int, tuple[int, float]] = {}  # place of the forward: place of the backward, size
        away: dict[int, tuple[int, float]] = {}
        held, moved = 0.0, []
        for place, (kind, stage) in enumerate(zip(row.kind.tolist(), row.stage.tolist(), strict=True)):
            for one in [one for one, (backward, _) in away.items() if backward - self.ahead <= place]:
                inside[one] = away.pop(one)
                held += inside[one][1]
            size = float(self.size[stage])
            if kind == Kind.F:
                inside[place] = (int(needed[place]), size)
                held += size
            while held > capacity * FIT:
                worth = [one for one in inside if one + self.lasts < place < inside[one][0] - self.ahead]
                if not worth:
                    return None
                chosen = max(worth, key=lambda one: inside[one][0])
                away[chosen] = inside.pop(chosen)
                held -= away[chosen][1]
                moved.append(first + chosen)
            if kind != Kind.F:
                part = {Kind.B: 1.0, Kind.I: float(self.part[stage])}.get(Kind(kind), 1.0 - float(self.part[stage]))
                held -= part * size
            inside = {one: span for one, span in inside.items() if span[0] > place}
        return np.asarray(moved, np.int64)

    def _needed(self, row: Atoms) -> Ints:
        """By place of a forward, the place of its backward."""
        key = row.stage.astype(np.int64) * self.schedule.microbatches + row.microbatch
        backward = np.flatnonzero((row.kind == Kind.B) | (row.kind == Kind.I))
        order = np.argsort(key[backward])
        needed = np.zeros(len(row), np.int64)
        forward = np.flatnonzero(row.kind == Kind.F)
        needed[forward] = backward[order[np.searchsorted(key[backward], key[forward], sorter=order)]]
        return needed
