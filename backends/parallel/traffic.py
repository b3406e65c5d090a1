"""What a rank really sends: every collective and message seen as torch dispatches it, by dimension and operation."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from pipesim.backends.parallel.places import dimension_of
from pipesim.costs.communication.traffic import Key, Traffic, Volume

# Operation of torch's dispatcher -> our word, and where the whole tensor is among its arguments.
_FUNCTIONAL = {"all_reduce": "all-reduce", "all_reduce_": "all-reduce", "reduce_scatter_tensor": "reduce-scatter"}
_WRAPPED = ("DTensor", "AsyncCollectiveTensor")  # spread over ranks, or under way: the second has no public name
_GATHER = "all_gather_into_tensor"
_EAGER = {
    "allreduce_": ("all-reduce", 0),
    "_allgather_base_": ("all-gather", 0),
    "_reduce_scatter_base_": ("reduce-scatter", 1),
    "send": ("send", 0),
}


@dataclass
class Collective:
    """One operation: its volume, when it was issued, and how long the rank stood still for it, in seconds."""

    key: Key
    bytes: float
    issued_s: float
    over_s: float = 0.0
    exposed_s: float = 0.0


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Context that notes every collective of this process; for one step, as it slows each operation down.

    Groups that `places` has not made are of the dimension `job`.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.collectives: list[Collective] = []
        self._pending: dict[int, Collective] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(kind.__name__ in _WRAPPED for kind in types):
            return NotImplemented  # come back with what is in them
        space, name = func.namespace, func._schema.name.split("::")[1]
        if space == "_c10d_functional" and name == "wait_tensor":
            return self._waited(func, args)
        found = self._noted(space, name, args)
        begun = time.perf_counter()
        result = func(*args, **(kwargs or {}))
        if found is not None:
            found.issued_s, found.over_s = begun, time.perf_counter()
            found.exposed_s = found.over_s - begun
            if isinstance(result, Tensor):
                self._pending[result.untyped_storage().data_ptr()] = found
        return result

    def _waited(self, func: Any, args: Any) -> Any:
        begun = time.perf_counter()
        result = func(*args)
        found = self._pending.pop(args[0].untyped_storage().data_ptr(), None)
        if found is not None:
            found.over_s = time.perf_counter()
            found.exposed_s += found.over_s - begun
        return result

    def _noted(self, space: str, name: str, args: Any) -> Collective | None:
        if space == "_c10d_functional" and name in _FUNCTIONAL:
            return self._add(_FUNCTIONAL[name], args[0].nbytes, args[-1])
        if space == "_c10d_functional" and name == _GATHER:
            return self._add("all-gather", args[0].nbytes * args[1], args[2])
        if space == "c10d" and name in _EAGER:
            word, place = _EAGER[name]
            tensors = args[place] if isinstance(args[place], list | tuple) else [args[place]]
            group = next(arg for arg in args if isinstance(arg, torch.ScriptObject))
            label = "" if word == "send" else dist.ProcessGroup.unbox(group).group_name
            return self._add(word, sum(tensor.nbytes for tensor in tensors), label)
        return None

    def _add(self, word: str, size: float, group: str) -> Collective:
        dimension = "pipeline" if word == "send" else dimension_of(group)
        self.collectives.append(Collective((dimension, word), float(size), 0.0))
        return self.collectives[-1]

    def traffic(self) -> Traffic:
        """Counts and bytes by dimension and operation."""
        return total(self.collectives)


def total(collectives: Sequence[Collective]) -> Traffic:
    """Counts and bytes by dimension and operation."""
    found: dict[Key, Volume] = {}
    for one in collectives:
        found[one.key] = found.get(one.key, Volume()) + Volume(1, one.bytes)
    return found
