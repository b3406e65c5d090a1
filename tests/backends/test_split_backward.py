"""Input gradient then weight gradient equals a plain backward, whatever the module."""

import gc
import weakref
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from pipesim.backends.memory import addresses_of, bytes_of
from pipesim.backends.split.later import Later, defer
from pipesim.backends.split.recompute import Recompute
from pipesim.backends.split.saved import SavedTensorChanged, SavedTensors
from pipesim.backends.split.self_check import compare_with_plain
from pipesim.backends.split.strategies import STRATEGIES, Graph, by_graph, by_module, graph_of, whole
from pipesim.backends.trees import flatten
from tests.backends.modules import CASES, WIDTH, Block, Function, build


@dataclass
class Forwarded:
    """A forward's outputs beside its graph."""

    graph: Graph
    outputs: list[Tensor]

    def gradients(self) -> list[Tensor]:
        return [torch.ones_like(out) * (i + 1) + out.detach() for i, out in enumerate(self.outputs)]


def forward(module: nn.Module, inputs: tuple[Any, ...]) -> Forwarded:
    torch.manual_seed(1)
    saved = SavedTensors()
    with saved.hooks():
        outputs, _ = flatten(module(*inputs))
    return Forwarded(graph_of(outputs, inputs, saved), outputs)


def plain(name: str) -> tuple[list[Tensor | None], list[Tensor | None]]:
    """Gradients of inputs and weights after two microbatches of plain backward."""
    module, inputs = build(name)
    for _ in range(2):
        done = forward(module, inputs)
        whole(done.graph, done.gradients())
    return [t.grad for t in done.graph.inputs], [p.grad for p in module.parameters()]


def assert_equal(actual: list[Tensor | None], expected: list[Tensor | None]) -> None:
    for one, other in zip(actual, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("strategy", "name"),
    [
        (strategy, name)
        for strategy in ("graph", "two_pass", "module")
        for name in CASES
        if not (strategy == "two_pass" and "recompute" in name)  # the self-check is there for these
    ],
)
def test_halves_add_up_to_the_plain_backward(strategy: str, name: str) -> None:
    module, inputs = build(name)
    later: list[Later] = []
    for _ in range(2):
        done = forward(module, inputs)
        later.append(STRATEGIES[strategy](done.graph, done.gradients()))
    of_inputs, of_weights = plain(name)
    assert_equal([t.grad for t in done.graph.inputs], of_inputs)
    for weight_gradients in later:
        weight_gradients()
    assert_equal([p.grad for p in module.parameters()], of_weights)


@pytest.mark.parametrize("name", CASES)
def test_self_check_finds_no_fault_and_leaves_the_plain_gradients(name: str) -> None:
    module, inputs = build(name)
    for _ in range(2):
        done = forward(module, inputs)
        assert compare_with_plain(by_graph, done.graph, done.gradients(), list(module.parameters())) == ""
    of_inputs, of_weights = plain(name)
    assert_equal([t.grad for t in done.graph.inputs], of_inputs)
    assert_equal([p.grad for p in module.parameters()], of_weights)


def test_products_wait_and_norms_do_not() -> None:
    module, inputs = build("transformer")
    done = forward(module, inputs)
    later = by_graph(done.graph, done.gradients())
    done = {name.split(".", 1)[1] for name, p in module.named_parameters() if p.grad is not None}
    assert done == {"norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias"}
    later()
    assert all(p.grad is not None for p in module.parameters())


class _Counting(torch.autograd.Function):
    calls: ClassVar[list[str]] = []

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        _Counting.calls.append("forward")
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        _Counting.calls.append("backward")
        return gradient


@pytest.mark.parametrize("how", ["plain", "torch checkpoint", "recompute"])
def test_nothing_is_computed_twice(how: str) -> None:
    """The path of the gradient once; a checkpointed forward once more than it would be without."""
    inner = nn.Sequential(nn.Linear(8, 8), Function(lambda self, x: _Counting.apply(x)), nn.Linear(8, 8))
    again = Recompute(inner)
    run = {
        "plain": inner,
        "torch checkpoint": lambda x: checkpoint(inner, x, use_reentrant=False),
        "recompute": again,
    }[how]
    module = Function(lambda self, x: self.b(run(self.a(x))), a=nn.Linear(8, 8), b=nn.Linear(8, 8))
    _Counting.calls.clear()
    done = forward(module, (torch.randn(3, 8, requires_grad=True),))
    later = by_graph(done.graph, done.gradients())
    at_input_gradient = list(_Counting.calls)
    later()
    assert at_input_gradient == (["forward", "backward"] if how == "plain" else ["forward", "forward", "backward"])
    assert _Counting.calls == at_input_gradient


def test_recomputed_block_leaves_its_products_for_later() -> None:
    module = Recompute(Block())
    done = forward(module, (torch.randn(2, 3, WIDTH, requires_grad=True),))
    later = by_graph(done.graph, done.gradients())
    assert module.module.up.weight.grad is None
    assert bytes_of(later.tensors()) > 0
    later()
    assert module.module.up.weight.grad is not None


def test_what_the_weights_do_not_need_is_released_at_the_input_gradient() -> None:
    """Of a block's saved tensors, only what products read stays."""
    module = nn.Sequential(Block(), Block())
    done = forward(module, (torch.randn(2, 16, WIDTH, requires_grad=True),))
    assert done.graph.saved is not None
    weights = addresses_of(module.parameters())
    before = bytes_of(done.graph.saved.tensors(), weights)
    later = by_graph(done.graph, done.gradients())
    after = bytes_of(done.graph.saved.tensors(), weights)
    token = WIDTH * 4 * 2 * 16
    assert after == 2 * (1 + 1 + 1 + 4) * token  # inputs of qkv, out, up and down
    assert after < 0.6 * before
    later()


def test_no_circle_keeps_saved_tensors_alive() -> None:
    """Saved outputs (sigmoid) would hold their own graph through the hooks' slots."""
    module = nn.Sequential(nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 8), nn.Tanh())
    gc.disable()
    try:
        done = forward(module, (torch.randn(2, 8, requires_grad=True),))
        assert done.graph.saved is not None
        alive = [weakref.ref(tensor) for tensor in done.graph.saved.tensors() if not isinstance(tensor, nn.Parameter)]
        by_graph(done.graph, done.gradients())()
        del done
        assert [ref for ref in alive if ref() is not None] == []
    finally:
        gc.enable()


def test_a_saved_tensor_written_to_is_noticed() -> None:
    module = nn.Linear(8, 8)
    hidden = torch.randn(2, 8)
    done = forward(module, (hidden,))
    hidden.add_(1)
    with pytest.raises(SavedTensorChanged, match=r"shape \(2, 8\)"):
        whole(done.graph, done.gradients())


def test_no_gradient_arrives() -> None:
    module, inputs = build("transformer")
    done = forward(module, inputs)
    by_graph(done.graph, [None])()
    assert inputs[0].grad is None
    assert all(p.grad is None for p in module.parameters())


class _Deferring(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: nn.Parameter) -> Tensor:
        ctx.save_for_backward(x)
        ctx.weight = weight
        return x @ weight.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        weight = ctx.weight

        def accumulate() -> None:
            product = x.T @ gradient
            weight.grad = product if weight.grad is None else weight.grad.add_(product)

        defer(accumulate, lambda: (x, gradient))
        return gradient @ weight.detach().T, None


@pytest.mark.parametrize("strategy", [by_module, by_graph])
def test_module_defers_its_own_weight_gradient(strategy: Any) -> None:
    weight = nn.Parameter(torch.randn(8, 4))
    x = torch.randn(3, 8, requires_grad=True)
    later = strategy(graph_of([_Deferring.apply(x, weight)], [x]), [torch.ones(3, 4)])
    assert weight.grad is None
    assert bytes_of(later.tensors()) == (3 * 8 + 3 * 4) * 4
    later()
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad, x.detach().T @ torch.ones(3, 4))


def test_deferred_work_is_done_at_once_in_a_full_backward() -> None:
    weight = nn.Parameter(torch.randn(8, 4))
    x = torch.randn(3, 8, requires_grad=True)
    whole(graph_of([_Deferring.apply(x, weight)], [x]), [torch.ones(3, 4)])
    assert weight.grad is not None


def test_hooks_on_weights_fire_once() -> None:
    """Gradients go through autograd's own accumulation, so whoever listens to it hears it."""
    module, inputs = build("transformer")
    heard: list[Tensor] = []
    for weight in module.parameters():
        weight.register_post_accumulate_grad_hook(heard.append)
    done = forward(module, inputs)
    by_graph(done.graph, done.gradients())()
    assert sorted(map(id, heard)) == sorted(map(id, module.parameters()))


def test_a_strategy_that_goes_wrong_is_named() -> None:
    """A tensor hook on a fork's output is applied by both halves; no cut can see it."""
    module = Function(lambda self, x: _doubled(self.a(x)), a=nn.Linear(8, 4))
    done = forward(module, (torch.randn(3, 8, requires_grad=True),))
    fault = compare_with_plain(by_graph, done.graph, [torch.ones(3, 4)], list(module.parameters()))
    assert fault.startswith("gradient 1 of shape (4, 8) differs by")


def _doubled(tensor: Tensor) -> Tensor:
    tensor.register_hook(lambda gradient: gradient * 2)
    return tensor
