"""The schedule that one row of a table of runs means, by its free text and its framework."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pipesim.costs.layouts.layout import Layout
from pipesim.costs.times.habits import Habits, habits_of
from pipesim.ir.placement import Placement
from pipesim.ir.program import Comm
from pipesim.ir.schedule import Schedule
from pipesim.schedules.gpipe import gpipe
from pipesim.schedules.interleaved import interleaved
from pipesim.schedules.one_f_one_b import one_f_one_b
from pipesim.schedules.v_half import v_half
from pipesim.schedules.v_min import v_min
from pipesim.schedules.zb_h1 import zb_h1
from pipesim.schedules.zb_h2 import zb_h2
from pipesim.schedules.zb_v import zb_v

_BUILDERS = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "zb-1p": zb_h1,
    "zb-2p": zb_h2,
    "zb-v": zb_v,
    "v-half": v_half,
    "v-min": v_min,
}
_WITHOUT_FLUSH = ("zb-1p", "zb-2p", "zb-v", "v-half", "v-min")
"""Their optimizer step is checked afterwards instead of waiting for all ranks (2401.10241, section 4), so that a rank
begins its next step while others still end this one."""
_WORDS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("gpipe", "afab", "all-forward"), "gpipe"),
    (("v-half", "vhalf"), "v-half"),
    (("v-min", "vmin"), "v-min"),
    (("zbv", "zb-v"), "zb-v"),
    (("2p", "h2"), "zb-2p"),
    (("zb", "zero-bubble", "zerobubble", "1p", "h1"), "zb-1p"),
    (("interleav", "vpp", "looped"), "interleaved"),
)


@dataclass(frozen=True)
class RowSchedule:
    """Family and size of a schedule.

    more_in_flight, longer_in_flight: microbatches that a rank holds besides, fixed and per rank after it.
    """

    family: str
    ranks: int
    microbatches: int
    virtual: int
    comm: Comm
    more_in_flight: int = 0
    longer_in_flight: float = 0.0

    @property
    def flushes(self) -> bool:
        """Whether all ranks wait for each other between steps."""
        return self.family not in _WITHOUT_FLUSH

    @property
    def holds_all(self) -> bool:
        """Whether activations in flight grow with the number of microbatches."""
        return self.family == "gpipe"

    @property
    def placement(self) -> Placement:
        """Where its stages are; they do not depend on the number of microbatches."""
        return _placement(self.family, self.ranks, self.virtual)

    def build(self, microbatches: int) -> Schedule:
        """The order for so many microbatches. Raises Unsuitable."""
        if self.family == "interleaved":
            group = _group(self.ranks, microbatches)
            return interleaved(ranks=self.ranks, microbatches=microbatches, virtual=self.virtual, group=group)
        return _BUILDERS[self.family](ranks=self.ranks, microbatches=microbatches)


def schedule_of_row(row: Mapping[str, Any], layout: Layout) -> RowSchedule:
    """What a row's `schedule` means; not said, it is 1F1B, interleaved where a rank has several stages."""
    text = str(row.get("schedule") or "").lower().replace("_", "-")
    family = next((name for words, name in _WORDS if any(word in text for word in words)), None)
    if family is None or family == "interleaved" or (family == "1f1b" and layout.virtual > 1):
        family = "interleaved" if layout.virtual > 1 else "1f1b"
    if layout.pp == 1:
        family = "1f1b"
    more, longer = _in_flight(text)
    comm = _comm(family, layout.pp, habits_of(layout.framework))
    return RowSchedule(family, layout.pp, layout.microbatches, layout.virtual, comm, more, longer)


def _in_flight(text: str) -> tuple[int, float]:
    """A vocabulary spread over stages needs two microbatches more with two barriers, one with one; the interlaced
    one half as many again on every rank (2411.05288, section 5)."""
    if "interlaced" in text:
        return 0, 0.5
    _, spread, kind = text.partition("vocab-")
    return ({"1": 2, "2": 1}.get(kind[:1], 0) if spread else 0), 0.0


def _comm(family: str, ranks: int, habits: Habits) -> Comm:
    """How the framework moves messages: zero-bubble runtimes send and receive beside compute."""
    if ranks == 1 or family in _WITHOUT_FLUSH:
        return "edge"
    return habits.interleaved_comm if family == "interleaved" else habits.comm


def _group(ranks: int, microbatches: int) -> int:
    """The smallest group of at least p microbatches that leaves no smaller one over."""
    least = min(ranks, microbatches)
    sizes = range(least, microbatches + 1)
    return next(size for size in sizes if microbatches % size == 0 or microbatches % size >= least)


@lru_cache(maxsize=1024)
def _placement(family: str, ranks: int, virtual: int) -> Placement:
    return RowSchedule(family, ranks, 1, virtual, "edge").build(2 * ranks).placement
