"""One stage of the model: its forward, and its backward whole or in halves, per microbatch (and slice)."""

import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from pipesim.backends.carry import Carries, call_slice, carry_tree
from pipesim.backends.memory import HeldBytes, addresses_of, bytes_of
from pipesim.backends.randomness import seeded
from pipesim.backends.split.later import Later
from pipesim.backends.split.saved import SavedTensors
from pipesim.backends.split.self_check import compare_with_plain
from pipesim.backends.split.strategies import STRATEGIES, Graph, graph_of, whole
from pipesim.backends.trees import Tree, flatten, unflatten
from pipesim.backends.versions import Versions

Key = tuple[int, int]  # microbatch, slice
LossFunction = Callable[[Tree, Tree], Tensor]
Gradients = Sequence[Tensor | None]


class SplitRefused(UserWarning):
    """A stage whose backward cannot be split: it runs whole at the input gradient."""


@dataclass(frozen=True)
class StageOptions:
    """How stages run.

    strategy: how a backward is split (`graph`, `two_pass`, `module`, `whole`).
    self_check: hold the first split backward to a plain one, and fall back to `whole` if they differ.
    context: entered around each forward and its loss, e.g. autocast.
    seed: of the random numbers of each microbatch; None leaves the generators alone.
    track_memory: keep saved tensors where they can be weighed, also where the backward is not split.
    """

    strategy: str = "graph"
    self_check: bool = True
    context: Callable[[], AbstractContextManager[Any]] = nullcontext
    seed: int | None = 0
    track_memory: bool = False


@dataclass
class _InFlight:
    """A microbatch between its forward and its last backward."""

    graph: Graph
    inputs: list[Tensor]  # leaves; the last `carried_in` of them are carry
    carried_in: int
    carried_out: int  # so many of the graph's outputs, at its end, are carry
    weight: Tensor | None = None  # gradient of the loss
    weights: Mapping[str, Tensor] | None = None  # the version of the weights it runs with
    later: Later | None = None


@dataclass
class Stage:
    """A module that is one stage of a pipeline; `place` of `length` stages.

    forward gives its outputs, a tree of tensors; the last stage with a loss function gives the loss.
    """

    module: nn.Module
    place: int
    length: int
    loss_fn: LossFunction | None = None
    options: StageOptions = field(default_factory=StageOptions)
    step: int = 0  # counts steps, for the random numbers
    versions: Versions | None = None

    def __post_init__(self) -> None:
        self._in_flight: dict[Key, _InFlight] = {}
        self._carries = Carries()
        self._strategy = STRATEGIES[self.options.strategy]
        self._unchecked = self.options.self_check and self._strategy is not whole
        self._outside = addresses_of([*self.module.parameters(), *self.module.buffers()])
        self._writes_to_inputs = False

    @property
    def is_last(self) -> bool:
        return self.place == self.length - 1

    def parameters(self) -> list[nn.Parameter]:
        """Parameters that are trained."""
        return [weight for weight in self.module.parameters() if weight.requires_grad]

    def forward(
        self,
        key: Key,
        inputs: Tree,
        *,
        target: Tree = None,
        weight: float = 1.0,
        slices: int = 1,
        split: bool = False,
        train: bool = True,
        version: int | None = None,
    ) -> Tree:
        """Outputs for one microbatch (or slice), or its loss.

        inputs: one tensor, a tuple (positional) or a dict (by name); those with requires_grad will get one.
        weight: of this loss in the sum of the step. split: the backward will come in halves.
        version: of the weights, where several are kept; else the module's own.
        """
        leaves, holes = flatten(inputs)
        if train:
            leaves = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in leaves]
        carried, carry_holes = self._carries.enter(*key, train=train) if slices > 1 else ([], None)
        saved = SavedTensors() if train and (split or self.options.track_memory) else None
        weights = None if self.versions is None or version is None else self.versions.weights(version)
        with self._entered(key, saved, train):
            carry = carry_tree(carry_holes, carried)
            outputs, carry = self._call_module(holes, leaves, carry, key[1], slices, weights)
            if self.is_last and self.loss_fn is not None and target is not None:
                outputs = self.loss_fn(outputs, target)
        passed_on = self._carries.leave(*key, carry, slices=slices) if slices > 1 else []
        if train:
            flat, _ = flatten(outputs)
            leaves += carried
            graph = graph_of((*flat, *passed_on), leaves, saved)
            loss_weight = torch.full_like(flat[0], weight) if self.is_last else None
            self._in_flight[key] = _InFlight(graph, leaves, len(carried), len(passed_on), loss_weight, weights)
        return outputs

    def backward(self, key: Key, gradients: Gradients) -> list[Tensor | None]:
        """Whole backward; the gradients of the inputs (None for inputs that got none)."""
        flight = self._in_flight.pop(key)
        whole(flight.graph, self._incoming(key, flight, gradients))
        self._collect(flight)
        return self._input_gradients(key, flight)

    def input_gradient(self, key: Key, gradients: Gradients) -> list[Tensor | None]:
        """First half of the backward; the gradients of the inputs."""
        flight = self._in_flight[key]
        incoming = self._incoming(key, flight, gradients)
        if self._unchecked and flight.graph.inputs:
            flight.later = self._checked(flight, incoming)
        else:
            flight.later = self._strategy(flight.graph, incoming)
        found = self._input_gradients(key, flight)
        if flight.graph.inputs:  # else the whole backward is still to come
            flight.graph = Graph((), (), flight.graph.saved)
        flight.inputs = []
        self._collect(flight)
        return found

    def weight_gradient(self, key: Key) -> None:
        """Second half."""
        flight = self._in_flight.pop(key)
        assert flight.later is not None, f"weight gradient of {key} before its input gradient"
        flight.later()
        self._collect(flight)

    def held_bytes(self) -> HeldBytes:
        """Bytes that microbatches in flight keep, weights not counted."""
        waiting = [flight.later.tensors() for flight in self._in_flight.values() if flight.later is not None]
        stale = (flight.weights.values() for flight in self._in_flight.values() if flight.weights is not None)
        outside = self._outside | addresses_of(itertools.chain(*stale))
        return HeldBytes(bytes_of(self._saved(), outside), bytes_of(itertools.chain(*waiting), outside))

    def _saved(self) -> Iterator[Tensor]:
        for flight in self._in_flight.values():
            yield from flight.inputs
            if flight.graph.saved is not None:
                yield from flight.graph.saved.tensors()

    def _entered(self, key: Key, saved: SavedTensors | None, train: bool) -> ExitStack:
        stack = ExitStack()
        stack.enter_context(torch.set_grad_enabled(train))
        if self.options.seed is not None:
            stack.enter_context(seeded(self.options.seed, self.step, self.place, *key))
        if saved is not None:
            stack.enter_context(saved.hooks())
        stack.enter_context(self.options.context())
        return stack

    def _call_module(
        self,
        holes: Tree,
        leaves: list[Tensor],
        carry: Tree,
        slice_: int,
        slices: int,
        weights: Mapping[str, Tensor] | None,
    ) -> tuple[Tree, Tree]:
        """Outputs and carry of the module."""
        if not self._writes_to_inputs:
            try:
                return self._call(unflatten(holes, leaves), carry, slice_, slices, weights)
            except RuntimeError as error:
                # Autograd forbids writing to a leaf: a stage that does (ReLU in place) gets copies.
                if "a leaf Variable that requires grad" not in str(error):
                    raise
            self._writes_to_inputs = True
        copies = [leaf.clone() for leaf in leaves]
        return self._call(unflatten(holes, copies), carry, slice_, slices, weights)

    def _call(
        self, inputs: Tree, carry: Tree, slice_: int, slices: int, weights: Mapping[str, Tensor] | None
    ) -> tuple[Tree, Tree]:
        args = inputs if isinstance(inputs, tuple) else () if isinstance(inputs, dict) else (inputs,)
        named = inputs if isinstance(inputs, dict) else {}
        if slices > 1:
            return call_slice(self.module, args, named, carry, slice_)
        if weights is not None:
            return torch.func.functional_call(self.module, dict(weights), args, named), None
        return self.module(*args, **named), None

    def _collect(self, flight: _InFlight) -> None:
        if self.versions is not None and flight.weights is not None:
            self.versions.collect(flight.weights)

    def _incoming(self, key: Key, flight: _InFlight, gradients: Gradients) -> list[Tensor | None]:
        """Gradients of the graph's outputs: from the next stage or the loss, then from the slice after."""
        own = list(gradients) if flight.weight is None else [flight.weight]
        own += [None] * (len(flight.graph.outputs) - flight.carried_out - len(own))
        return own + self._carries.take_gradients(key[0]) if flight.carried_out else own

    def _input_gradients(self, key: Key, flight: _InFlight) -> list[Tensor | None]:
        found = [leaf.grad for leaf in flight.inputs]
        if not flight.carried_in:
            return found
        self._carries.give_gradients(key[0], found[-flight.carried_in :])
        return found[: -flight.carried_in]

    def _checked(self, flight: _InFlight, incoming: list[Tensor | None]) -> Later:
        self._unchecked = False
        weights = self.parameters() if flight.weights is None else list(flight.weights.values())
        fault = compare_with_plain(self._strategy, flight.graph, incoming, weights)
        if fault:
            self._strategy = whole
            warnings.warn(
                f"stage {self.place}: its backward cannot be split ({fault}); "
                "it runs whole at the input gradient, and its weight gradient is empty",
                SplitRefused,
                stacklevel=2,
            )
        return Later()
