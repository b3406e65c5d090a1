"""Costs as a file that `profile` writes and people edit: seconds and bytes of each stage, JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipesim.costs.costs import Costs, StageBytes, WrongStages
from pipesim.costs.network import Network, Route
from pipesim.errors import PipesimError
from pipesim.files import read_text, write_atomically
from pipesim.ir.action import Kind
from pipesim.ir.needs import Flow
from pipesim.ir.schedule import Schedule

_MOST_BYTES = 64 << 20
_LARGEST = 1e18  # of bytes and seconds: sums of them stay far from where numbers overflow
_LISTS = ("F", "I", "W", "B", "message_bytes", "activation_bytes", "released_at_input", "weights_bytes", "optimizer_s")
_NUMBERS = ("latency_s", "bytes_per_s", "host_s", "message_host_s")


@dataclass(eq=False)
class BadCostsFile(PipesimError):
    """A costs file that cannot be used."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"costs file {self.path}: {self.reason}"


@dataclass(frozen=True)
class CostsFile:
    """Per stage of the model, in model order: seconds of F, I, W (or B) and bytes; of every message latency_s and
    bytes_per_s; host_s of every action, message_host_s of every transfer."""

    path: str
    lists: dict[str, tuple[float, ...]]
    numbers: dict[str, float]

    def of(self, schedule: Schedule) -> Costs:
        """Costs of a schedule with as many stages. Raises WrongStages."""
        placement = schedule.placement
        given = len(self.lists["F"])
        if given != placement.length:
            raise WrongStages(f"costs file {self.path}", given, placement.length)

        def column(name: str) -> np.ndarray:
            values = self.lists.get(name, (0.0,) * given)
            return np.tile(np.asarray(values, np.float64), placement.chains)

        zeros = np.zeros(placement.stages)
        rate = self.numbers.get("bytes_per_s", 0.0)
        route = Route(self.numbers.get("latency_s", 0.0), rate or float("inf"))
        sizes = column("message_bytes")
        held = (
            StageBytes(
                column("weights_bytes"),
                column("weights_bytes"),
                zeros,
                column("activation_bytes"),
                column("released_at_input"),
                zeros,
                np.zeros(placement.ranks),
            )
            if "activation_bytes" in self.lists
            else None
        )
        return Costs(
            placement.stages,
            {Kind[key]: column(key) / schedule.slices for key in "FIWB" if key in self.lists},
            message_bytes=dict.fromkeys((Flow.ACTIVATION, Flow.GRADIENT), sizes / schedule.slices),
            network=Network(default=route),
            optimizer_s=column("optimizer_s") if "optimizer_s" in self.lists else None,
            host_s=self.numbers.get("host_s", 0.0),
            held=held,
        )

    def typical_times(self, ranks: int | None) -> dict[str, float]:
        """Times of a rank's whole share, mean over ranks, for families that build for the actual costs.

        ranks: None for one stage a rank.
        """
        if "I" not in self.lists:
            return {}
        mean = {key: sum(self.lists[key]) / (ranks or len(self.lists[key])) for key in "FIW"}
        return {
            "forward": mean["F"],
            "input_grad": mean["I"],
            "weight_grad": mean["W"],
            "latency": self.numbers.get("latency_s", 0.0),
        }


def read_costs_file(path: Path) -> CostsFile:
    """Raises BadCostsFile, CannotRead."""
    try:
        data = json.loads(read_text(path, at_most_bytes=_MOST_BYTES))
    except (ValueError, RecursionError) as error:
        raise BadCostsFile(str(path), f"not JSON ({error})") from None
    if not isinstance(data, dict) or data.get("format") != "pipesim-costs":
        raise BadCostsFile(str(path), 'no "format": "pipesim-costs"; `pipesim profile` writes such a file')
    lists = {name: _list(path, name, data[name]) for name in _LISTS if name in data}
    if "F" not in lists:
        raise BadCostsFile(str(path), "F is missing: a list with the seconds of each stage's forward")
    if ("I" in lists) != ("W" in lists):
        raise BadCostsFile(str(path), "I and W go together: input and weight gradient, or B for both in one")
    wrong = next((name for name, values in lists.items() if len(values) != len(lists["F"])), None)
    if wrong is not None:
        raise BadCostsFile(str(path), f"{wrong} has {len(lists[wrong])} values, F has {len(lists['F'])}")
    numbers = {name: _list(path, name, [data[name]])[0] for name in _NUMBERS if data.get(name) is not None}
    return CostsFile(str(path), lists, numbers)


def write_costs_file(
    path: Path, lists: dict[str, list[float]], numbers: dict[str, float], facts: dict[str, Any]
) -> None:
    """Write what `read_costs_file` reads; `facts` are kept for people. Raises CannotWrite."""
    write_atomically(path, json.dumps({"format": "pipesim-costs", **lists, **numbers, "facts": facts}, indent=1) + "\n")


def _list(path: Path, name: str, values: Any) -> tuple[float, ...]:
    good = isinstance(values, list) and all(
        isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _LARGEST for value in values
    )
    if not good or not values:
        raise BadCostsFile(str(path), f"{name} is not finite numbers of at least 0, at most {_LARGEST:g}")
    return tuple(float(value) for value in values)
