"""Bytes that tensors take: of the saved tensors in flight on a CPU, of the whole device on CUDA."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor


class HeldBytes(NamedTuple):
    """What microbatches in flight keep: tensors of the forward, and gradients that wait for the weights'."""

    saved: int = 0
    waiting: int = 0

    @property
    def total(self) -> int:
        return self.saved + self.waiting


def bytes_of(tensors: Iterable[Tensor], outside: Iterable[int] = ()) -> int:
    """Bytes that the tensors keep alive, without storages at the addresses `outside`.

    Of a storage only the parts that are looked at count: a microbatch is a part of its batch.
    """
    parts: dict[int, dict[tuple[int, int], int]] = {}
    whole: dict[int, int] = {}
    for tensor in tensors:
        here = local(tensor)
        storage = here.untyped_storage()
        address = storage.data_ptr()
        whole[address] = storage.nbytes()
        parts.setdefault(address, {})[int(here.storage_offset()), here.nbytes] = here.nbytes
    left_out = set(outside)
    return sum(min(whole[at], sum(found.values())) for at, found in parts.items() if at not in left_out)


def addresses_of(tensors: Iterable[Tensor]) -> frozenset[int]:
    """Addresses of the storages of tensors, such as a module's weights, which are no activations."""
    return frozenset(local(tensor).untyped_storage().data_ptr() for tensor in tensors)


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor that is spread over ranks; any other tensor itself."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def device_peak_bytes(device: torch.device) -> int:
    """Largest number of bytes allocated on a CUDA device since the last `reset_device_peak`."""
    return torch.cuda.max_memory_allocated(device)


def reset_device_peak(device: torch.device) -> None:
    """Count the device's peak from now."""
    torch.cuda.reset_peak_memory_stats(device)
