"""The walk itself: one rank's tasks in order, tensors from hand to hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from pipesim.backends.batch import Microbatches
from pipesim.backends.execute.failures import ActionFailed, one_line
from pipesim.backends.execute.plan import Act, Compute, Message, Plan, Task, Transfers, Update
from pipesim.backends.execute.timer import Timer
from pipesim.backends.execute.transport import Transport
from pipesim.backends.memory import HeldBytes
from pipesim.backends.trees import Tree, flatten
from pipesim.errors import PipesimError
from pipesim.ir.action import Kind
from pipesim.ir.needs import Flow

Gradients = list[Tensor | None]


class AnyStage(Protocol):
    """What the walk needs of a stage (`Stage`, or an emulated one)."""

    def forward(
        self,
        key: tuple[int, int],
        inputs: Tree,
        *,
        target: Tree = None,
        weight: float = 1.0,
        slices: int = 1,
        split: bool = False,
        train: bool = True,
        version: int | None = None,
    ) -> Tree: ...

    def backward(self, key: tuple[int, int], gradients: Gradients) -> Gradients: ...

    def input_gradient(self, key: tuple[int, int], gradients: Gradients) -> Gradients: ...

    def weight_gradient(self, key: tuple[int, int]) -> None: ...

    def held_bytes(self) -> HeldBytes: ...


class AnyUpdates(Protocol):
    """What the walk needs of the end of a step (`Updates`, or emulated)."""

    steps: int

    def reduce(self, stage: int) -> None: ...

    def step(self, stages: Sequence[int]) -> None: ...


class Board(Protocol):
    """Where a rank shows what it is at, for those who look when something is wrong."""

    def at(self, op: int) -> None: ...


@dataclass
class StepResult:
    """What one rank has of one step.

    loss: the sum of its weighted losses. outputs: of the last stage (its losses, where it has targets), by
    microbatch and slice, when not training. begin, end: marks by operation. held: by its stages after each
    action, if asked for.
    """

    loss: float = 0.0
    outputs: dict[tuple[int, int], Tree] = field(default_factory=dict)
    begin: dict[int, Any] = field(default_factory=dict)
    end: dict[int, Any] = field(default_factory=dict)
    held: dict[int, HeldBytes] = field(default_factory=dict)


def _forward_first(one: tuple[Act, Tree]) -> bool:
    """Of a pair that would run together, both hold their activations: the backward frees its own last."""
    return one[0].kind != Kind.F


class Runner:
    """One rank of a pipeline."""

    def __init__(
        self,
        plan: Plan,
        stages: Mapping[int, AnyStage],
        transport: Transport,
        updates: AnyUpdates | None,
        timer: Timer,
        *,
        board: Board | None = None,
        weigh_memory: bool = False,
    ) -> None:
        schedule = plan.program.schedule
        self.plan, self.stages, self.transport, self.updates = plan, stages, transport, updates
        self.timer, self.board, self.weigh_memory = timer, board, weigh_memory
        self.placement, self.slices, self.train = schedule.placement, schedule.slices, schedule.trains
        self.every = schedule.update_every
        self.tokens = schedule.slicing == "autoregressive"
        self._mail: dict[tuple[Flow, int, int, int], Tree] = {}  # between stages of this rank
        self._out: dict[int, Tree] = {}  # made but not sent yet, by the send's operation
        self._losses: list[Tensor] = []
        self._text = plan.program.text

    def run(self, batch: Microbatches) -> StepResult:
        """One step. Raises ActionFailed, NoProgress, PeerLost."""
        self._batch, self._result = batch, StepResult()
        self._losses = []
        self._steps_before = 0 if self.updates is None else self.updates.steps
        self.timer.start()
        for task in self.plan.tasks:
            self._do(task)
        self.transport.wait_for_sends()
        if self.updates is not None and self.every is not None:
            self.updates.steps += len(batch) // self.every
        self._result.loss = sum(float(loss) for loss in self._losses)
        return self._result

    def _do(self, task: Task) -> None:
        op = self._first_op(task)
        if self.board is not None:
            self.board.at(op)
        try:
            if isinstance(task, Compute):
                self._compute(task)
            elif isinstance(task, Transfers):
                self._transfer(task)
            else:
                self._update(task)
        except PipesimError:
            raise
        except Exception as error:  # a user's module may raise anything
            raise ActionFailed(self.plan.rank, self._text(op), one_line(error)) from error

    def _first_op(self, task: Task) -> int:
        if isinstance(task, Compute):
            return task.acts[0].op
        if isinstance(task, Update):
            return task.op
        return (*task.receives, *task.sends)[0].op

    def _transfer(self, task: Transfers) -> None:
        self.transport.start(task.receives, [(message, self._out.pop(message.op)) for message in task.sends])
        if task.wait:
            for message in task.receives:  # before the sends: a first message is received when it is taken
                self._mail[self._address(message)] = self.transport.take(message)
            self.transport.let_go(task.sends)

    def _address(self, message: Message) -> tuple[Flow, int, int, int]:
        return (message.flow, message.next_stage, message.microbatch, message.slice)

    def _compute(self, task: Compute) -> None:
        arrived = [(act, self._arrived(act)) for act in task.acts]
        begin = self.timer.mark()
        for act, given in sorted(arrived, key=_forward_first):
            if act.kind == Kind.F:
                self._forward(act, given)
            elif act.kind == Kind.W:
                self.stages[act.stage].weight_gradient((act.microbatch, act.slice))
            else:
                self._backward(act, given)
            if self.weigh_memory:
                self._weigh(act)
        end = self.timer.mark()
        for act in task.acts:
            self._result.begin[act.op], self._result.end[act.op] = begin, end
        if task.settled:
            self.transport.let_go(task.settled)

    def _weigh(self, act: Act) -> None:
        held = [stage.held_bytes() for stage in self.stages.values()]
        self._result.held[act.op] = HeldBytes(*map(sum, zip(*held, strict=True)))

    def _arrived(self, act: Act) -> Tree:
        """What an action works on, from another rank, from this one, or from the batch."""
        message = act.receive
        if message is not None:
            address = self._address(message)
            return self._mail.pop(address) if address in self._mail else self.transport.take(message)
        if act.kind == Kind.W:
            return None
        for flow in (Flow.ACTIVATION, Flow.TOKEN) if act.kind == Kind.F else (Flow.GRADIENT,):
            address = (flow, act.stage, act.microbatch, act.slice)
            if address in self._mail:
                return self._mail.pop(address)
        return self._batch.inputs[act.microbatch][act.slice] if act.kind == Kind.F else []

    def _forward(self, act: Act, inputs: Tree) -> None:
        last = self.placement.is_last(act.stage)
        weight = self._batch.weights[act.microbatch][act.slice] if last else 1.0
        outputs = self.stages[act.stage].forward(
            (act.microbatch, act.slice),
            inputs,
            target=self._batch.targets[act.microbatch][act.slice] if last else None,
            weight=weight,
            slices=self.slices,
            split=act.split,
            train=self.train,
            version=self._version(act.microbatch),
        )
        if not last:
            self._pass_on(act, Flow.ACTIVATION, act.stage + 1, outputs)
        elif self.train:
            self._losses.append(flatten(outputs)[0][0].detach() * weight)
        else:
            self._result.outputs[act.microbatch, act.slice] = outputs
            if isinstance(outputs, Tensor) and not outputs.dim():
                self._losses.append(outputs * weight)
            if self.tokens and act.slice < self.slices - 1:
                first = act.stage + 1 - self.placement.length
                self._pass_on(act, Flow.TOKEN, first, outputs, act.slice + 1)

    def _backward(self, act: Act, gradients: Gradients) -> None:
        stage = self.stages[act.stage]
        differentiate = stage.backward if act.kind == Kind.B else stage.input_gradient
        found = differentiate((act.microbatch, act.slice), gradients)
        if not self.placement.is_first(act.stage):
            self._pass_on(act, Flow.GRADIENT, act.stage - 1, found)

    def _pass_on(self, act: Act, flow: Flow, stage: int, tree: Tree, slice_: int | None = None) -> None:
        if act.send is not None:
            self._out[act.send.op] = tree
        else:
            self._mail[flow, stage, act.microbatch, act.slice if slice_ is None else slice_] = tree

    def _version(self, microbatch: int) -> int | None:
        """Which weights a forward takes: PipeDream's newest, or PipeDream-2BW's of two batches before."""
        if self.every is None or self.updates is None:
            return None
        return -1 if self.every == 1 else self._steps_before + max(0, microbatch // self.every - 1)

    def _update(self, task: Update) -> None:
        assert self.updates is not None
        begin = self.timer.mark()
        if task.kind == Kind.REDUCE:
            self.updates.reduce(task.stages[0])
        else:
            self.updates.step(task.stages)
        self._result.begin[task.op], self._result.end[task.op] = begin, self.timer.mark()
