"""What every rank sends in a step, counted: collectives and messages by dimension of parallelism.

These are the counts of the executor in `pipesim.backends.parallel`, which measures the same ones. Bytes are those
of the whole tensor: what an all-reduce sums, what an all-gather gives, what a reduce-scatter takes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from pipesim.costs.layouts.layout import Layout
from pipesim.costs.layouts.split import StageLayers, split_layers
from pipesim.costs.models.model import Model
from pipesim.ir.action import Kind
from pipesim.ir.program import Program

NORM_BYTES = 8.0  # one number in double precision
_LOSS_REDUCTIONS = 3  # largest logit, sum of exponentials, logit of the target

Sent = tuple[str, float]  # operation, bytes


@dataclass(frozen=True)
class Volume:
    """So many operations of so many bytes together."""

    count: int = 0
    bytes: float = 0.0

    def __add__(self, other: Volume) -> Volume:
        return Volume(self.count + other.count, self.bytes + other.bytes)


Key = tuple[str, str]  # dimension (tensor, pipeline, data, job) and operation
Traffic = Mapping[Key, Volume]


def traffic(
    model: Model, layout: Layout, program: Program, *, clip: bool = False, rounds: int = 1
) -> tuple[Traffic, ...]:
    """Of each pipeline rank, in one step; ranks that differ in tp and dp alone do the same.

    clip: whether gradients are cut down to a norm. rounds: runs of the program in one step. Raises BadLayout.
    """
    placement = program.schedule.placement
    layout = replace(layout, virtual=placement.length // placement.ranks)
    stages = split_layers(model, layout)
    return tuple(
        _collected(
            [
                *list(_of_run(rank, model, layout, stages, program)) * rounds,
                *_of_end(rank, model, layout, stages, program, clip),
            ]
        )
        for rank in range(program.ranks)
    )


def _collected(sent: Iterable[tuple[str, Sent]]) -> Traffic:
    found: dict[Key, Volume] = defaultdict(Volume)
    for dimension, (operation, size) in sent:
        found[dimension, operation] += Volume(1, size)
    return dict(found)


def _of_run(
    rank: int, model: Model, layout: Layout, stages: tuple[StageLayers, ...], program: Program
) -> Iterator[tuple[str, Sent]]:
    """Of one run of the program, without what follows its actions."""
    placement, ops = program.schedule.placement, program.ops
    message = layout.number_format.activation_bytes * layout.tokens * model.hidden / layout.sequence_shards
    for op in program.row(rank):
        kind, stage = Kind(int(ops.kind[op])), int(ops.stage[op])
        held = stages[stage % placement.length]
        if kind == Kind.SEND:
            yield "pipeline", ("send", message)
        elif kind == Kind.F:
            yield from (("tensor", sent) for sent in forward_sums(model, layout, held))
            yield from (("data", sent) for sent in _gathers(model, layout, held, every=True))
        elif kind == Kind.B or kind == (Kind.W if placement.is_first(stage) else Kind.I):
            yield from (("tensor", sent) for sent in backward_sums(model, layout, held))
            yield from (("data", sent) for sent in _gathers(model, layout, held, every=True))


def _of_end(
    rank: int, model: Model, layout: Layout, stages: tuple[StageLayers, ...], program: Program, clip: bool
) -> Iterator[tuple[str, Sent]]:
    """Once a step: weights and gradients."""
    placement = program.schedule.placement
    for stage in placement.stages_of(rank):
        held = stages[stage % placement.length]
        yield from (("data", sent) for sent in _gathers(model, layout, held, every=False))
        yield from (("data", sent) for sent in reductions(model, layout, held, chains=placement.chains))
        yield from (("tensor", ("all-reduce", size)) for size in _shares(model, layout, held))
    yield from (("pipeline", sent) for sent in _tied(rank, model, layout, stages, program))
    if clip and layout.gpus > 1:
        yield "job", ("all-reduce", NORM_BYTES)


def forward_sums(model: Model, layout: Layout, held: StageLayers) -> Iterator[Sent]:
    """Tensor-parallel collectives of one forward."""
    if layout.tp == 1:
        return
    whole = layout.number_format.activation_bytes * layout.tokens * model.hidden
    gather = [("all-gather", whole)] if layout.sequence_parallel else []
    scatter = [("reduce-scatter" if layout.sequence_parallel else "all-reduce", whole)]
    if held.embedding:
        yield from scatter
    for _ in range(held.layers):
        yield from [*gather, *scatter] * 2
    if held.head:
        yield from gather
        number = max(4.0, layout.number_format.activation_bytes)
        yield from [("all-reduce", number * layout.tokens)] * _LOSS_REDUCTIONS


def backward_sums(model: Model, layout: Layout, held: StageLayers) -> Iterator[Sent]:
    """Tensor-parallel collectives of one backward, with those of forwards that are computed again."""
    if layout.tp == 1:
        return
    whole = layout.number_format.activation_bytes * layout.tokens * model.hidden
    gather = [("all-gather", whole)] if layout.sequence_parallel else []
    scatter = [("reduce-scatter" if layout.sequence_parallel else "all-reduce", whole)]
    if held.head:
        yield from scatter
    recomputed = held.layers if layout.recompute_layers is None else min(held.layers, layout.recompute_layers)
    for layer in range(held.layers):
        yield from [*gather, *scatter] * 2
        if layer < recomputed:
            yield from [*gather, *scatter] * _blocks_again(layout)
    if held.embedding:
        yield from gather


def _blocks_again(layout: Layout) -> int:
    """Of attention and MLP, how many run again with their collectives."""
    if layout.recompute == "full":
        return 2
    return int(layout.recompute == "selective" and "mlp" in layout.recompute_modules)


Shape = tuple[int, ...]


def units(model: Model, layout: Layout, held: StageLayers) -> list[list[Shape]]:
    """Shapes of a stage's weights on one tensor-parallel rank: a list a layer, then one of all else."""
    found = [_layer_shapes(model, layout) for _ in range(held.layers)]
    table: Shape = (model.vocab // layout.tp, model.hidden)
    tied = bool(model.tied_embeddings and held.embedding and held.head)
    ends: list[Shape] = [table] * (int(bool(held.embedding)) + int(bool(held.head)) - tied)
    ends += [(model.hidden,)] * int(bool(held.head))
    return [*found, *([ends] if ends else [])]


def _layer_shapes(model: Model, layout: Layout) -> list[Shape]:
    queries, ffn = model.query_width // layout.tp, model.ffn // layout.tp
    keys = model.key_value_width // (layout.tp if model.kv_heads >= layout.tp else 1)
    shapes: list[Shape] = [(queries, model.hidden), (keys, model.hidden), (keys, model.hidden)]
    shapes += [(model.hidden, queries), (ffn, model.hidden), (ffn, model.hidden), (model.hidden, ffn)]
    shapes += [(model.hidden,)] * 2
    shapes += [(queries,), (keys,), (keys,)] * model.qkv_bias + [(model.hidden,)] * model.output_bias
    shapes += [(ffn,), (ffn,), (model.hidden,)] * model.mlp_bias
    return shapes + [(model.head_dim,)] * 2 * (model.qk_norm == "head")


def _numbers(shape: Shape, parts: int = 1) -> int:
    """Elements, with the first dimension filled up to a multiple of `parts`."""
    rows = -(-shape[0] // parts) * parts
    return rows * (shape[1] if len(shape) > 1 else 1)


def _gathers(model: Model, layout: Layout, held: StageLayers, *, every: bool) -> Iterator[Sent]:
    """Of weights in parts: before every forward and backward (ZeRO-3), or once a step."""
    if layout.dp == 1 or not layout.zero_stage or every != (layout.zero_stage == 3):
        return
    for unit in units(model, layout, held):
        size = layout.number_format.activation_bytes * sum(_numbers(shape, layout.dp) for shape in unit)
        yield "all-gather", size


def reductions(model: Model, layout: Layout, held: StageLayers, *, chains: int = 1) -> Iterator[Sent]:
    """Of gradients over data-parallel replicas (and those of `chains` in the pipeline itself), once a step."""
    if layout.dp * chains == 1:
        return
    parts = layout.dp if layout.zero_stage else 1
    for unit in units(model, layout, held):
        size = layout.number_format.gradient_bytes * sum(_numbers(shape, parts) for shape in unit)
        yield "reduce-scatter" if layout.zero_stage else "all-reduce", size


def _shares(model: Model, layout: Layout, held: StageLayers) -> Iterator[float]:
    """Bytes of gradients of which each tensor-parallel rank has its share: one sum a stage, or with FSDP a weight."""
    if layout.tp == 1:
        return
    spread = layout.sequence_parallel
    row: Shape = (model.hidden,)
    shapes = [row] * 2 * spread
    if model.kv_heads < layout.tp:
        shapes += [(model.key_value_width, model.hidden)] * 2
        shapes += [(model.key_value_width,)] * 2 * model.qkv_bias
    shapes += [(model.head_dim,)] * 2 * (model.qk_norm == "head")
    shapes = shapes * held.layers + [row] * (bool(held.head) and spread)
    sizes = [layout.number_format.gradient_bytes * _numbers(shape) for shape in shapes]
    if layout.dp > 1 and layout.zero_stage:
        yield from sizes
    elif sizes:
        yield sum(sizes)


def _tied(rank: int, model: Model, layout: Layout, stages: tuple[StageLayers, ...], program: Program) -> Iterator[Sent]:
    """The gradient of embedding and head where they are one weight on two ranks."""
    if not model.tied_embeddings:
        return
    placement = program.schedule.placement
    places = [
        [twin for stage, held in enumerate(stages) if getattr(held, end) for twin in placement.replicas_of(stage)]
        for end in ("embedding", "head")
    ]
    holders = {placement.ranks_of_stages[stage] for end in places for stage in end}
    if places[0] != places[1] and rank in holders and len(holders) > 1:
        rows = model.vocab // layout.tp
        rows = -(-rows // layout.dp) if layout.zero_stage and layout.dp > 1 else rows
        yield "all-reduce", layout.number_format.gradient_bytes * rows * model.hidden
