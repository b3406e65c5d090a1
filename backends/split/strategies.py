"""The input gradient first, the weight gradient later, for any module, with no work done twice.

A strategy takes what one forward left (`Graph`) and the gradients of its outputs; it leaves the gradients of
the inputs in their `.grad` and returns the rest of the backward, to be called later. Gradients of weights
accumulate into `.grad` as in a plain backward, by autograd itself.

`graph` cuts the autograd graph (see `graph.py`); `two_pass` walks the path twice; `module` leaves it to the
module, whose own functions call `later.defer`; `whole` does everything at once.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

from pipesim.backends.split.graph import Cut, Group, cut, is_product
from pipesim.backends.split.later import Later, collecting
from pipesim.backends.split.saved import SavedTensors, Slot, saved_by

Arrived = dict[Node, tuple[Tensor | None, ...]]  # gradients by fork, one for each of its outputs


@dataclass(frozen=True)
class Graph:
    """What a forward left: where its outputs' gradients enter, the leaves it began with, what autograd saved.

    outputs: None for an output that needs no gradient. The tensors themselves are not kept: often nobody else
    needs them any more once they are sent.
    inputs: leaves that want a gradient.
    """

    outputs: tuple[GradientEdge | None, ...]
    inputs: tuple[Tensor, ...]
    saved: SavedTensors | None = None


def graph_of(outputs: Iterable[Tensor], inputs: Iterable[Tensor], saved: SavedTensors | None = None) -> Graph:
    """The graph between tensors."""
    edges = tuple(get_gradient_edge(output) if output.requires_grad else None for output in outputs)
    return Graph(edges, tuple(tensor for tensor in inputs if tensor.requires_grad), saved)


Strategy = Callable[[Graph, Sequence[Tensor | None]], Later]


def by_graph(graph: Graph, gradients: Sequence[Tensor | None]) -> Later:
    """Input gradient along the path only; later each weight from the gradient that passed by."""
    roots, incoming = incoming_edges(graph.outputs, gradients)
    later = Later()
    if not roots:
        return later
    if not graph.inputs:
        later.add(lambda: torch.autograd.backward(roots, incoming), lambda: incoming)
        return later
    inputs = [get_gradient_edge(tensor) for tensor in graph.inputs]
    plan = cut([root.node for root in roots], [edge.node for edge in inputs], separable=_separable)
    along = [edge for edge, reached in zip(inputs, plan.reached, strict=True) if reached]
    along += [GradientEdge(leaf, 0) for leaf in plan.early]
    arrived: Arrived = {}
    if along:
        handles = [fork.register_prehook(_noting(fork, arrived)) for fork in plan.forks()]
        with collecting(later):
            torch.autograd.backward(roots, incoming, retain_graph=True, inputs=along)
        for handle in handles:
            handle.remove()
    if graph.saved is not None:
        _keep_for_weights(plan)
        graph.saved.release_read()
    _arrive_off_path(plan, roots, incoming, arrived)
    off_path = [edge for edge in roots if edge.node in plan.roots_off_path]  # they own their graph
    later.add(lambda: _weight_gradients(plan.groups, arrived, off_path), lambda: _all_of(arrived))
    return later


def two_pass(graph: Graph, gradients: Sequence[Tensor | None]) -> Later:
    """Input gradient, then the weights' in a second pass, which walks the path again.

    Not for functions that write to weights which autograd does not see (`Recompute`).
    """
    roots, incoming = incoming_edges(graph.outputs, gradients)
    later = Later()
    if not roots:
        return later
    if not graph.inputs:
        later.add(lambda: torch.autograd.backward(roots, incoming), lambda: incoming)
        return later
    inputs = [get_gradient_edge(tensor) for tensor in graph.inputs]
    plan = cut([root.node for root in roots], [edge.node for edge in inputs])
    along = [edge for edge, reached in zip(inputs, plan.reached, strict=True) if reached]
    if along:
        torch.autograd.backward(roots, incoming, retain_graph=True, inputs=along)
    weights = [GradientEdge(leaf, 0) for leaf in plan.leaves()]
    if weights:
        later.add(lambda: torch.autograd.backward(roots, incoming, inputs=weights), lambda: incoming)
    return later


def by_module(graph: Graph, gradients: Sequence[Tensor | None]) -> Later:
    """A plain backward in which the module's own functions `defer` their weight gradients."""
    later = Later()
    with collecting(later):
        _backward(graph, gradients)
    return later


def whole(graph: Graph, gradients: Sequence[Tensor | None]) -> Later:
    """The full backward now, nothing later."""
    _backward(graph, gradients)
    return Later()


STRATEGIES: dict[str, Strategy] = {
    "graph": by_graph,
    "two_pass": two_pass,
    "module": by_module,
    "whole": whole,
}


def incoming_edges(
    outputs: Sequence[GradientEdge | None], gradients: Sequence[Tensor | None]
) -> tuple[list[GradientEdge], list[Tensor]]:
    """Where gradients enter the graph: outputs without one, or that need none, are left out."""
    pairs = [
        (edge, gradient)
        for edge, gradient in zip(outputs, gradients, strict=True)
        if gradient is not None and edge is not None
    ]
    return [edge for edge, _ in pairs], [gradient for _, gradient in pairs]


def _backward(graph: Graph, gradients: Sequence[Tensor | None]) -> None:
    roots, incoming = incoming_edges(graph.outputs, gradients)
    if roots:
        torch.autograd.backward(roots, incoming)


def _separable(node: Node) -> bool:
    """A product whose saved tensors are at hand: a checkpointed block would compute its forward again."""
    return is_product(node) and all(data is None or isinstance(data, Slot | Tensor) for data in saved_by(node))


def _keep_for_weights(plan: Cut) -> None:
    """Mark what the forks saved: autograd reads all of it both times."""
    for fork in plan.forks():
        for data in saved_by(fork):
            if isinstance(data, Slot):
                data.keep = True


def _noting(fork: Node, arrived: Arrived) -> Callable[[tuple[Tensor, ...]], None]:
    def note(gradients: tuple[Tensor, ...]) -> None:
        arrived[fork] = gradients

    return note


def _arrive_off_path(plan: Cut, roots: Sequence[GradientEdge], incoming: Sequence[Tensor], arrived: Arrived) -> None:
    """The gradients of outputs that lead to no input."""
    for root, gradient in zip(roots, incoming, strict=True):
        if root.node in plan.roots_off_path:
            slots = list(arrived.get(root.node, ()))
            slots += [None] * (root.output_nr + 1 - len(slots))
            present = slots[root.output_nr]
            slots[root.output_nr] = gradient if present is None else present + gradient
            arrived[root.node] = tuple(slots)


def _weight_gradients(groups: Sequence[Group], arrived: Arrived, owners: Sequence[GradientEdge]) -> None:
    """Each group's weights from what arrived at its forks; `owners` keep alive what Python nodes do not."""
    for group in groups:
        edges: list[GradientEdge] = []
        gradients: list[Tensor] = []
        for fork in group.forks:
            for number, gradient in enumerate(arrived.get(fork, ())):
                if gradient is not None:
                    edges.append(GradientEdge(fork, number))
                    gradients.append(gradient)
        if edges:
            leaves = [GradientEdge(leaf, 0) for leaf in group.leaves]
            # Forks may belong to several groups; the graph goes as a whole when its last user does.
            torch.autograd.backward(edges, gradients, retain_graph=True, inputs=leaves)


def _all_of(arrived: Arrived) -> Iterable[Tensor]:
    return (gradient for slots in arrived.values() for gradient in slots if gradient is not None)
