"""One split backward held to a plain one on the same forward, before a strategy is trusted with a module."""

from collections.abc import Sequence

import torch
from torch import Tensor

from pipesim.backends.split.strategies import Graph, Strategy, incoming_edges


def compare_with_plain(
    strategy: Strategy, graph: Graph, gradients: Sequence[Tensor | None], weights: Sequence[Tensor]
) -> str:
    """Do one backward both ways and keep the plain one's gradients; says what differs, or an empty text."""
    edges, incoming = incoming_edges(graph.outputs, gradients)
    if not edges:
        return ""
    leaves = [*graph.inputs, *weights]
    before = _take_gradients(leaves)
    torch.autograd.backward(edges, incoming, retain_graph=True)
    if graph.saved is not None:
        graph.saved.unread()
    plain = _take_gradients(leaves)
    fault = ""
    try:
        strategy(graph, gradients)()
    except Exception as error:  # a module's backward may raise anything the second time
        fault = f"{type(error).__name__}: {error}"
    split = _take_gradients(leaves)
    for leaf, old, new in zip(leaves, before, plain, strict=True):
        leaf.grad = new if old is None else old if new is None else old.add_(new)
    return fault or _difference(plain, split)


def _take_gradients(leaves: Sequence[Tensor]) -> list[Tensor | None]:
    """The gradients, of which the leaves are then rid."""
    taken = [leaf.grad for leaf in leaves]
    for leaf in leaves:
        leaf.grad = None
    return taken


def _difference(plain: Sequence[Tensor | None], split: Sequence[Tensor | None]) -> str:
    """The first gradient that differs by more than rounding, in words.

    Rounding is eps^0.6 (float64 4e-10, float32 7e-5, bfloat16 5e-2) of the largest entry, to which a tenth
    of the largest of all gradients is added: some are nothing but rounding (a key's bias in attention).
    """
    largest = max((_largest(tensor) for tensor in plain if tensor is not None), default=0.0)
    for number, (one, other) in enumerate(zip(plain, split, strict=True)):
        if one is None and other is None:
            continue
        if one is None or other is None:
            return f"gradient {number} is {'missing' if other is None else 'not None'}"
        allowed = torch.finfo(one.dtype).eps ** 0.6 * (_largest(one) + 0.1 * largest)
        off = _largest(one - other)
        if not off <= allowed:
            shape = tuple(one.shape)
            return f"gradient {number} of shape {shape} differs by {off:.3g}, allowed {allowed:.3g}"
    return ""


def _largest(tensor: Tensor) -> float:
    return float(tensor.abs().max()) if tensor.numel() else 0.0
