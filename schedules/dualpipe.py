"""DualPipe and DualPipeV: forwards and backwards run in pairs (DeepSeek-V3, arXiv 2412.19437, section 3.2.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pipesim.ir.action import Kind
from pipesim.ir.atoms import Atoms
from pipesim.ir.placement import bidirectional, vee
from pipesim.ir.schedule import Schedule
from pipesim.schedules.constraints import Unsuitable, require_counts, require_even_ranks


def dualpipe(*, ranks: int, microbatches: int) -> Schedule:
    """Feed a replica at each end, and pair each forward of one direction with a backward of the other.

    A pair computes one while it communicates for the other, so that all-to-all and tensor-parallel
    messages disappear behind matrix products. The start weaves both directions until backwards come back,
    weight gradients are put off where they fill the waits of the start and the end. The first m/2
    microbatches go down, the others up.
    Raises Unsuitable unless p and m are even and m ≥ 2p.
    """
    require_counts("dualpipe", ranks=ranks, microbatches=microbatches)
    require_even_ranks("dualpipe", ranks)
    _require_enough("dualpipe", ranks, microbatches, even=True)
    half, each = ranks // 2, microbatches // 2
    rows = []
    for rank in range(ranks):
        place = min(rank, ranks - 1 - rank)  # ranks see the pipeline from the end nearer to them
        down = _Way(rank, 0)
        up = _Way(2 * ranks - 1 - rank, each)
        rows.append(_row(half, place, each, (down, up) if rank < half else (up, down)))
    return Schedule.of_rows("dualpipe", bidirectional(ranks), microbatches, rows)


def dualpipe_v(*, ranks: int, microbatches: int) -> Schedule:
    """DualPipe cut in half: the way back up the ranks takes the place of the second replica.

    Each rank holds stage r and its mirror, as in the V-schedules, and runs DualPipe's order with the
    mirror as the other direction: the same bubble for one copy of the weights.
    Raises Unsuitable unless m ≥ 2p.
    """
    require_counts("dualpipe-v", ranks=ranks, microbatches=microbatches)
    _require_enough("dualpipe-v", ranks, microbatches, even=False)
    rows = [_row(ranks, rank, microbatches, (_Way(rank, 0), _Way(2 * ranks - 1 - rank, 0))) for rank in range(ranks)]
    return Schedule.of_rows("dualpipe-v", vee(ranks), microbatches, rows)


def _require_enough(family: str, ranks: int, microbatches: int, *, even: bool) -> None:
    least = 2 * ranks
    if microbatches < least or (even and microbatches % 2):
        rule = f"m must be {'even and ' if even else ''}at least 2p, or the directions do not overlap"
        works = least if microbatches < least else f"{microbatches - 1} or {microbatches + 1}"
        raise Unsuitable(family, f"{microbatches} microbatches on {ranks} ranks", rule, f"{works} microbatches")


@dataclass
class _Way:
    """One direction on a rank: its stage, and how far its forwards and backwards have come."""

    stage: int
    first: int  # microbatch
    forwards: int = 0
    backwards: int = 0


@dataclass
class _Builder:
    """Collects a rank's actions; weight gradients that were put off wait in a queue."""

    ways: Sequence[_Way]
    actions: list[tuple[int, int, int, bool]] = field(default_factory=list)  # kind, stage, microbatch, fused
    put_off: list[tuple[int, int]] = field(default_factory=list)

    def forward(self, way: int) -> None:
        mine = self.ways[way]
        self.actions.append((Kind.F, mine.stage, mine.first + mine.forwards, False))
        mine.forwards += 1

    def backward(self, way: int, *, split: bool = False, fused: bool = False) -> None:
        mine = self.ways[way]
        microbatch = mine.first + mine.backwards
        mine.backwards += 1
        self.actions.append((Kind.I if split else Kind.B, mine.stage, microbatch, fused))
        if split:
            self.put_off.append((mine.stage, microbatch))

    def pair(self, forward: int, backward: int) -> None:
        self.forward(forward)
        self.backward(backward, fused=True)

    def weight(self) -> None:
        if self.put_off:
            self.actions.append((Kind.W, *self.put_off.pop(0), False))


def _row(ranks: int, place: int, microbatches: int, ways: tuple[_Way, _Way]) -> Atoms:
    """The order of the place-th of `ranks` ranks from an end, `microbatches` a direction; the steps are DeepSeek's.

    Way 0 enters at this end. The rank in the middle leaves its first pair apart, as its two halves would
    wait for each other.
    """
    build, middle = _Builder(ways), place == ranks - 1
    outer = ranks - 1 - place
    for _ in range(2 * outer):
        build.forward(0)
    for _ in range(place + 1):
        build.forward(0)
        build.forward(1)
    for _ in range(outer):
        build.backward(1, split=True)
        build.weight()
        build.forward(1)
    for turn in range(microbatches - 2 * ranks + place + 1):
        if turn == 0 and middle:
            build.forward(0)
            build.backward(1)
        else:
            build.pair(0, 1)
        build.pair(1, 0)
    for _ in range(outer):
        build.backward(1)
        build.pair(1, 0)
    _drain(build, place, outer)
    kind, stage, microbatch, fused = zip(*build.actions, strict=True)
    return Atoms.of(kind, list(stage), microbatch, fused=list(fused))


def _drain(build: _Builder, place: int, outer: int) -> None:
    """The last backwards; from half of them on, weight gradients wait until input gradients are out."""
    half = (place + 1) // 2
    for turn in range(place + 1):
        build.backward(1, split=turn > half or (turn == half and place % 2 == 1))
        build.backward(0, split=turn >= half)
    for _ in range(outer):
        build.weight()
        build.backward(0, split=True)
    for _ in range(place + 1):
        build.weight()
