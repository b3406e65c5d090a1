"""All that a planner may choose, as two levels: what decides the work of a layer, and what arranges layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Literal

from pipesim.costs.activations import layer_activations
from pipesim.costs.layouts.layout import BadLayout, Layout, Recompute, SplitRule
from pipesim.costs.layouts.split import layers_per_stage
from pipesim.ir.placement import Placement
from pipesim.plan.request import ImpossibleRequest, Request
from pipesim.schedules.catalogue import FAMILIES
from pipesim.schedules.constraints import Unsuitable

_LARGEST_MICRO_BATCH = 64
_LARGEST_CP = 16
_MOST_VIRTUAL = 8


Split = SplitRule | tuple[int, ...] | Literal["fitted"]


@dataclass(frozen=True, kw_only=True)
class Core:
    """What decides how long one layer takes for one microbatch."""

    tp: int
    cp: int
    ep: int
    micro_batch: int
    sequence_parallel: bool
    recompute: Recompute


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One point of the space: a layout and a schedule family. `virtual` is None where the family has no choice;
    the split "fitted" is found for the nodes of a mixed cluster, together with their order."""

    core: Core
    pp: int
    dp: int
    schedule: str
    virtual: int | None
    zero: int
    split: Split


def cores(request: Request) -> Iterator[Core]:
    """All cores that the model and the cluster allow. Raises ImpossibleRequest where there is none."""
    found = False
    for tp, cp in product(_tensor_degrees(request), _context_degrees(request)):
        if request.cluster.devices % (tp * cp) == 0:
            for core in _cores(request, tp, cp):
                found = True
                yield core
    if not found:
        degrees = f"tp {list(_tensor_degrees(request))} and cp {list(_context_degrees(request))}"
        raise ImpossibleRequest(
            f"no layout of {request.model.name} with {degrees} fits heads, sequence and experts",
            f"{request.model.heads} heads, {request.model.kv_heads} key/value heads and seq {request.seq} must divide",
        )


def _cores(request: Request, tp: int, cp: int) -> Iterator[Core]:
    parallel = (False,) if tp == 1 else request.sequence_parallel
    for ep, size, sequence, recompute in product(
        _expert_degrees(request, tp, cp), _micro_batches(request), parallel, request.recompute
    ):
        core = Core(tp=tp, cp=cp, ep=ep, micro_batch=size, sequence_parallel=sequence, recompute=recompute)
        if _splits(request, core) and not (recompute == "selective" and _repeats_nothing(request, core)):
            yield core


def core_layout(request: Request, core: Core) -> Layout:
    """A layout with the core's settings, enough for costs of single layers. Raises BadLayout."""
    return Layout(
        tp=core.tp, cp=core.cp, ep=core.ep, dp=core.ep, micro_batch=core.micro_batch,
        global_batch=core.micro_batch * core.ep, sequence_parallel=core.sequence_parallel,
        recompute=core.recompute, seq=request.seq, precision=request.precision, framework=request.framework,
        attention=request.attention,
    )  # fmt: skip


def _repeats_nothing(request: Request, core: Core) -> bool:
    """Whether selective recomputation is the same as none, as where attention stores no scores to begin with."""
    if "none" not in request.recompute:
        return False
    layout, kind = core_layout(request, core), request.model.kind(request.model.layers - 1)
    without = replace(layout, recompute="none")
    return layer_activations(request.model, layout, kind) == layer_activations(request.model, without, kind)


def _splits(request: Request, core: Core) -> bool:
    try:
        core_layout(request, core).check_model(request.model)
    except BadLayout:
        return False
    return True


def choices(request: Request, core: Core) -> Iterator[Choice]:
    """All ways to arrange the layers of a core."""
    rest = request.cluster.devices // (core.tp * core.cp)
    for pp in _divisors(rest):
        dp = rest // pp
        if not _allowed(request.pp, pp) or not _allowed(request.dp, dp) or pp > request.model.layers:
            continue
        if request.global_batch % (dp * core.micro_batch) or (core.cp * dp) % core.ep:
            continue
        for name, virtual in _schedules(request, pp):
            chunks = _chunks(name, pp, virtual)
            splits = _splits_of(request, pp * chunks)
            if request.is_mixed and pp > 1 and chunks == 1:
                splits = [*splits, "fitted"]
            for zero, split in product(_zero_stages(request, pp, dp * core.cp), splits):
                yield Choice(core=core, pp=pp, dp=dp, schedule=name, virtual=virtual, zero=zero, split=split)


def layout_of(request: Request, choice: Choice) -> Layout:
    """The layout of a choice; evenly split where that is not known yet. Raises BadLayout."""
    core, split = choice.core, "even" if choice.split == "fitted" else choice.split
    return Layout(
        tp=core.tp, pp=choice.pp, dp=choice.dp, cp=core.cp, ep=core.ep, virtual=stages_of(choice) // choice.pp,
        sequence_parallel=core.sequence_parallel, zero_stage=choice.zero, recompute=core.recompute,
        precision=request.precision, micro_batch=core.micro_batch, global_batch=request.global_batch,
        seq=request.seq, split=split, framework=request.framework, attention=request.attention,
    )  # fmt: skip


def stages_of(choice: Choice) -> int:
    """Stages of the model."""
    return choice.pp * _chunks(choice.schedule, choice.pp, choice.virtual)


def _chunks(name: str, pp: int, virtual: int | None) -> int:
    """Stages of the model on each rank."""
    if virtual is not None:
        return virtual
    shape = shape_of(name, pp, virtual)
    return 1 if shape is None else max(1, shape.placement.length // pp)


@dataclass(frozen=True)
class Shape:
    """What a family's schedules look like however many microbatches there are."""

    placement: Placement
    splits_backward: bool


@lru_cache(maxsize=4096)
def shape_of(name: str, pp: int, virtual: int | None) -> Shape | None:
    """Seen in a small schedule of the family; None where it has none for so many ranks."""
    options = {} if virtual is None else {"virtual": virtual}
    for microbatches in (2 * pp, pp, 2):
        try:
            made = FAMILIES[name].build(ranks=pp, microbatches=microbatches, **options)
        except Unsuitable:
            continue
        return Shape(made.placement, made.splits_backward)
    return None


def _tensor_degrees(request: Request) -> tuple[int, ...]:
    if request.tp is not None:
        return tuple(sorted(set(request.tp)))
    most = request.cluster.devices if request.tp_across_nodes else min(node.gpus for node in request.cluster.nodes)
    return tuple(one for one in _divisors(request.cluster.devices) if one <= most and request.model.heads % one == 0)


def _context_degrees(request: Request) -> tuple[int, ...]:
    if request.cp is not None:
        return tuple(sorted(set(request.cp)))
    return tuple(one for one in _powers(_LARGEST_CP) if request.seq % (2 * one) == 0 or one == 1)


def _expert_degrees(request: Request, tp: int, cp: int) -> tuple[int, ...]:
    experts = request.model.experts
    if experts is None:
        return (1,)
    if request.ep is not None:
        return tuple(sorted(set(request.ep)))
    room = request.cluster.devices // (tp * cp) * cp
    return tuple(one for one in _divisors(experts.count) if room % one == 0)


def _micro_batches(request: Request) -> tuple[int, ...]:
    if request.micro_batch is not None:
        return tuple(sorted(set(request.micro_batch)))
    return tuple(one for one in _powers(_LARGEST_MICRO_BATCH) if request.global_batch % one == 0)


def _zero_stages(request: Request, pp: int, replicas: int) -> tuple[int, ...]:
    """ZeRO 2 and 3 shard gradients and weights, which a pipeline would gather anew for every microbatch."""
    if request.zero is not None:
        return tuple(sorted(set(request.zero)))
    if replicas == 1:
        return (0,)
    return (0, 1) if pp > 1 else (0, 1, 2, 3)


def _schedules(request: Request, pp: int) -> Iterator[tuple[str, int | None]]:
    """Families and their stages a rank; with a single rank all are alike."""
    if pp == 1:
        yield request.families[0] if "1f1b" not in request.families else "1f1b", None
        return
    for name in request.families:
        if "virtual" not in FAMILIES[name].options:
            yield name, None
            continue
        for virtual in request.virtual or range(2, _MOST_VIRTUAL + 1):
            stages = pp * virtual
            whole = request.model.layers % stages == 0 or request.virtual is not None
            if whole and stages <= request.model.layers:
                yield name, virtual


def _splits_of(request: Request, stages: int) -> list[Split]:
    """Rules that apply to so many stages; of those that give the same split the first."""
    found: dict[tuple[int, ...], Split] = {}
    for split in request.splits:
        counts = layers_of(request, stages, split)
        if counts is not None:
            found.setdefault(counts, split)
    return list(found.values())


def layers_of(request: Request, stages: int, split: Split) -> tuple[int, ...] | None:
    """Layers of each stage; None where the rule cannot split so, or is not known yet."""
    if split == "fitted":
        return None
    key = (stages, split)
    if key not in request.known_splits:
        try:
            layout = Layout(pp=stages, split=split, seq=request.seq)
            request.known_splits[key] = layers_per_stage(request.model, layout)
        except BadLayout:
            request.known_splits[key] = None
    return request.known_splits[key]


def _allowed(wanted: tuple[int, ...] | None, value: int) -> bool:
    return wanted is None or value in wanted


def _divisors(number: int) -> tuple[int, ...]:
    return tuple(one for one in range(1, number + 1) if number % one == 0)


def _powers(most: int) -> tuple[int, ...]:
    return tuple(1 << exponent for exponent in range(most.bit_length()))
