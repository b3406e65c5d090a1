"""PipeDream (Narayanan et al. 2019, SOSP) and PipeDream-2BW (Narayanan et al. 2021, arXiv 2006.09503)."""

from __future__ import annotations

from dataclasses import replace

from pipesim.ir.schedule import Schedule
from pipesim.schedules.constraints import Unsuitable, require_counts
from pipesim.schedules.one_f_one_b import one_f_one_b


def pipedream(*, ranks: int, microbatches: int) -> Schedule:
    """1F1B that never flushes: each stage takes an optimizer step after every backward.

    Nothing is drained between steps, so the bubble is only that of the whole run. A microbatch keeps the
    weights of its forward until its backward (weight stashing): stage s holds p-s versions, and its
    gradients are p-1-s steps old when they are applied. `microbatches` are those of the whole run.
    """
    require_counts("pipedream", ranks=ranks, microbatches=microbatches)
    schedule = one_f_one_b(ranks=ranks, microbatches=microbatches)
    return replace(schedule, name="pipedream", update_every=1)


def pipedream_2bw(*, ranks: int, microbatches: int, update_every: int | None = None) -> Schedule:
    """PipeDream with gradients summed over n ≥ p microbatches, so that two versions of the weights do.

    A microbatch of batch t runs with the weights made by batch t-2, on every stage: those of batch t-1
    are not ready when its first forwards start, and one delay for all keeps stages consistent. As no more
    than p ≤ n microbatches are in flight, no third version is in use.
    update_every: microbatches a step; p if not given.
    Raises Unsuitable unless n ≥ p and m is a multiple of n.
    """
    batch = ranks if update_every is None else update_every
    require_counts("pipedream-2bw", ranks=ranks, microbatches=microbatches, update_every=batch)
    if batch < ranks:
        raise Unsuitable(
            "pipedream-2bw",
            f"a step every {batch} microbatches on {ranks} ranks",
            "with fewer microbatches a step than ranks, more than two weight versions are in flight",
            f"update_every {ranks} or more",
        )
    if microbatches % batch:
        nearest = [count for count in (microbatches // batch * batch, (microbatches // batch + 1) * batch) if count]
        raise Unsuitable(
            "pipedream-2bw",
            f"{microbatches} microbatches with a step every {batch}",
            "the last gradients would never be applied",
            f"{' or '.join(map(str, nearest))} microbatches",
        )
    schedule = one_f_one_b(ranks=ranks, microbatches=microbatches)
    return replace(schedule, name="pipedream-2bw", update_every=batch)
