"""When each action runs if nothing contends: a second opinion on the engine, and on the dependency rule.

A rank starts its next action when it is free and what the action needs has ended, `latency` ago where that
was on another rank (messages never wait for each other). Written without the code it is used to test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipesim.ir.schedule import Schedule

Key = tuple[str, int, int]  # kind, stage, microbatch


@dataclass(frozen=True)
class Run:
    """Starts and ends of the actions of each rank, in its order."""

    starts: Sequence[Sequence[float]]
    ends: Sequence[Sequence[float]]

    @property
    def makespan(self) -> float:
        return max(row[-1] for row in self.ends)

    @property
    def span(self) -> float:
        """The longest time between a rank's first start and its last end."""
        return max(ends[-1] - starts[0] for starts, ends in zip(self.starts, self.ends, strict=True))

    @property
    def idle(self) -> list[float]:
        """Seconds of the makespan in which each rank does nothing."""
        return [
            self.makespan - sum(end - start for start, end in zip(starts, ends, strict=True))
            for starts, ends in zip(self.starts, self.ends, strict=True)
        ]


def run(schedule: Schedule, seconds: Mapping[str, float], latency: float = 0.0) -> Run:
    """Times of a schedule without slices and fused pairs; `seconds` of a rank's whole share by F, I and W."""
    share = schedule.placement.share
    takes = {kind: share * value for kind, value in (*seconds.items(), ("B", seconds["I"] + seconds["W"]))}
    rows = [
        [
            ("FBIW"[kind], stage, microbatch)
            for kind, stage, microbatch in zip(
                row.kind.tolist(), row.stage.tolist(), row.microbatch.tolist(), strict=True
            )
        ]
        for row in schedule.rows()
    ]
    ended: dict[Key, float] = {}
    starts: list[list[float]] = [[] for _ in rows]
    ends: list[list[float]] = [[] for _ in rows]
    went_on = True
    while went_on:
        went_on = False
        for rank, row in enumerate(rows):
            while len(ends[rank]) < len(row):
                action = row[len(ends[rank])]
                ready = _ready(action, ended, schedule, latency)
                if ready is None:
                    break
                start = max(ready, ends[rank][-1] if ends[rank] else 0.0)
                starts[rank].append(start)
                ends[rank].append(start + takes[action[0]])
                ended[action] = ends[rank][-1]
                went_on = True
    assert [len(row) for row in ends] == [len(row) for row in rows], "the orders cannot be run"
    return Run(starts, ends)


def _ready(action: Key, ended: Mapping[Key, float], schedule: Schedule, latency: float) -> float | None:
    """When the last of an action's needs is there; None if it is not known yet."""
    kind, stage, microbatch = action
    placement = schedule.placement
    needed = {
        "F": [] if placement.is_first(stage) else [("F", stage - 1)],
        "W": [("I", stage)],
    }.get(kind, [("F", stage)] + ([] if placement.is_last(stage) else [("IB", stage + 1)]))
    ready = 0.0
    for kinds, other in needed:
        ends = [ended[one, other, microbatch] for one in kinds if (one, other, microbatch) in ended]
        if not ends:
            return None
        crosses = placement.ranks_of_stages[stage] != placement.ranks_of_stages[other]
        ready = max(ready, ends[0] + (latency if crosses else 0.0))
    return ready
