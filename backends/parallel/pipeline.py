"""One process of a job under tensor, pipeline and data parallelism: its stages, and steps to run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor.parallel import loss_parallel

from pipesim.backends.batch import Microbatches
from pipesim.backends.execute.plan import make_plan
from pipesim.backends.execute.runner import AnyStage, Board, Runner, StepResult
from pipesim.backends.execute.timer import timer_for
from pipesim.backends.execute.transport import Transport, Wires
from pipesim.backends.execute.wiring import Tie, channel_groups
from pipesim.backends.parallel.last import Last, count_backwards
from pipesim.backends.parallel.places import Places
from pipesim.backends.parallel.reduce import Replicated
from pipesim.backends.parallel.sharded import Sharded
from pipesim.backends.parallel.updates import ParallelUpdates, StageWeights, StepRules, TiedHere
from pipesim.backends.pipeline import forwards_of
from pipesim.backends.stage import LossFunction, Stage, StageOptions
from pipesim.costs.layouts.layout import BadLayout
from pipesim.ir.action import Kind
from pipesim.ir.lower import lower
from pipesim.ir.placement import Placement
from pipesim.ir.program import Program


@dataclass(frozen=True)
class ParallelOptions:
    """How a job runs.

    compute_dtype: of matrix products and messages, where weights keep a wider one (bf16 with fp32 masters).
    ties: weights that are one, as places (stage of the model, name).
    watch, weigh_memory, board: as in `PipelineOptions`.
    """

    stage: StageOptions = field(default_factory=StageOptions)
    rules: StepRules = field(default_factory=StepRules)
    compute_dtype: torch.dtype | None = None
    ties: Sequence[Tie] = ()
    watch: bool = False
    weigh_memory: bool = False
    board: Board | None = None


class ParallelPipeline:
    """This process's part of a job.

    build: makes a stage of the model on this rank, its weights split over tp and filled; where it has a method
    `units`, those modules are gathered and reduced one by one, else the stage as a whole.
    loss_fn: of what the last stage gives, which is a part of the logits under tensor parallelism.
    """

    def __init__(
        self,
        program: Program,
        places: Places,
        build: Callable[[int], nn.Module],
        *,
        loss_fn: LossFunction | None,
        device: torch.device | None = None,
        options: ParallelOptions | None = None,
    ) -> None:
        self.program, self.places = program, places
        self.device = device or torch.device("cpu")
        self.options = options or ParallelOptions()
        placement = program.schedule.placement
        _require(program, places)
        self.modules = {stage: build(stage % placement.length) for stage in placement.stages_of(places.pp_rank)}
        self._reductions = self._make_reductions()
        self.stages = {number: self._stage(number, loss_fn) for number in self.modules}
        timer = timer_for(self.device)
        self.updates = ParallelUpdates(
            {number: self._weights(number) for number in self.modules},
            self.options.rules,
            {"dp": places.layout.dp, "tp": places.layout.tp},
            self._ties(),
            timer.mark,
            self.device,
        )
        backwards = count_backwards(program)
        early = self.options.rules.overlap and not program.schedule.splits_backward
        self._walked: dict[int, AnyStage] = {
            number: Last(stage, self._reductions[number], backwards.get(number, 0), self.updates) if early else stage
            for number, stage in self.stages.items()
        }
        self.runner = self._make_runner(program, self.updates)
        self._evaluating: Runner | None = None

    def step(self, rounds: Sequence[Microbatches]) -> StepResult:
        """One optimizer step on one or more rounds of microbatches, whose weights add up to 1 over all replicas."""
        for module in self.modules.values():
            module.train()
        loss = 0.0
        with self.tensor_context():
            for number, batch in enumerate(rounds):
                self.begin_round(last=number == len(rounds) - 1)
                result = self.runner.run(batch)
                loss += result.loss
        result.loss = loss
        return self.marked(result)

    def begin_round(self, *, last: bool) -> None:
        """Before each run of the program; `last`: the gradients are complete after it."""
        self.updates.begin_step()
        self.updates.hold = not last
        for stage in self._walked.values():
            if isinstance(stage, Last):
                stage.begin()

    def evaluate(self, batch: Microbatches) -> StepResult:
        """Forwards only; the outputs (or losses) are on the ranks of the last stage."""
        if self._evaluating is None:
            self._evaluating = self._make_runner(lower(forwards_of(self.program.schedule)), None)
        for module in self.modules.values():
            module.eval()
        with self.tensor_context():
            return self._evaluating.run(batch)

    @contextmanager
    def tensor_context(self) -> Iterator[None]:
        """What losses over parts of the vocabulary need around forwards and backwards."""
        if self.places.layout.tp == 1:
            yield
            return
        with loss_parallel():
            yield

    def marked(self, result: StepResult) -> StepResult:
        """Give reductions the times at which they really began and ended."""
        ops = self.program.ops
        for op in self.program.row(self.places.pp_rank):
            stage = int(ops.stage[op])
            if ops.kind[op] == Kind.REDUCE and stage in self.updates.reduced:
                result.begin[op], result.end[op] = self.updates.reduced[stage]
            elif ops.kind[op] == Kind.STEP and op in result.begin and self.updates.stepped is not None:
                result.begin[op] = self.updates.stepped
        return result

    def job_loss(self, loss: float) -> float:
        """The whole job's loss from each rank's."""
        total = torch.tensor([loss if self.places.tp_rank == 0 else 0.0], dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return float(total)

    def _make_runner(self, program: Program, updates: ParallelUpdates | None) -> Runner:
        plan = make_plan(program, self.places.pp_rank)
        groups = channel_groups(plan, self.device, self.places.pipelines)
        wires = Wires(self.device, groups, watch=self.options.watch, ranks=self.places.pipeline)
        return Runner(
            plan,
            self._walked,
            Transport(wires),
            updates,
            timer_for(self.device),
            board=self.options.board,
            weigh_memory=self.options.weigh_memory,
        )

    def _make_reductions(self) -> dict[int, Replicated | Sharded | None]:
        """By stage; groups of twins are made by all ranks of the job, in one order."""
        layout, placement = self.places.layout, self.program.schedule.placement
        if layout.dp > 1 and layout.zero_stage:
            return {
                number: Sharded(
                    module,
                    units_of(module),
                    self.places.mesh["dp"],
                    zero_stage=layout.zero_stage,
                    compute_dtype=self.options.compute_dtype,
                )
                for number, module in self.modules.items()
            }
        found: dict[int, Replicated | Sharded | None] = dict.fromkeys(self.modules)
        for stage in range(placement.length):
            twins = placement.replicas_of(stage)
            group = self._group_of_stage(placement, twins)
            here = [twin for twin in twins if twin in self.modules]
            if here and (group is not None or len(here) > 1):
                copies = [self.modules[twin] for twin in here]
                early = self.options.rules.overlap and placement.chains == 1
                reduction = Replicated(copies, units_of(copies[0]), group, early=early, apart=self._apart(stage))
                found |= dict.fromkeys(here, reduction)
        return found

    def _apart(self, stage: int) -> frozenset[str]:
        """Tied weights that are summed over all their places at once: where a stage has twins, these are among them."""
        if self.program.schedule.placement.chains == 1:
            return frozenset()
        return frozenset(name for tie in self.options.ties for place, name in tie if place == stage)

    def _group_of_stage(self, placement: Placement, twins: Sequence[int]) -> dist.ProcessGroup | None:
        if placement.chains == 1:
            return self.places.group("dp") if self.places.layout.dp > 1 else None
        holders = sorted({placement.ranks_of_stages[twin] for twin in twins})
        return self.places.new_groups(holders, across=("dp",))

    def _ties(self) -> list[TiedHere]:
        """Ties with a place on this rank; groups are made by all ranks, in one order."""
        placement, found = self.program.schedule.placement, []
        for tie in self.options.ties:
            everywhere = [(twin, name) for stage, name in tie for twin in placement.replicas_of(stage)]
            holders = sorted({placement.ranks_of_stages[stage] for stage, _ in everywhere})
            group = self.places.new_groups(holders, across=() if placement.chains == 1 else ("dp",))
            here = tuple(place for place in everywhere if place[0] in self.modules)
            if here:
                found.append(TiedHere(here, group, everywhere[0]))
        return found

    def _stage(self, number: int, loss_fn: LossFunction | None) -> Stage:
        placement, reduction, options = self.program.schedule.placement, self._reductions[number], self.options.stage
        sharded = isinstance(reduction, Sharded)
        if self.options.weigh_memory:
            options = replace(options, track_memory=True)
        if sharded:  # whose weights are elsewhere when gradients are to be compared
            options = replace(options, self_check=False)
        if self.options.compute_dtype is not None and not sharded:
            dtype, kind = self.options.compute_dtype, self.device.type
            options = replace(options, context=lambda: torch.autocast(kind, dtype=dtype))
        module = reduction.outer if isinstance(reduction, Sharded) else self.modules[number]
        return Stage(module, number % placement.length, placement.length, loss_fn, options)

    def _weights(self, number: int) -> StageWeights:
        chains = self.program.schedule.placement.chains
        return StageWeights(self.stages[number], self.modules[number], self._reductions[number], 1 / chains)


def units_of(module: nn.Module) -> Sequence[nn.Module]:
    """Parts of a stage that are gathered and reduced one by one."""
    units = getattr(module, "units", None)
    if units is not None:
        found: Sequence[nn.Module] = units()
        return found
    parts = list(module.children()) if isinstance(module, nn.Sequential) else []
    return [part for part in parts if any(True for _ in part.parameters())]


def _require(program: Program, places: Places) -> None:
    """Raises BadLayout for what does not run together."""
    layout, schedule = places.layout, program.schedule
    if program.ranks != layout.pp:
        raise BadLayout(f"a schedule of {program.ranks} ranks for pp={layout.pp}", f"pp={program.ranks} works")
    if schedule.update_every is not None:
        raise BadLayout(f"{schedule.name} steps each stage by itself, which only runs alone", "tp=1 and dp=1 work")
    if schedule.placement.chains > 1 and layout.zero_stage and layout.dp > 1:
        raise BadLayout(
            f"zero_stage={layout.zero_stage} with {schedule.name}, which holds two copies of every stage",
            "zero_stage=0 works",
        )
