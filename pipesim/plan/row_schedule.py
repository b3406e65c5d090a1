"""The schedule that one row of a table of runs means, by its free text and its framework."""

from __future__ import annotations

from functools import lru_cache

from pipesim.costs.layout import Layout
from pipesim.engine.fast import Sweeper
from pipesim.ir.lower import lower
from pipesim.ir.program import Comm
from pipesim.ir.schedule import Schedule
from pipesim.schedules.gpipe import gpipe
from pipesim.schedules.interleaved import interleaved
from pipesim.schedules.one_f_one_b import one_f_one_b
from pipesim.schedules.zb_h1 import zb_h1
from pipesim.schedules.zb_h2 import zb_h2
from pipesim.schedules.zb_v import zb_v

BUILDERS = {"gpipe": gpipe, "1f1b": one_f_one_b, "zb-1p": zb_h1, "zb-2p": zb_h2, "zb-v": zb_v}


def family_of(text: str, layout: Layout) -> str:
    """Name of the schedule family that a free text means; what is not said is 1F1B, interleaved with chunks."""
    low = text.lower().replace("_", "-")
    for words, name in _WORDS:
        if any(word in low for word in words):
            return name
    return "interleaved" if layout.virtual > 1 else "1f1b"


_WORDS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("gpipe", "afab", "all-forward"), "gpipe"),
    (("zbv", "zb-v", "v-half", "vhalf", "v-min", "vmin"), "zb-v"),
    (("2p", "h2"), "zb-2p"),
    (("zb", "zero-bubble", "zerobubble", "1p", "h1"), "zb-1p"),
    (("interleav", "vpp", "looped"), "interleaved"),
)


@lru_cache(maxsize=256)
def sweeper(family: str, ranks: int, microbatches: int, virtual: int, comm: Comm, reduce: bool) -> Sweeper:
    """A schedule lowered and made ready to be timed."""
    return Sweeper(lower(schedule_of(family, ranks, microbatches, virtual), comm=comm, reduce=reduce, clip=True))


def schedule_of(family: str, ranks: int, microbatches: int, virtual: int) -> Schedule:
    if family == "interleaved":
        return interleaved(ranks=ranks, microbatches=microbatches, virtual=virtual)
    return BUILDERS[family](ranks=ranks, microbatches=microbatches)
