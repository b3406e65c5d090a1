"""When nothing fits: by how much the best misses, and which change would fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pipesim.costs.clusters.cluster import Cluster
from pipesim.errors import PipesimError
from pipesim.plan.bounds import Bytes, choice_memory_bytes, held
from pipesim.plan.evaluate import evaluate, priced
from pipesim.plan.planner import Found
from pipesim.plan.request import ImpossibleRequest, Request
from pipesim.plan.space import Choice, choices, cores
from pipesim.units import format_bytes

_MORE_NODES = (2, 4, 8, 16)
_TRIED = 5  # choices of least memory that are looked at closely
_CONSTRAINTS = ("tp", "pp", "dp", "cp", "ep", "micro_batch", "virtual")


@dataclass(eq=False)
class NothingFits(PipesimError):
    """No layout fits in memory."""

    missing_bytes: float
    limit_bytes: float
    nearest: str
    helps: tuple[str, ...]

    def __str__(self) -> str:
        works = "what would fit: " + " or ".join(self.helps)
        if not self.helps:
            works = "nothing tried would fit: take a smaller model, or far more GPUs"
        needs, limit, missing = map(
            format_bytes, (self.limit_bytes + self.missing_bytes, self.limit_bytes, self.missing_bytes)
        )
        return f"nothing fits: {self.nearest}, the nearest, needs {needs} of {limit} a GPU, {missing} too much; {works}"


def nothing_fits(request: Request, found: Found) -> NothingFits:
    """The error for a search that found nothing.

    Raises ImpossibleRequest where there was nothing to try, and what the first choice raises where none is allowed.
    """
    nearest = found.smallest
    if nearest is None:
        first = next((choice for core in cores(request) for choice in choices(request, core)), None)
        if first is None:
            raise _nothing_to_try(request)
        priced(request, first)  # says what is wrong with it
        raise ImpossibleRequest(f"nothing like {name_of(first)} can be built", "other numbers of microbatches do")
    missing = nearest.peak_bytes - request.memory_bytes
    helps = []
    for word, relaxed in _relaxations(request):
        if _fits(relaxed):
            helps.append(word)
            if relaxed.cluster is not request.cluster:
                break  # yet more GPUs fit, too
    return NothingFits(missing, request.memory_bytes, name_of(nearest.choice), tuple(helps))


def _nothing_to_try(request: Request) -> ImpossibleRequest:
    """Which constraints contradict each other: those that, left out alone, leave something."""
    given = [axis for axis in _CONSTRAINTS if getattr(request, axis) is not None]
    alone = [axis for axis in given if _any_choice(_without(request, axis))]
    shown = ", ".join(f"{axis} {list(getattr(request, axis))}" for axis in alone or given)
    works = f"leave out {' or '.join(alone)}" if alone else "leave some of them out"
    batch = f"{request.cluster.devices} GPUs, global batch {request.global_batch}"
    if not given:
        return ImpossibleRequest(f"no layout of {batch}", "a batch that more data-parallel degrees divide")
    return ImpossibleRequest(f"no layout of {batch} has {shown}", works)


def _without(request: Request, axis: str) -> Request:
    return replace(request, **{axis: None})  # type: ignore[arg-type]  # each of _CONSTRAINTS may be None


def _any_choice(request: Request) -> bool:
    try:
        return any(True for core in cores(request) for _ in choices(request, core))
    except ImpossibleRequest:
        return False


def name_of(choice: Choice) -> str:
    """A choice in a few words."""
    core = choice.core
    degrees = {"tp": core.tp, "pp": choice.pp, "dp": choice.dp, "cp": core.cp, "ep": core.ep}
    words = [f"{name}{value}" for name, value in degrees.items() if value > 1 or name in ("tp", "pp", "dp")]
    if choice.pp > 1:
        words.append(choice.schedule + (f" v{choice.virtual}" if choice.virtual else ""))
    words.append(f"micro-batch {core.micro_batch}")
    if core.recompute != "none":
        words.append(f"{core.recompute} recompute")
    if choice.zero:
        words.append(f"ZeRO-{choice.zero}")
    if core.tp > 1 and not core.sequence_parallel:
        words.append("no sequence parallel")
    return " ".join(words)


def _relaxations(request: Request) -> Iterator[tuple[str, Request]]:
    """Changes to a request, the smallest first; each only if the request does not have it already."""
    if "full" not in request.recompute:
        yield "full recompute", replace(request, recompute=("full",))
    if request.zero is not None and 3 not in request.zero:
        yield "ZeRO-3", replace(request, zero=(1, 2, 3))
    if request.micro_batch is not None and 1 not in request.micro_batch:
        yield "micro-batch 1", replace(request, micro_batch=(1,))
    everything = replace(
        request, recompute=("full",), zero=(1, 2, 3), micro_batch=(1,), tp=None, pp=None, dp=None, cp=None, ep=None,
        sequence_parallel=(True,), schedules=None, virtual=None,
    )  # fmt: skip
    if request.max_memory_bytes is not None:
        yield "the GPU's whole memory", replace(request, max_memory_bytes=None)
    yield "other degrees of tp, pp, cp with full recompute and ZeRO", everything
    for times in _MORE_NODES:
        more = _larger(request.cluster, times)
        wider = replace(everything, cluster=more, global_batch=request.global_batch * times)
        yield f"{more.devices} GPUs", wider


def _larger(cluster: Cluster, times: int) -> Cluster:
    top = cluster.levels[-1:] and replace(cluster.levels[-1], nodes=cluster.levels[-1].nodes * times)
    levels = (*cluster.levels[:-1], top) if top else ()
    return replace(cluster, nodes=cluster.nodes * times, levels=levels)


def _fits(request: Request) -> bool:
    """Whether any choice fits, looking closely at those of least memory only."""
    sizes: list[tuple[float, int, Choice]] = []
    for core in cores(request):
        known: dict[tuple[int, int], Bytes] = {}
        for choice in choices(request, core):
            least = known.setdefault((choice.dp, choice.zero), held(request, choice))
            sizes.append((choice_memory_bytes(request, choice, least), len(sizes), choice))
    nearest = [
        choice for size, _, choice in sorted(sizes, key=lambda one: one[:2])[:_TRIED] if size <= request.memory_bytes
    ]
    return any(evaluate(request, choice).verdict == "fits" for choice in nearest)
