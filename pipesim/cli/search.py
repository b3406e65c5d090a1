"""`pipesim search`: the best order for these costs and this memory, with a bound on how good one can be."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from pipesim.cli.options.case import BadCase, CostOptions
from pipesim.cli.options.groups import Without
from pipesim.cli.options.outputs import Json
from pipesim.cli.search_prices import prices_of
from pipesim.cli.search_watch import Interrupts, Watch
from pipesim.cli.views.search_output import print_result, to_json
from pipesim.costs.costs import WrongStages
from pipesim.errors import PipesimError
from pipesim.files import require_writable
from pipesim.ir.formats import SUFFIXES, write_schedule
from pipesim.ir.memory import RELEASE_AT_INPUT, Release
from pipesim.ir.schedule import Schedule
from pipesim.plan.search.arrange import arranged
from pipesim.plan.search.find import Result, find_order
from pipesim.plan.search.limit import parse_limit
from pipesim.plan.search.offload import find_with_offload
from pipesim.plan.search.placements import placement_of, usual
from pipesim.plan.search.problem import LimitTooSmall
from pipesim.plan.search.rivals import Rival, rivals
from pipesim.plan.search.search import Effort, Start
from pipesim.plan.search.setting import Setting
from pipesim.schedules.lookup import build
from pipesim.units import parse_bytes_per_s, parse_fraction, parse_seconds

_MANY_ROUNDS = 1_000_000
_MOST_RANKS, _MOST_STAGES, _MOST_ACTIONS = 1024, 4096, 2_000_000
_ARRANGING = 0.5  # of the time, at most, for the placement

Ranks = Annotated[int, typer.Option("--ranks", "--pp", "-p", min=1, help="Pipeline ranks.")]
Microbatches = Annotated[int | None, typer.Option("--microbatches", "-m", min=1, help="Microbatches a step.")]
Virtual = Annotated[int | None, typer.Option("--virtual", "-v", min=1, help="Stages a rank.")]
PlacementText = Annotated[
    str | None,
    typer.Option("--placement", help="linear, vee, loop, wave, bidirectional, ranks of stages 0,1,1,0, or a file."),
]
LimitText = Annotated[
    str | None, typer.Option("--memory-limit", help="Most a rank holds: 4mb (microbatches of activations) or 60GB.")
]
ReleaseName = Annotated[
    str, typer.Option("--release", help="What frees a counted microbatch: at_weight, half (by I and by W) or at_input.")
]
StartFrom = Annotated[
    list[str] | None, typer.Option("--start-from", help="A family or a file of orders to begin with.")
]
TimeLimit = Annotated[str | None, typer.Option("--time-limit", help="Search this long, e.g. 60s; else some rounds.")]
Rounds = Annotated[int | None, typer.Option("--rounds", min=0, help="Rounds of local search (12).")]
ExactTime = Annotated[
    str, typer.Option("--exact", help="Time for the exact solver on small cases, e.g. 10s; 0 for none.")
]
Rearrange = Annotated[bool, typer.Option("--rearrange", help="Search for the placement, too: stages swap their ranks.")]
MayRecompute = Annotated[
    str | None,
    typer.Option("--may-recompute", help="Microbatches may keep only this part of an activation, e.g. 5%."),
]
MayOffload = Annotated[
    str | None, typer.Option("--may-offload", help="Activations may go to the host at this bandwidth, e.g. 25GB/s.")
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of the random numbers; the same gives the same result.")]
Out = Annotated[Path | None, typer.Option("--out", help="The schedule: .json, .csv (PyTorch's) or .txt.")]


def search(
    ranks: Ranks,
    costs: Annotated[CostOptions, Without("cp", "ep", "split", "comm", "overlap")],
    microbatches: Microbatches = None,
    virtual: Virtual = None,
    placement: PlacementText = None,
    memory_limit: LimitText = None,
    release: ReleaseName = "at_weight",
    start_from: StartFrom = None,
    time_limit: TimeLimit = None,
    rounds: Rounds = None,
    exact: ExactTime = "10s",
    may_recompute: MayRecompute = None,
    may_offload: MayOffload = None,
    rearrange: Rearrange = False,
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Search for the order of least step time; Ctrl-C ends the search and keeps the best.

    Example: pipesim search -p 8 -m 32 -v 2 --costs F=10ms,I=12ms,W=8ms,C=1ms --memory-limit 5mb --out best.json
    """
    if out is not None:
        _require_out(out)
    prices, times, count = prices_of(costs, ranks, microbatches)
    _require_size(ranks, ranks * (virtual or 1), count)
    limit = None if memory_limit is None else parse_limit(memory_limit)
    places = usual(ranks=ranks, virtual=virtual)
    if placement is not None:
        places = (placement_of(placement, ranks=ranks, virtual=virtual),)
        _require_size(ranks, places[0].stages, count)
    keep = None if may_recompute is None else _part(may_recompute)
    settings = [Setting(place, count, prices, limit, _release(release), keep=keep) for place in places]
    host = None if may_offload is None else parse_bytes_per_s(may_offload, name="may offload", positive=True)
    starts = [partial(_start, build(name, ranks=ranks, microbatches=count), name, ranks) for name in start_from or ()]
    limit_s = math.inf if time_limit is None else parse_seconds(time_limit, name="time limit", positive=True)
    effort = _effort(rounds, parse_seconds(exact, name="exact"), limit_s)
    with Interrupts() as interrupts:
        others = rivals(settings[0], times, goes_on=lambda: not interrupts.seen)
        searches = _Searches(others, starts, effort, seed, limit_s, host, rearrange, interrupts)
        result = searches.best_of(settings)
    if out is not None:
        write_schedule(result.best.schedule.renamed(result.best.name), out)
    if as_json:
        print(json.dumps(to_json(result, interrupted=interrupts.seen)))
    else:
        print_result(result, interrupted=interrupts.seen)


def _require_out(out: Path) -> None:
    """Before long work begins. Raises BadCase, CannotWrite."""
    if out.suffix.lower() not in SUFFIXES:
        raise BadCase(f"--out {out}: no such kind of schedule file", f"there are {', '.join(SUFFIXES)}")
    require_writable(out)


def _require_size(ranks: int, stages: int, microbatches: int) -> None:
    """Raises BadCase for what takes minutes until there is a first order, which no limit of time could end."""
    for word, count, most in (
        ("ranks", ranks, _MOST_RANKS),
        ("stages", stages, _MOST_STAGES),
        ("actions", 3 * stages * microbatches, _MOST_ACTIONS),
    ):
        if count > most:
            raise BadCase(f"{count} {word}: a search takes up to {most}", "try fewer ranks, stages or microbatches")


def _start(schedule: Schedule, name: str, ranks: int, microbatches: int) -> Schedule:
    """The schedule of that name for so many microbatches."""
    return schedule if microbatches == schedule.microbatches else build(name, ranks=ranks, microbatches=microbatches)


def _release(text: str) -> Release:
    for word in RELEASE_AT_INPUT:
        if word == text:
            return word
    raise BadCase(f"--release {text}: no such rule", f"there are {', '.join(RELEASE_AT_INPUT)}")


def _part(text: str) -> float:
    """Part of an activation that is kept, below 1."""
    part = parse_fraction(text, name="may recompute")
    if part >= 1:
        raise BadCase(f"--may-recompute {text}: nothing is freed", "give what is kept, e.g. 5%")
    return part


def _effort(rounds: int | None, exact_s: float, limit_s: float) -> Effort:
    """So many rounds, or as many as there is time for; of the time a third for the exact solver at most."""
    usual_effort = Effort()
    if rounds is None:
        rounds = usual_effort.rounds if math.isinf(limit_s) else _MANY_ROUNDS
    return replace(usual_effort, rounds=rounds, exact_s=min(exact_s, limit_s / 3))


def _more_telling(one: PipesimError, other: PipesimError) -> PipesimError:
    """Why none of two placements can be had: of two limits that are too small, the one that needs less."""
    if isinstance(one, LimitTooSmall) and isinstance(other, LimitTooSmall):
        return min(one, other, key=lambda error: parse_limit(error.smallest).value)
    return other if isinstance(one, WrongStages) else one


@dataclass(frozen=True, eq=False)
class _Searches:
    """What the searches of all placements have in common."""

    others: Sequence[Rival]
    starts: Sequence[Start]
    effort: Effort
    seed: int
    limit_s: float
    host_bytes_per_s: float | None
    rearrange: bool
    interrupts: Interrupts

    def best_of(self, settings: Sequence[Setting]) -> Result:
        """Search each in its part of the time; the best result. Raises why none can be had."""
        best: Result | None = None
        problem: PipesimError | None = None
        for setting in settings:
            watch = Watch(setting.placement.kind(), self.limit_s / len(settings), self.interrupts)
            try:
                made = self._find(setting, watch)
            except PipesimError as error:  # costs for another number of stages, too few layers, too little memory
                problem = error if problem is None else _more_telling(problem, error)
                continue
            if best is None or made.best.step_time_s < best.best.step_time_s:
                best = made
            if self.interrupts.seen:
                break
        if best is None:
            assert problem is not None
            raise problem
        return best

    def _find(self, setting: Setting, watch: Watch) -> Result:
        starts = self.starts
        if self.rearrange:
            setting, start = arranged(setting, seed=self.seed, report=watch.until(_ARRANGING))
            starts = [start, *starts]
        more: dict[str, Any] = {
            "others": self.others, "starts": starts, "effort": self.effort, "seed": self.seed, "report": watch,
        }  # fmt: skip
        if self.host_bytes_per_s is None:
            return find_order(setting, **more)
        return find_with_offload(setting, self.host_bytes_per_s, **more)
