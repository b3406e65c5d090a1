"""NCCL's own model of a collective's time, with its constants (`catalog/nccl.yaml`).

For every algorithm (ring, tree, in-switch NVLS) and protocol (LL, LL128, Simple) it takes a latency and a
bandwidth, and picks the fastest, as the library does when it starts a collective. It is optimistic by 10 to
40 % on some systems; `collectives.py` corrects it by measured tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from pipesim.costs.catalog_files import read_catalogue

Operation = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce"]
PROTOCOLS = ("LL", "LL128", "Simple")


@dataclass(frozen=True, kw_only=True)
class Ring:
    """What NCCL sees of a group of ranks."""

    ranks: int
    nodes: int
    per_node: int
    """Most ranks in one node."""
    architecture: str
    """"volta", "ampere", "hopper" or "blackwell": whose constants hold."""
    nvlink: bool
    """Links in the node are NVLink (or the like), not PCIe."""
    bus_bytes_per_s: float
    """Into and out of one rank inside its node, all channels."""
    net_bytes_per_s: float
    """Into and out of one node for all of its ranks together."""
    hops: float = 1.0
    """Factor on the latencies of network hops."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One algorithm and protocol and the time that it takes."""

    seconds: float
    algorithm: str
    protocol: str


def fastest(operation: Operation, size_bytes: float, group: Ring) -> Choice:
    """What NCCL would pick for a message, in nccl-tests' sizes (all-gather and reduce-scatter: the whole array)."""
    return min(choices(operation, size_bytes, group), key=lambda choice: choice.seconds)


def choices(operation: Operation, size_bytes: float, group: Ring) -> Iterator[Choice]:
    """Every algorithm and protocol that can run it."""
    if operation == "all_to_all":
        yield _all_to_all(size_bytes, group)
        return
    for index, protocol in enumerate(PROTOCOLS):
        if protocol == "LL128" and not group.nvlink:
            continue  # its 128-byte stores are atomic over NVLink only
        yield Choice(seconds=_ring(operation, size_bytes, group, index), algorithm="ring", protocol=protocol)
        if operation == "all_reduce":
            yield Choice(seconds=_tree(size_bytes, group, index), algorithm="tree", protocol=protocol)
    if _has_nvls(operation, group):
        yield Choice(seconds=_nvls(operation, size_bytes, group), algorithm="nvls", protocol="Simple")


def _ring(operation: Operation, size: float, group: Ring, protocol: int) -> float:
    n = group.ranks
    steps = {"all_reduce": 2 * (n - 1), "all_gather": n - 1, "reduce_scatter": n - 1}.get(operation, n)
    table, arch, spread = _constants(), _arch(group), group.nodes > 1
    hop = table["hop_us"]["nvlink" if group.nvlink else "pcie"]["ring"][protocol]
    net_hop = table["hop_us"]["net"]["ring"][protocol] * group.hops
    over_net = (2 if operation == "all_reduce" else 1) * (group.nodes - 1) if spread else 0
    if spread:
        hop = max(hop, table["net_overhead_us"] * (3 if protocol == 2 else 1))
    latency = table["base_us"]["ring"][protocol] + (steps - over_net) * hop + over_net * net_hop
    if operation == "all_reduce" and protocol == 2 and spread and size / (arch["channels"][1] * n) >= 64:
        latency *= 1.4
    bus = min(group.bus_bytes_per_s, group.net_bytes_per_s) if spread else group.bus_bytes_per_s
    if protocol == 0:
        bus = min(_by_nodes(arch["ll"], group) * 1e9, bus / 2)
    elif protocol == 1:
        bus *= min(0.92, arch["ring_ll128"] / arch["channel"][spread])
    moved = steps / n if operation in ("all_reduce", "all_gather", "reduce_scatter") else 1.0
    return float(latency * 1e-6 + size * moved / bus)


def _tree(size: float, group: Ring, protocol: int) -> float:
    table, arch, spread = _constants(), _arch(group), group.nodes > 1
    hop = table["hop_us"]["nvlink" if group.nvlink else "pcie"]["tree"][protocol]
    net_hop = table["hop_us"]["net"]["tree"][protocol] * group.hops
    depth = math.floor(math.log2(group.nodes)) if spread else 0
    latency = table["base_us"]["tree"][protocol] + 2 * ((group.per_node - 1) * hop + depth * net_hop)
    bus = group.bus_bytes_per_s
    if spread:  # with two nodes the tree is a line: each sends the array once, not twice
        bus = min(bus, group.net_bytes_per_s * (2 if group.nodes == 2 else 1))
    channel = arch["channel"][spread]
    bus *= min(0.92, _by_nodes(arch["tree"], group) / channel)
    if protocol == 0:
        bus = min(bus / 3.8, _by_nodes(arch["ll"], group) * 1e9)
    elif protocol == 1:
        bus = min(bus * (120 / 128 if spread else 7 / 9), bus * _by_nodes(arch["tree_ll128"], group) / channel)
    correction = table["tree_correction"][PROTOCOLS[protocol]]
    bus *= correction[min(max(int(math.log2(max(size, 64) / 64)), 0), len(correction) - 1)]
    return float(latency * 1e-6 + 2 * size / bus)


def _nvls(operation: Operation, size: float, group: Ring) -> float:
    table, arch, spread = _constants(), _arch(group), group.nodes > 1
    share = arch["nvls_channel"] * arch["channels"][1] / (arch["channel"][0] * arch["channels"][0])
    local = group.bus_bytes_per_s * share * arch["nvls"] * (group.per_node - 1) / group.per_node
    n, k = group.ranks, group.per_node
    latency = table["hop_us"]["nvlink"]["nvls"][2]
    if operation != "all_reduce":
        return float(latency * 1e-6 + size / (local * k / (k - 1)))
    bus = 2 * local
    if spread:
        latency += 2 * math.floor(math.log2(group.nodes)) * table["hop_us"]["net"]["nvls"][2] * group.hops
        cap = _by_nodes(arch["nvls_tree"], group) / arch["channel"][1]
        bus = min(bus, group.net_bytes_per_s * (2 if group.nodes == 2 else 1) * min(cap, 1.0))
    return float(latency * 1e-6 + size * 2 * (n - 1) / n / bus)


def _all_to_all(size: float, group: Ring) -> Choice:
    """A send and a receive with every other rank at once; NCCL has no model of it, so bytes over bandwidth."""
    table, n, k = _constants(), group.ranks, group.per_node
    hop = table["hop_us"]["nvlink" if group.nvlink else "pcie"]["ring"][2]
    seconds = table["base_us"]["ring"][0] * 1e-6 + size * (k - 1) / n / group.bus_bytes_per_s
    if group.nodes > 1:
        net_hop = table["hop_us"]["net"]["ring"][2] * group.hops
        messages = min(group.nodes - 1, 8) * net_hop + (n - k) * hop / 8  # eight in flight, the rest follow
        outside = size * (n - k) / n * k / group.net_bytes_per_s
        seconds = max(seconds, outside) + messages * 1e-6
    return Choice(seconds=seconds, algorithm="pairs", protocol="Simple")


def _has_nvls(operation: Operation, group: Ring) -> bool:
    """The switch reduces within a node; between nodes only all-reduce goes on from there, by a tree."""
    arch = _arch(group)
    if operation == "all_reduce" or (operation in ("all_gather", "reduce_scatter") and group.nodes == 1):
        return bool(group.nvlink and arch["nvls"] and group.per_node >= arch["nvls_ranks"])
    return False


def _by_nodes(values: list[float], group: Ring) -> float:
    return values[min(group.nodes, 3) - 1]


def _arch(group: Ring) -> dict[str, Any]:
    entry: dict[str, Any] = _constants()["architectures"][group.architecture]
    return entry


@lru_cache(maxsize=1)
def _constants() -> dict[str, Any]:
    return read_catalogue("nccl.yaml")
