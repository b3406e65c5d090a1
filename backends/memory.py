"""Bytes that tensors take: of the saved tensors in flight on a CPU, of the whole device on CUDA."""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor


def bytes_of(tensors: Iterable[Tensor], outside: Iterable[int] = ()) -> int:
    """Bytes of the distinct storages of the tensors, without those at the addresses `outside`."""
    seen = set(outside)
    total = 0
    for tensor in tensors:
        storage = local(tensor).untyped_storage()
        address = storage.data_ptr()
        if address not in seen:
            seen.add(address)
            total += storage.nbytes()
    return total


def addresses_of(module: torch.nn.Module) -> frozenset[int]:
    """Addresses of the storages of a module's parameters and buffers, which are no activations."""
    tensors = [*module.parameters(), *module.buffers()]
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
