"""BPipe: 1F1B whose first ranks keep activations on the last ones (Kim et al. 2023, ICML, PMLR 202)."""

from __future__ import annotations

from pipesim.ir.action import Kind
from pipesim.ir.atoms import Atoms
from pipesim.ir.placement import linear
from pipesim.ir.schedule import Schedule
from pipesim.schedules.constraints import require_counts
from pipesim.schedules.one_f_one_b import one_f_one_b


def bpipe(*, ranks: int, microbatches: int) -> Schedule:
    """1F1B, with rank r < p/2 lending its partner p-1-r what exceeds ⌈(p+2)/2⌉ microbatches.

    In 1F1B rank r holds p-r microbatches and its partner r+1, together p+1 for every pair: shared out, no
    rank holds more than the bound. Before a forward that would exceed it, the activation that is needed
    last goes away, and it comes back one action before its backward, so both transfers run beside compute.
    """
    require_counts("bpipe", ranks=ranks, microbatches=microbatches)
    most = activation_bound(ranks)
    plain = one_f_one_b(ranks=ranks, microbatches=microbatches)
    lends = [ranks - rank > most for rank in range(ranks)]
    rows = [_lend(row, rank, most) if lends[rank] else row for rank, row in enumerate(plain.rows())]
    refuge = tuple(ranks - 1 - rank if lends[rank] else None for rank in range(ranks))
    return Schedule.of_rows("bpipe", linear(ranks), microbatches, rows, refuge=refuge)


def activation_bound(ranks: int) -> int:
    """⌈(p+2)/2⌉: half of a pair's p+1 microbatches, and one that is on its way."""
    return (ranks + 3) // 2


def _lend(row: Atoms, stage: int, most: int) -> Atoms:
    """The same order with moves, so that never more than `most` activations are here."""
    kind, microbatch = row.kind.tolist(), row.microbatch.tolist()
    here: list[int] = []  # in the order in which backwards will need them
    away: set[int] = set()
    actions: list[tuple[int, int]] = []

    def make_room() -> None:
        if len(here) == most:
            away.add(here[-1])
            actions.append((Kind.X, here.pop()))

    for place, (what, which) in enumerate(zip(kind, microbatch, strict=True)):
        following = place + 1
        if following < len(kind) and kind[following] == Kind.B and microbatch[following] in away:
            make_room()
            away.remove(microbatch[following])
            here.insert(int(what == Kind.B), microbatch[following])
            actions.append((Kind.L, microbatch[following]))
        if what == Kind.F:
            make_room()
            here.append(which)
        else:
            here.remove(which)
        actions.append((what, which))
    return Atoms.of([what for what, _ in actions], stage, [which for _, which in actions])
