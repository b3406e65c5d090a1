"""Whether transfers that were timed as if each were alone could have slowed each other down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipesim.costs.costs import Floats
from pipesim.costs.network import Link, Network, Route
from pipesim.engine.durations import Durations
from pipesim.errors import PipesimError
from pipesim.ir.action import Kind
from pipesim.ir.program import Program

_ROUNDING = 1e-9  # part of a link's bandwidth, and of the step time


@dataclass(eq=False)
class SharedLinks(PipesimError):
    """Two transfers want more of a link than it has, which only the reference engine can divide."""

    link: str
    at_s: float
    wanted_bytes_per_s: float
    bytes_per_s: float

    def __str__(self) -> str:
        return (
            f"transfers share link {self.link}: at {self.at_s:g} s they want {self.wanted_bytes_per_s:g} of its "
            f"{self.bytes_per_s:g} bytes/s; the fast engine cannot divide it, use engine event (or auto)"
        )


def bandwidths(routes: Sequence[Route], network: Network) -> Floats:
    """Bytes/s of one transfer alone on each route."""
    return np.asarray(
        [min([route.bytes_per_s, *(network.links[link].bytes_per_s for link in route.links)]) for route in routes]
    )


def require_room(program: Program, timing: Durations, network: Network, start: Floats, end: Floats) -> None:
    """Raise SharedLinks if transfers so timed ever want more of a link than it has.

    If they never do, each has the bandwidth it would have alone, so the times are the reference engine's.
    """
    users: dict[int, list[int]] = {}
    for way, route in enumerate(timing.routes):
        for link in route.links:
            users.setdefault(link, []).append(way)
    if not users:
        return
    uses = _uses(program, timing, network, start)
    slack = _ROUNDING * float(end.max(initial=0.0))
    for link, ways in users.items():
        _require(network.links[link], uses.on(ways), slack)


@dataclass(frozen=True, eq=False)
class _Uses:
    """Transfers in order of their way: way w has those from offsets[w] to offsets[w + 1]."""

    offsets: np.ndarray
    begin: Floats
    end: Floats
    bytes_per_s: Floats

    def on(self, ways: list[int]) -> tuple[Floats, Floats, Floats]:
        """Begin, end and rate of all transfers of these ways."""
        places = np.concatenate([np.arange(self.offsets[way], self.offsets[way + 1]) for way in ways])
        return self.begin[places], self.end[places], self.bytes_per_s[places]


def _uses(program: Program, timing: Durations, network: Network, start: Floats) -> _Uses:
    kind = program.ops.kind
    moving = np.flatnonzero((timing.size_bytes > 0) & (kind != Kind.RECV))
    way = timing.route[moving]
    order = np.argsort(way, kind="stable")
    moving, way = moving[order], way[order]
    fixed = timing.latency_s[moving] + timing.seconds[moving]
    begin = start[moving] + np.where(kind[moving] == Kind.SEND, 0.0, fixed)  # bytes go before or after it
    rate = bandwidths(timing.routes, network)[way]
    offsets = np.searchsorted(way, np.arange(len(timing.routes) + 1))
    return _Uses(offsets, begin, begin + timing.size_bytes[moving] / rate, rate)


def _require(link: Link, uses: tuple[Floats, Floats, Floats], slack_s: float) -> None:
    begin, end, rate = uses
    times = np.concatenate([begin, np.maximum(end - slack_s, begin)])
    change = np.concatenate([rate, -rate])
    order = np.lexsort((change, times))  # what ends at a moment makes room first
    wanted = np.cumsum(change[order])
    if len(wanted) and wanted.max() > link.bytes_per_s * (1 + _ROUNDING):
        worst = int(np.argmax(wanted))
        raise SharedLinks(link.name, float(times[order][worst]), float(wanted[worst]), link.bytes_per_s)
