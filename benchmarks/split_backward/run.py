"""What a split backward costs: whole, input gradient and weight gradient of four transformer blocks.

Prints medians in milliseconds on one core, and the bytes of saved tensors before and after the input gradient.
Usage: python benchmarks/split_backward/run.py [--width 512] [--tokens 128] [--blocks 4]
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch import Tensor, nn

from pipesim.backends.job.tiny import Shape, TinyStage
from pipesim.backends.memory import addresses_of, bytes_of
from pipesim.backends.split.saved import SavedTensors
from pipesim.backends.split.strategies import Graph, Strategy, by_graph, graph_of, two_pass, whole

REPEATS = 15


def forward(module: nn.Module, x: Tensor) -> tuple[Graph, Tensor]:
    """One forward, its saved tensors kept apart."""
    saved = SavedTensors()
    leaf = x.detach().requires_grad_()
    with saved.hooks():
        y = module(leaf)
    return graph_of([y], [leaf], saved), torch.ones_like(y)


def measure(module: nn.Module, x: Tensor, strategy: Strategy) -> tuple[float, float]:
    """Milliseconds of the two halves."""
    halves = []
    for _ in range(REPEATS):
        graph, gradient = forward(module, x)
        begun = time.perf_counter()
        later = strategy(graph, [gradient])
        between = time.perf_counter()
        later()
        halves.append((between - begun, time.perf_counter() - between))
    first, second = (statistics.median(one) * 1e3 for one in zip(*halves[2:], strict=True))
    return first, second


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--width", type=int, default=512)
    options.add_argument("--tokens", type=int, default=128)
    options.add_argument("--blocks", type=int, default=4)
    given = options.parse_args()
    torch.set_num_threads(1)
    shape = Shape(hidden=given.width, heads=8, ffn=given.width * 8 // 3)
    module = TinyStage(shape, given.blocks, first=False, last=False)
    x = torch.randn(1, given.tokens, given.width)
    print(f"{given.blocks} blocks, width {given.width}, {given.tokens} tokens; milliseconds")
    print(f"{'strategy':12}{'I':>8}{'W':>8}{'I + W':>8}")
    for name, strategy in (("whole", whole), ("graph", by_graph), ("two_pass", two_pass)):
        first, second = measure(module, x, strategy)
        print(f"{name:12}{first:8.1f}{second:8.1f}{first + second:8.1f}")
    graph, gradient = forward(module, x)
    assert graph.saved is not None
    outside = addresses_of(module.parameters())
    before = bytes_of(graph.saved.tensors(), outside)
    later = by_graph(graph, [gradient])
    after, waiting = bytes_of(graph.saved.tensors(), outside), bytes_of(later.tensors())
    print(
        f"saved {before / 1e6:.1f} MB; after I {after / 1e6:.1f} MB, and {waiting / 1e6:.1f} MB of gradients that wait"
    )


if __name__ == "__main__":
    main()
