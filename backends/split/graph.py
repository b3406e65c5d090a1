"""Where an autograd graph can be cut into an input gradient and a weight gradient, on public torch API.

The *path* is every node from which a differentiable input can be reached. A node of the path that also leads
to weights off the path is a *fork*: the gradient that arrives at it is all that its weights' gradients need.
Its own backward can then run twice, once for the path and once for the weights, and as both times only the
half asked for is computed, nothing is computed twice. That holds where the two halves are separate kernels
(`PRODUCTS`); the weights of any other fork (norms, custom functions, ...) are cheap and get their gradient
along the path. So do weights used at two places of which one leads to the other: their gradients cannot be
told apart later.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from torch.autograd.graph import Node

# Backward nodes of matrix products and convolutions: one kernel for the input, another for the weight.
PRODUCTS = frozenset({"Addmm", "Mm", "Bmm", "Baddbmm", "Addbmm", "Addmv", "Mv", "Linear", "Convolution"})


@dataclass(frozen=True)
class Group:
    """Leaves (weights) whose gradients follow from the gradients that arrive at the same forks."""

    forks: tuple[Node, ...]
    leaves: tuple[Node, ...]


@dataclass(frozen=True)
class Cut:
    """A graph cut in two: what to do with the input gradient, and what is left for later."""

    reached: tuple[bool, ...]  # per input: can the roots reach it
    early: tuple[Node, ...]  # leaves whose gradients are made on the way to the inputs
    groups: tuple[Group, ...]  # the other leaves
    roots_off_path: frozenset[Node]  # forks of groups that are roots without a way to an input

    def forks(self) -> tuple[Node, ...]:
        """Every fork on the path that some group starts from."""
        found = dict.fromkeys(fork for group in self.groups for fork in group.forks)
        return tuple(fork for fork in found if fork not in self.roots_off_path)

    def leaves(self) -> tuple[Node, ...]:
        """Every weight that the roots lead to."""
        return (*self.early, *(leaf for group in self.groups for leaf in group.leaves))


def is_product(node: Node) -> bool:
    """Whether the node's input and weight gradients are separate kernels."""
    return node.name().partition("Backward")[0] in PRODUCTS


def cut(roots: Iterable[Node], inputs: Sequence[Node], *, separable: Callable[[Node], bool] = is_product) -> Cut:
    """Cut the graph under `roots` between the weights and `inputs` (the accumulation nodes of the inputs).

    `separable` says which forks can run their two halves apart at no cost.
    """
    roots = tuple(dict.fromkeys(roots))
    children = _children_first(roots)
    path = _path(children, frozenset(inputs))
    forks = _forks(roots, children, path)
    uses = _uses(forks)
    crossing = _crossing(children, path, uses)
    early: list[Node] = []
    grouped: dict[tuple[Node, ...], list[Node]] = {}
    for leaf, users in uses.items():
        if leaf in crossing or any(user in path and not separable(user) for user in users):
            early.append(leaf)
        else:
            grouped.setdefault(users, []).append(leaf)
    return Cut(
        tuple(node in children for node in inputs),
        tuple(early),
        tuple(Group(users, tuple(leaves)) for users, leaves in grouped.items()),
        frozenset(root for root in roots if root not in path),
    )


def _children_first(roots: Iterable[Node]) -> dict[Node, tuple[Node, ...]]:
    """Every node under the roots with its children, a child always before its parents."""
    children: dict[Node, tuple[Node, ...]] = {}
    ordered: dict[Node, tuple[Node, ...]] = {}
    stack = list(roots)
    while stack:
        node = stack[-1]
        if node in children:
            stack.pop()
            ordered[node] = children[node]
            continue
        below = tuple(child for child, _ in node.next_functions if child is not None)
        children[node] = below
        stack.extend(child for child in below if child not in children)
    return ordered


def _path(children: dict[Node, tuple[Node, ...]], inputs: frozenset[Node]) -> set[Node]:
    """Nodes from which an input can be reached, inputs among them."""
    path: set[Node] = set()
    for node, below in children.items():
        if node in inputs or any(child in path for child in below):
            path.add(node)
    return path


def _forks(
    roots: tuple[Node, ...], children: dict[Node, tuple[Node, ...]], path: set[Node]
) -> dict[Node, tuple[Node, ...]]:
    """Forks, each with the leaves that it leads to off the path; roots off the path count as forks."""
    leaves: dict[Node, tuple[Node, ...]] = {}
    forks: dict[Node, tuple[Node, ...]] = {}
    starts = set(roots)
    for node, below in children.items():
        found = dict.fromkeys(leaf for child in below if child not in path for leaf in leaves[child])
        if node in path:
            if found:
                forks[node] = tuple(found)
            continue
        leaves[node] = tuple(found) if below else (node,)
        if node in starts:
            forks[node] = leaves[node]
    return forks


def _uses(forks: dict[Node, tuple[Node, ...]]) -> dict[Node, tuple[Node, ...]]:
    """Leaves with the forks that lead to them."""
    uses: dict[Node, list[Node]] = {}
    for fork, leaves in forks.items():
        for leaf in leaves:
            uses.setdefault(leaf, []).append(fork)
    return {leaf: tuple(users) for leaf, users in uses.items()}


def _crossing(children: dict[Node, tuple[Node, ...]], path: set[Node], uses: dict[Node, tuple[Node, ...]]) -> set[Node]:
    """Leaves used at two forks of which one leads to the other along the path."""
    shared = {leaf: users for leaf, users in uses.items() if len(users) > 1}
    if not shared:
        return set()
    bit = {fork: 1 << i for i, fork in enumerate({user for users in shared.values() for user in users})}
    below_of: dict[Node, int] = {}
    for node, below in children.items():
        if node in path:
            mask = 0
            for child in below:
                if child in path:
                    mask |= below_of[child] | bit.get(child, 0)
            below_of[node] = mask
    crossing: set[Node] = set()
    for leaf, users in shared.items():
        together = sum(bit[user] for user in users)
        if any(below_of.get(user, 0) & together for user in users):
            crossing.add(leaf)
    return crossing
