"""Small modules that are awkward to split, each with inputs, in float64."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from pipesim.backends.split.recompute import Recompute

WIDTH = 8


class Block(nn.Module):
    """A transformer block."""

    def __init__(self, width: int = WIDTH, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Function(nn.Module):
    """Weights and a function of them and the inputs."""

    def __init__(self, function: Callable[..., Any], **weights: Any) -> None:
        super().__init__()
        self.function = function
        for name, weight in weights.items():
            if isinstance(weight, nn.Module):
                self.add_module(name, weight)
            else:
                self.register_parameter(name, nn.Parameter(weight))

    def forward(self, *inputs: Any) -> Any:
        return self.function(self, *inputs)


def _w(*shape: int) -> Tensor:
    return torch.randn(*shape) / 2


def _x(*shape: int) -> Tensor:
    return torch.randn(*shape, requires_grad=True)


def _inplace(self: Any, x: Tensor) -> Tensor:
    y = self.a(x)
    y.relu_()
    z = self.b(y) + 1
    z[:, 1:3].mul_(2)
    return self.c(z.add_(1).sigmoid_())


def _low_rank(self: Any, x: Tensor) -> Tensor:
    shared = self.u @ self.v
    return F.linear(x, shared) + x @ (self.u @ self.w)


def _tuple(self: Any, x: Tensor, y: Tensor, ids: Tensor) -> dict[str, Any]:
    h = self.a(x) + self.table(ids)
    return {"sum": (h, self.b(y)), "ids": ids, "unused": self.b(x).detach()}


CASES: dict[str, Callable[[], tuple[nn.Module, tuple[Any, ...]]]] = {
    "transformer": lambda: (nn.Sequential(Block(), Block()), (_x(2, 3, WIDTH),)),
    "3-D linear last": lambda: (nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 5)), (_x(2, 3, 8),)),
    "output is a view": lambda: (
        Function(lambda self, x: self.a(x).transpose(0, 1)[1:], a=nn.Linear(8, 4)),
        (_x(2, 3, 8),),
    ),
    "weight used twice in a row": lambda: (
        Function(lambda self, x: x @ self.w @ self.w, w=_w(8, 8)),
        (_x(3, 8),),
    ),
    "module used twice around a norm": lambda: (
        Function(lambda self, x: self.a(self.n(self.a(x).tanh())), a=nn.Linear(8, 8), n=nn.LayerNorm(8)),
        (_x(3, 8),),
    ),
    "weight used side by side": lambda: (
        Function(lambda self, x: (x.tanh() @ self.w) * (x.sin() @ self.w + self.b), w=_w(8, 8), b=_w(8)),
        (_x(3, 8),),
    ),
    "weight of a weight": lambda: (Function(_low_rank, u=_w(8, 2), v=_w(2, 8), w=_w(2, 8)), (_x(3, 8),)),
    "chunks": lambda: (
        Function(
            lambda self, x: self.b(torch.cat([p * (i + 1) for i, p in enumerate(self.a(x).chunk(3, -1))], -1)),
            a=nn.Linear(8, 9),
            b=nn.Linear(9, 2),
        ),
        (_x(3, 8),),
    ),
    "one chunk unused": lambda: (
        Function(lambda self, x: (self.w @ x).split(2)[1], w=_w(6, 3)),
        (_x(3, 8),),
    ),
    "frozen weight": lambda: (
        nn.Sequential(nn.Linear(8, 8).requires_grad_(False), nn.Linear(8, 2)),
        (_x(3, 8),),
    ),
    "unreached weight": lambda: (
        Function(lambda self, x: self.a(x), a=nn.Linear(8, 2), b=nn.Linear(8, 2)),
        (_x(3, 8),),
    ),
    "in place": lambda: (
        Function(_inplace, a=nn.Linear(8, 8), b=nn.Linear(8, 8), c=nn.Linear(8, 3)),
        (_x(3, 8),),
    ),
    "several inputs and outputs": lambda: (
        Function(_tuple, a=nn.Linear(8, 4), b=nn.Linear(8, 4), table=nn.Embedding(5, 4)),
        (_x(3, 8), torch.randn(3, 8), torch.tensor([0, 4, 4])),
    ),
    "input not used": lambda: (
        Function(lambda self, x, y: self.a(x), a=nn.Linear(8, 4)),
        (_x(3, 8), _x(3, 8)),
    ),
    "input is output": lambda: (Function(lambda self, x: (x, self.a(x)), a=nn.Linear(8, 4)), (_x(3, 8),)),
    "output of weights alone": lambda: (
        Function(lambda self, x: (x @ self.w, (self.w**2).sum(), self.w.sum()), w=_w(8, 4)),
        (_x(3, 8),),
    ),
    "no input with a gradient": lambda: (
        nn.Sequential(nn.Embedding(5, 8), Block()),
        (torch.tensor([[0, 4, 4]]),),
    ),
    "convolution and batch norm": lambda: (
        nn.Sequential(nn.Conv1d(4, 6, 3), nn.BatchNorm1d(6), nn.ReLU(), nn.Conv1d(6, 2, 1)),
        (_x(2, 4, 7),),
    ),
    "recurrent": lambda: (Function(lambda self, x: self.a(x)[0], a=nn.GRU(8, 4)), (_x(5, 2, 8),)),
    "attention module": lambda: (
        Function(lambda self, x: self.a(x, x, x)[0], a=nn.MultiheadAttention(8, 2, batch_first=True)),
        (_x(2, 3, 8),),
    ),
    "torch checkpoint": lambda: (
        Function(
            lambda self, x: self.c(checkpoint(self.b, self.a(x), use_reentrant=False)),
            a=Block(),
            b=Block(),
            c=Block(),
        ),
        (_x(2, 3, 8),),
    ),
    "recompute": lambda: (nn.Sequential(Block(), Recompute(Block()), Block()), (_x(2, 3, 8),)),
    "recompute in recompute": lambda: (
        nn.Sequential(Recompute(nn.Sequential(Block(), Recompute(Block()))), nn.Dropout(0.5)),
        (_x(2, 3, 8),),
    ),
}


def build(name: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """The module and its inputs, the same every time."""
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return CASES[name]()
    finally:
        torch.set_default_dtype(before)
