"""Links that concurrent transfers share: max-min fair, as long flows over TCP or InfiniBand come to be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import simpy

from pipesim.costs.network import Link, Route

_DONE = 1e-9  # part of a transfer's bytes that rounding may leave over


@dataclass(eq=False)
class _Transfer:
    route: Route
    size_bytes: float
    left_bytes: float
    ended: simpy.Event
    bytes_per_s: float = 0.0


@dataclass(eq=False)
class FairLinks:
    """All transfers under way; rates are shared anew whenever one starts or ends.

    log: (time, bytes/s on each link) after each change, for tests and link-use counters.
    """

    env: simpy.Environment
    links: Sequence[Link]
    log: list[tuple[float, tuple[float, ...]]] | None = None
    _under_way: list[_Transfer] = field(default_factory=list)
    _since: float = 0.0
    _round: int = 0

    def transfer(self, route: Route, size_bytes: float) -> simpy.Event:
        """Put bytes on the way; the event comes when the last one has left the links (latency not counted)."""
        ended = self.env.event()
        if size_bytes == 0 or (math.isinf(route.bytes_per_s) and not route.links):
            return ended.succeed()
        if not route.links:
            return self.env.timeout(size_bytes / route.bytes_per_s)
        self._advance()
        self._under_way.append(_Transfer(route, size_bytes, size_bytes, ended))
        self._share()
        return ended

    def _advance(self) -> None:
        elapsed = self.env.now - self._since
        for transfer in self._under_way:
            transfer.left_bytes -= transfer.bytes_per_s * elapsed
        self._since = self.env.now

    def _share(self) -> None:
        rates = fair_rates([transfer.route for transfer in self._under_way], self.links)
        for transfer, rate in zip(self._under_way, rates, strict=True):
            transfer.bytes_per_s = rate
        if self.log is not None:
            self.log.append((self.env.now, self._use()))
        self._round += 1
        if self._under_way:
            wait = min(max(transfer.left_bytes, 0.0) / transfer.bytes_per_s for transfer in self._under_way)
            self.env.timeout(wait, self._round).callbacks.append(self._on_end)

    def _on_end(self, event: simpy.Event) -> None:
        if event.value != self._round:
            return  # the shares have changed since: another timeout is under way
        self._advance()
        ended = [transfer for transfer in self._under_way if self._is_over(transfer)]
        self._under_way = [transfer for transfer in self._under_way if transfer not in ended]
        self._share()
        for transfer in ended:
            transfer.ended.succeed()

    def _is_over(self, transfer: _Transfer) -> bool:
        """But for rounding. What would take less than the clock can tell apart would never end."""
        instant_s = 4 * math.ulp(self.env.now)
        return transfer.left_bytes <= max(_DONE * transfer.size_bytes, transfer.bytes_per_s * instant_s)

    def _use(self) -> tuple[float, ...]:
        use = [0.0] * len(self.links)
        for transfer in self._under_way:
            for link in transfer.route.links:
                use[link] += transfer.bytes_per_s
        return tuple(use)


def fair_rates(routes: Sequence[Route], links: Sequence[Link]) -> list[float]:
    """Max-min fair rates in bytes/s: fill all transfers alike until a link or a transfer's own cap is full."""
    rates = [0.0] * len(routes)
    free = [link.bytes_per_s for link in links]
    growing = set(range(len(routes)))
    while growing:
        users = [0] * len(links)
        for index in growing:
            for link in routes[index].links:
                users[link] += 1
        steps = [free[link] / count for link, count in enumerate(users) if count]
        step = min([*steps, *(routes[index].bytes_per_s - rates[index] for index in growing)])
        for index in growing:
            rates[index] += step
        for link, count in enumerate(users):
            free[link] -= step * count
        full = {link for link, count in enumerate(users) if count and free[link] <= 1e-12 * links[link].bytes_per_s}
        growing = {
            index
            for index in growing
            if rates[index] < routes[index].bytes_per_s * (1 - 1e-12) and not full.intersection(routes[index].links)
        }
    return rates
