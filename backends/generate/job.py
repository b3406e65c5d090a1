"""What every process of `pipesim generate` does."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.distributed as dist

from pipesim.backends.batch import Microbatches
from pipesim.backends.execute.plan import make_plan
from pipesim.backends.execute.runner import Runner
from pipesim.backends.execute.timer import timer_for
from pipesim.backends.execute.transport import Transport, Wires
from pipesim.backends.execute.wiring import channel_groups
from pipesim.backends.generate.prompts import Group, make_groups
from pipesim.backends.generate.sampling import Sampling
from pipesim.backends.generate.stage import STOPPED, GeneratingStage
from pipesim.backends.huggingface.folder import has_weights
from pipesim.backends.huggingface.load import stored_weights
from pipesim.backends.job.worker import Context
from pipesim.backends.measure.clocks import clock_offset_ns
from pipesim.backends.measure.timelines import RankRecord, assemble, gather, record
from pipesim.backends.model.config import DecoderConfig
from pipesim.backends.parallel.decoders import decoder_stages, first_weights
from pipesim.backends.parallel.places import Places, make_places
from pipesim.costs.layouts.layout import Layout
from pipesim.ir.action import Kind
from pipesim.ir.program import Program
from pipesim.timeline import Timeline

DTYPES = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Request:
    """Prompts to be continued.

    program: of the schedule `decode`, with a slice for each new token. folder: of the weights; without any, first
    weights by `weight_seed`.
    """

    program: Program
    config: DecoderConfig
    layout: Layout
    prompts: tuple[tuple[int, ...], ...]
    sampling: Sampling = Sampling()
    stop: tuple[int, ...] = ()
    folder: str | None = None
    weight_seed: int = 0
    dtype: str = "fp32"


@dataclass(frozen=True)
class Generated:
    """What rank 0 has afterwards. tokens: new ones of each prompt, a stop token included.

    seconds: of all. first_token_s: from the start, by prompt. timeline: of the pipeline that holds prompt 0.
    """

    tokens: tuple[tuple[int, ...], ...]
    seconds: float
    first_token_s: tuple[float, ...]
    records: list[RankRecord]

    @property
    def tokens_per_s(self) -> float:
        return sum(map(len, self.tokens)) / self.seconds

    def timeline(self, program: Program) -> Timeline:
        return assemble(program, self.records)


def generate(context: Context, request: Request) -> Generated | None:
    """Continue the prompts; the result, on rank 0."""
    schedule = request.program.schedule
    layout = replace(request.layout, sequence_parallel=False)  # a single token has no parts
    places = make_places(layout, context.device.type)
    mine = list(enumerate(request.prompts))[places.dp_rank :: layout.dp]
    groups = make_groups(mine, schedule.microbatches)
    runner = _runner(context, request, places, groups)
    offset = clock_offset_ns()
    dist.barrier()
    began = time.perf_counter_ns()
    result = runner.run(_batch(groups, schedule.slices, context.device))
    noted = record(runner, result, began + offset, offset, 0)
    everyone = gather(noted)
    found = _tokens(groups, {key: outputs.tolist() for key, outputs in result.outputs.items()})
    all_found: list[dict[int, tuple[int, ...]]] = [{}] * context.ranks
    dist.all_gather_object(all_found, found if places.tp_rank == 0 else {})
    all_groups: list[list[tuple[int, ...]]] = [[]] * context.ranks
    dist.all_gather_object(all_groups, [group.numbers for group in groups])
    if everyone is None:
        return None
    by_prompt = {number: tokens for part in all_found for number, tokens in part.items()}
    first = _first_tokens(request.program, places, everyone, all_groups)
    end = max(max(one.end.values()) for one in everyone)
    seconds = (end - min(one.began for one in everyone)) * 1e-9
    numbers = range(len(request.prompts))
    return Generated(
        tuple(by_prompt[number] for number in numbers),
        seconds,
        tuple(first[number] for number in numbers),
        [everyone[rank] for rank in places.pipeline],
    )


def _runner(context: Context, request: Request, places: Places, groups: Sequence[Group]) -> Runner:
    schedule, device = request.program.schedule, context.device
    fill = first_weights(request.config, request.weight_seed)
    if request.folder is not None and has_weights(request.folder):
        fill = stored_weights(request.folder)
    build = decoder_stages(
        request.config,
        places,
        schedule.placement.length,
        fill=fill,
        dtype=DTYPES[request.dtype],
        device=device,
        gather_logits=True,
    )
    stages = {
        stage: GeneratingStage(
            build(stage),
            groups,
            schedule.slices,
            request.sampling,
            request.stop,
            is_last=schedule.placement.is_last(stage),
        )
        for stage in schedule.placement.stages_of(places.pp_rank)
    }
    plan = make_plan(request.program, places.pp_rank)
    wires = Wires(device, channel_groups(plan, device, places.pipelines), watch=True, ranks=places.pipeline)
    return Runner(plan, stages, Transport(wires), None, timer_for(device), board=context.board)


def _batch(groups: Sequence[Group], tokens: int, device: torch.device) -> Microbatches:
    nothing = [[None] * tokens for _ in groups]
    inputs = [[group.tokens.to(device), *[None] * (tokens - 1)] for group in groups]
    return Microbatches(inputs, nothing, [[1.0] * tokens for _ in groups])


def _tokens(groups: Sequence[Group], outputs: dict[tuple[int, int], list[int]]) -> dict[int, tuple[int, ...]]:
    """New tokens of each prompt from those of each pass."""
    found: dict[int, list[int]] = {}
    for (group, _), chosen in sorted(outputs.items()):
        for number, token in zip(groups[group].numbers, chosen, strict=True):
            if token != STOPPED:
                found.setdefault(number, []).append(token)
    return {number: tuple(tokens) for number, tokens in found.items()}


def _first_tokens(
    program: Program, places: Places, records: Sequence[RankRecord], groups: Sequence[Sequence[Sequence[int]]]
) -> dict[int, float]:
    """Seconds from the start until each prompt's first new token was chosen."""
    ops, placement = program.ops, program.schedule.placement
    last = placement.length - 1
    ends = np.flatnonzero((ops.kind == Kind.F) & (ops.stage == last) & (ops.slice == 0)).tolist()
    began = min(one.began for one in records)
    found: dict[int, float] = {}
    for pipeline in places.pipelines:
        rank = pipeline[placement.ranks_of_stages[last]]
        for op in ends:
            for number in groups[rank][int(ops.microbatch[op])]:
                found[number] = (records[rank].end[op] - began) * 1e-9
    return found
