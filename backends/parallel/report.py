"""Communication by dimension, measured and counted beforehand, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipesim.backends.parallel.traffic import Collective
from pipesim.costs.communication.traffic import Key, Traffic, Volume


@dataclass(frozen=True)
class Seconds:
    """Of all operations of a kind: under way (issue to end), and those in which the rank stood still for them."""

    under_way: float = 0.0
    exposed: float = 0.0


@dataclass(frozen=True)
class Measured:
    """One rank's step."""

    volumes: Traffic
    seconds: dict[Key, Seconds]


@dataclass(frozen=True)
class Row:
    """One kind of communication of a whole pipeline: counts and bytes of all its ranks."""

    dimension: str
    operation: str
    measured: Volume
    predicted: Volume
    seconds: Seconds

    def to_json(self) -> dict[str, object]:
        """Plain JSON values."""
        return {
            "dimension": self.dimension,
            "operation": self.operation,
            "count": self.measured.count,
            "bytes": self.measured.bytes,
            "simulated_count": self.predicted.count,
            "simulated_bytes": self.predicted.bytes,
            "under_way_s": self.seconds.under_way,
            "stood_still_s": self.seconds.exposed,
        }


def measured_traffic(collectives: Sequence[Collective]) -> Measured:
    """What a rank has recorded in one step."""
    volumes: dict[Key, Volume] = {}
    seconds: dict[Key, Seconds] = {}
    for one in collectives:
        volumes[one.key] = volumes.get(one.key, Volume()) + Volume(1, one.bytes)
        before = seconds.get(one.key, Seconds())
        seconds[one.key] = Seconds(before.under_way + one.over_s - one.issued_s, before.exposed + one.exposed_s)
    return Measured(volumes, seconds)


def rows(measured: Sequence[Measured], predicted: Sequence[Traffic]) -> list[Row]:
    """By dimension and operation, over the ranks of a pipeline."""
    keys = sorted({key for one in measured for key in one.volumes} | {key for one in predicted for key in one})
    return [
        Row(
            *key,
            sum((one.volumes.get(key, Volume()) for one in measured), Volume()),
            sum((one.get(key, Volume()) for one in predicted), Volume()),
            Seconds(
                sum(one.seconds.get(key, Seconds()).under_way for one in measured),
                sum(one.seconds.get(key, Seconds()).exposed for one in measured),
            ),
        )
        for key in keys
    ]
