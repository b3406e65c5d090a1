"""Find a short order within a memory limit: improve many first orders and keep the best.

Everything is deterministic: the effort depends on the size of the problem, never on the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from pipesim.ir.schedule import Schedule
from pipesim.schedules.constraints import Unsuitable
from pipesim.schedules.job import Job, Orders
from pipesim.schedules.squeeze import Rule, Run, push_back, squeeze

Objective = Literal["makespan", "span"]
OBJECTIVES: tuple[Objective, ...] = ("makespan", "span")
First = Callable[[Job], Orders]  # a first order for a job of any number of microbatches

STRICT = Rule(window=1)
LOOSE = tuple(
    Rule(12, patience, weight_patience) for weight_patience in (0.0, 0.5, 1.0) for patience in (0.0, 0.5, 1.0)
)
RULES = (STRICT, *LOOSE)
SCREEN = (STRICT, Rule(12), Rule(12, 1.0, 0.5), Rule(12, 1.0, 1.0))
BACK = (Rule(12), Rule(12, 1.0))

_PART = 2_000  # actions that rules are tried on, where a step has more
_EFFORT = 250_000  # actions run while screening, and again while improving: about 1 s each
_ROUNDS = 4
_FINALISTS = 3  # tried on the whole job where they were found on a part of its microbatches


@dataclass(frozen=True)
class _Found:
    """A run, and how to get there from its first order: rules forwards and backwards in turn."""

    run: Run
    first: First
    rules: tuple[Rule, ...]


def orders_of(build: Callable[..., Schedule]) -> First:
    """The orders of a published family as first ones."""
    return lambda job: job.numbers(build(ranks=job.placement.ranks, microbatches=job.microbatches))


def shortest(job: Job, known: Sequence[First], firsts: Iterable[First], objective: Objective = "makespan") -> Run:
    """The best run found from first orders that fit the memory limit, and never worse than those `known`.

    With many microbatches the middle of a step repeats itself: rules are chosen on a part of them, then applied
    to all.
    """
    part = replace(job, microbatches=min(job.microbatches, _enough(job)))
    found = _improve_best(part, _screen(part, chain(known, firsts), objective), objective)
    if part.microbatches < job.microbatches:
        found = [_replay(job, one, objective) for one in found[:_FINALISTS]]
    kept = [orders for orders in (first(job) for first in known) if job.fits(orders)]
    runs = [*(one.run for one in found), *(squeeze(job, orders, STRICT) for orders in kept)]
    return min(runs, key=_by(objective))


def objective_of(family: str, objective: Objective) -> Objective:
    """Raises Unsuitable for what is none."""
    if objective not in OBJECTIVES:
        raise Unsuitable(family, f"objective {objective!r}", "what is to be short", " or ".join(OBJECTIVES))
    return objective


def _enough(job: Job) -> int:
    """Microbatches that fill and drain the pipeline, and more where that costs little."""
    return max(3 * job.placement.ranks // 2, _PART // (len(job) // job.microbatches))


def _by(objective: Objective) -> Callable[[Run], tuple[float, float]]:
    """Sort by the objective, then by the other one; differences of rounding do not count."""
    if objective == "span":
        return lambda run: (round(run.span, 9), run.makespan)
    return lambda run: (round(run.makespan, 9), run.span)


def _screen(job: Job, firsts: Iterable[First], objective: Objective) -> list[_Found]:
    """Each first order after its best single run, best first, without repetitions."""
    found: dict[tuple[tuple[int, ...], ...], _Found] = {}
    tried = set[tuple[tuple[int, ...], ...]]()
    for first in firsts:
        orders = first(job)
        key = tuple(map(tuple, orders))
        if key in tried or not job.fits(orders):
            continue
        if len(tried) >= max(8, _EFFORT // (len(job) * len(SCREEN))):
            break
        tried.add(key)
        run, rule = _best_run(job, orders, SCREEN, objective)
        found.setdefault(tuple(map(tuple, run.orders)), _Found(run, first, (rule,)))
    return sorted(found.values(), key=lambda one: _by(objective)(one.run))


def _best_run(job: Job, orders: Orders, rules: Iterable[Rule], objective: Objective) -> tuple[Run, Rule]:
    return min(((squeeze(job, orders, rule), rule) for rule in rules), key=lambda pair: _by(objective)(pair[0]))


def _improve_best(job: Job, screened: list[_Found], objective: Objective) -> list[_Found]:
    """Improve as many as the effort allows; all of them, best first."""
    runs = max(1, _EFFORT // len(job)) // (len(RULES) + len(BACK))
    rounds = min(_ROUNDS, max(2, runs // 4))
    improved = [_improve(job, one, rounds, objective) for one in screened[: max(2, runs // rounds)]]
    return sorted(improved, key=lambda one: _by(objective)(one.run))


def _improve(job: Job, start: _Found, rounds: int, objective: Objective) -> _Found:
    """Run forwards and backwards in turn until that helps no more."""
    best, rules = start, tuple[Rule, ...]()
    orders = start.first(job)
    for turn in range(rounds):
        run, rule = _best_run(job, orders, RULES, objective)
        rules += (rule,)
        if _by(objective)(run) < _by(objective)(best.run):
            best = _Found(run, start.first, rules)
        elif turn > 1:
            break
        orders, rule = _latest(job, run.orders, objective)
        rules += (rule,)
    return best


def _latest(job: Job, orders: Orders, objective: Objective) -> tuple[Orders, Rule]:
    pushed = ((push_back(job, orders, rule, _ends(job, objective)), rule) for rule in BACK)
    return min(pushed, key=lambda pair: _by(objective)(squeeze(job, pair[0], STRICT)))


def _ends(job: Job, objective: Objective) -> list[float]:
    """For the shortest spans a rank ends as much before the last as it begins before it."""
    ranks = job.placement.ranks
    hop = job.times.forward[0] + job.times.latency
    return [hop * (ranks - 1 - rank) if objective == "span" else 0.0 for rank in range(ranks)]


def _replay(job: Job, found: _Found, objective: Objective) -> _Found:
    """The same rules on another number of microbatches."""
    orders = found.first(job)
    run = squeeze(job, orders, found.rules[0])
    best = run
    for back, rule in zip(found.rules[1::2], found.rules[2::2], strict=True):
        orders = push_back(job, run.orders, back, _ends(job, objective))
        run = squeeze(job, orders, rule)
        best = min(best, run, key=_by(objective))
    return replace(found, run=best)
