"""From a solution for a few microbatches to one for many: what repeats in it is repeated more often.

At two moments as many actions of every kind and stage may have begun but for the same number of microbatches. What
the ranks do between them then fits behind itself: it needs nothing but what is there, and memory is what it was.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from pipesim.costs.costs import Floats
from pipesim.ir.atoms import Ints
from pipesim.plan.search.arrays import Layout
from pipesim.plan.search.candidates import Candidate, Window, candidate
from pipesim.plan.search.orders import numbered
from pipesim.plan.search.problem import Problem
from pipesim.plan.search.walking import time_order

_DIVIDES = 12  # periods of 1, 2, 3, 4, 6 and 12 microbatches fit whatever is left out
_MOST_ACTIONS = 2_000  # orders up to this are searched as they are
_ROUNDS = 3  # microbatches that are searched: so many a rank


def short_problem(problem: Problem) -> Problem:
    """The same for fewer microbatches, where it is too large to be searched as it is."""
    step = _DIVIDES * problem.placement.chains
    least = max(_ROUNDS * problem.ranks, 2 * step)
    few = least + (problem.microbatches - least) % step
    if problem.actions <= _MOST_ACTIONS or few >= problem.microbatches:
        return problem
    return problem.with_microbatches(few)


def find_window(layout: Layout, order: Ints) -> Window | None:
    """The window of least time a microbatch; of equal ones the shortest, and the one nearest to the middle."""
    end_s, times = time_order(layout.actions, order)
    starts = times.start.reshape(layout.shape)
    moments = np.unique(starts[:, layout.problem.rank_of == 0])
    begun = _begun(layout, starts, moments)
    turn = begun[0]
    alike: dict[bytes, list[int]] = defaultdict(list)
    for one in np.flatnonzero((turn > 0) & (turn < layout.problem.counts[0])).tolist():
        alike[(begun[:, one] - turn[one]).tobytes()].append(one)
    pairs = [
        (
            round((moments[b] - moments[a]) / (turn[b] - turn[a]) / end_s, 9),
            turn[b] - turn[a],
            abs(a + b - len(moments)),
            a,
            b,
        )
        for same in alike.values()
        for near in (1, 2, 3)
        for a, b in zip(same, same[near:], strict=False)
        if turn[b] > turn[a] and _DIVIDES % (turn[b] - turn[a]) == 0
    ]
    if not pairs:
        return None
    _, microbatches, _, first, last = min(pairs)
    return Window(_places(layout, begun[:, first]), _places(layout, begun[:, last]), int(microbatches))


def _begun(layout: Layout, starts: Floats, moments: Floats) -> Ints:
    """(kinds · stages, moments): how many actions of each kind and stage began before."""
    problem = layout.problem
    return np.stack(
        [
            np.searchsorted(starts[kind, stage, : problem.counts[stage]], moments)
            for kind in range(problem.kinds)
            for stage in range(problem.stages)
        ]
    )


def _places(layout: Layout, begun: Ints) -> Ints:
    """By rank the place of its first action that has not begun."""
    problem = layout.problem
    rank = np.tile(problem.rank_of, problem.kinds)
    done = np.bincount(rank, weights=begun, minlength=problem.ranks).astype(np.int64)
    return layout.offsets[:-1] + done


def extended(short: Layout, order: Ints, window: Window, layout: Layout, origin: str) -> Candidate | None:
    """The order for all microbatches of `layout` that repeats the window; None where it does not come out even."""
    more = (layout.problem.microbatches - short.problem.microbatches) // layout.problem.placement.chains
    if more % window.microbatches:
        return None
    most, parts = short.shape[2], []
    for rank in range(short.problem.ranks):
        begin, end, past = window.begins[rank], window.ends[rank], short.offsets[rank + 1]
        repeated = np.tile(order[begin:end], 1 + more // window.microbatches)
        parts.append(np.concatenate([order[short.offsets[rank] : begin], repeated, order[end:past]]) // most)
    return candidate(layout, numbered(layout, np.concatenate(parts)), origin)
