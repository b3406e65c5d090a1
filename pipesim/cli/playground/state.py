"""What the playground shows: its controls as one value, read from and written to a URL, and what comes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qs, urlencode

import numpy as np

from pipesim.cli.options.case import offered_times, policy_of
from pipesim.cli.options.schedule import ScheduleOptions, schedule_from_options
from pipesim.costs.costs import Costs
from pipesim.costs.network import Network, Route
from pipesim.costs.plain import PlainCosts, plain_costs
from pipesim.engine.choose import simulate
from pipesim.errors import PipesimError
from pipesim.ir.lower import lower
from pipesim.ir.needs import Flow
from pipesim.ir.program import COMM_POLICIES
from pipesim.metrics import Metrics, summarize
from pipesim.schedules.catalogue import FAMILIES
from pipesim.timeline import Timeline
from pipesim.units import parse_bytes, parse_bytes_per_s, parse_seconds

MOST_RANKS, MOST_MICROBATCHES, MOST_VIRTUAL = 64, 1024, 16
_MOST_BOXES = 1_000_000


@dataclass(eq=False)
class NothingToShow(PipesimError):
    """Controls that describe no step."""

    what: str
    works: str

    def __str__(self) -> str:
        return f"{self.what}; {self.works}"


@dataclass(frozen=True)
class State:
    """The controls. Times, sizes and speeds are texts with units, as typed.

    schedules: names of families; the first alone is charted with its memory, several are compared.
    memory_limit: activations a rank may hold, in microbatches; None for no limit.
    """

    schedules: tuple[str, ...] = ("1f1b",)
    ranks: int = 4
    microbatches: int = 8
    virtual: int = 2
    forward: str = "10ms"
    input_grad: str = "10ms"
    weight_grad: str = "8ms"
    latency: str = "0.2ms"
    message: str = "16MB"
    link: str = "50GB/s"
    reduce: str = "0ms"
    optimizer: str = "0ms"
    memory_limit: float | None = None
    comm: str = "edge"
    theme: str = "light"

    def query(self) -> str:
        """As the end of a URL: only what is not as usual."""
        plain = State()
        changed = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if getattr(self, field.name) != getattr(plain, field.name)
        }
        if "schedules" in changed:
            changed["schedules"] = ",".join(self.schedules)
        return "?" + urlencode(changed) if changed else ""

    def run_key(self) -> State:
        """The same without what changes no number."""
        return replace(self, theme="light")


def state_of_query(text: str) -> State:
    """The state of a URL's end. What it does not say, or says wrongly, is as usual."""
    values = {key: found[-1] for key, found in parse_qs(text.lstrip("?")).items()}
    return state_of(values)


def state_of(values: Mapping[str, Any]) -> State:
    """The state of values by name, as controls and URLs give them; impossible ones are as usual."""
    plain = State()
    names = values.get("schedules") or plain.schedules
    names = names.split(",") if isinstance(names, str) else names
    return State(
        schedules=tuple(name for name in names if name in FAMILIES)[:6] or plain.schedules,
        ranks=_whole(values.get("ranks"), plain.ranks, MOST_RANKS),
        microbatches=_whole(values.get("microbatches"), plain.microbatches, MOST_MICROBATCHES),
        virtual=_whole(values.get("virtual"), plain.virtual, MOST_VIRTUAL),
        memory_limit=_limit(values.get("memory_limit")),
        comm=values["comm"] if values.get("comm") in COMM_POLICIES else plain.comm,
        theme="dark" if values.get("theme") == "dark" else "light",
        **{name: str(values.get(name) or getattr(plain, name))[:40] for name in _TEXTS},
    )


_TEXTS = ("forward", "input_grad", "weight_grad", "latency", "message", "link", "reduce", "optimizer")


def _whole(value: Any, usual: int, most: int) -> int:
    try:
        return min(max(int(value), 1), most)
    except (TypeError, ValueError):
        return usual


def _limit(value: Any) -> float | None:
    try:
        limit = float(value)
    except (TypeError, ValueError):
        return None
    return limit if 0 < limit < 1e6 else None


@lru_cache(maxsize=8)
def run(state: State) -> tuple[tuple[Timeline, Metrics], ...]:
    """One run a schedule. Raises PipesimError."""
    boxes = len(state.schedules) * state.ranks * state.microbatches * 2 * state.virtual
    if boxes > _MOST_BOXES:
        raise NothingToShow(f"these are {boxes:,} boxes", f"up to {_MOST_BOXES:,} are drawn here: use the command line")
    costs = _costs(state)
    return tuple(_one(name, state, costs) for name in state.schedules)


def _costs(state: State) -> PlainCosts:
    values = {
        "F": parse_seconds(state.forward, name="forward", positive=True),
        "I": parse_seconds(state.input_grad, name="input gradient"),
        "W": parse_seconds(state.weight_grad, name="weight gradient"),
        "C": _message_seconds(state),
        "reduce": parse_seconds(state.reduce, name="gradient reduction"),
        "optimizer": parse_seconds(state.optimizer, name="optimizer"),
    }
    return plain_costs(values)


def _message_seconds(state: State) -> float:
    speed = parse_bytes_per_s(state.link, name="link speed", positive=True)
    return parse_seconds(state.latency, name="latency") + parse_bytes(state.message, name="message") / speed


def _one(name: str, state: State, costs: PlainCosts) -> tuple[Timeline, Metrics]:
    virtual = state.virtual if state.virtual > 1 else None
    given = ScheduleOptions(state.ranks, state.microbatches, virtual, memory_limit=state.memory_limit)
    schedule = schedule_from_options(name, given, offered=offered_times(costs), lenient=True)
    program = lower(schedule, comm=policy_of(state.comm), reduce=costs.number("reduce") > 0)
    priced = _with_bytes(costs.of(schedule), state)
    timeline = simulate(program, priced)
    return timeline, summarize(timeline, priced)


def _with_bytes(costs: Costs, state: State) -> Costs:
    """Messages as bytes over a link instead of one time: sends then hold their lane while they transfer."""
    size = parse_bytes(state.message, name="message")
    route = Route(parse_seconds(state.latency), parse_bytes_per_s(state.link, name="link speed", positive=True))
    sizes = {flow: np.full(costs.stages, size) for flow in (Flow.ACTIVATION, Flow.GRADIENT)}
    return replace(costs, message_bytes=sizes, network=Network(default=route))


def over_limit(state: State, found: Sequence[Metrics]) -> list[str]:
    """Schedules that hold more activations than allowed, in words."""
    limit = state.memory_limit
    if limit is None:
        return []
    return [
        f"{name} holds {one.peak_activations.max():g} microbatches of activations on rank "
        f"{int(one.peak_activations.argmax())}, {limit:g} are allowed"
        for name, one in zip(state.schedules, found, strict=True)
        if one.peak_activations.max() > limit + 1e-9
    ]
