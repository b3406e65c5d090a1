"""What messages cost between ranks: routes over links that several transfers may share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Route:
    """The way of one message: latency + bytes / bandwidth (the alpha-beta model, Hockney 1994).

    bytes_per_s: what one transfer can reach alone.
    links: indices of the shared links it crosses, whose bandwidth concurrent transfers share fairly.
    """

    latency_s: float = 0.0
    bytes_per_s: float = math.inf
    links: tuple[int, ...] = ()

    def seconds(self, size_bytes: float) -> float:
        """Time of one message when nothing else is under way."""
        return self.latency_s + size_bytes / self.bytes_per_s


@dataclass(frozen=True)
class Link:
    """A shared link, one direction."""

    name: str
    bytes_per_s: float


@dataclass(frozen=True)
class Network:
    """Routes between pipeline ranks, to host memory, and of a rank's gradient reduction.

    A pair that `routes` leaves out takes `default`.
    """

    default: Route = Route()
    routes: Mapping[tuple[int, int], Route] = field(default_factory=dict)
    host: Route = Route()
    reduce: Mapping[int, Route] = field(default_factory=dict)
    links: tuple[Link, ...] = ()

    def route(self, source: int, target: int) -> Route:
        return self.routes.get((source, target), self.default)

    @property
    def shares_links(self) -> bool:
        """Whether any transfer can slow another one down."""
        return bool(self.links)
