"""Write a running job's weights as a Hugging Face folder: each pipeline rank its own layers."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from pipesim.backends.huggingface.folder import CONFIG, INDEX, SINGLE, has_weights
from pipesim.backends.model.config import DecoderConfig
from pipesim.files import CannotWrite, write_atomically

MOST_BYTES = 5 << 30  # of one file, as the `transformers` library cuts them

Plan = dict[str, list[str]]  # names of tensors by file


def export(
    path: str | Path,
    config: DecoderConfig,
    weights: Mapping[str, nn.Parameter],
    *,
    writes: bool,
    dtype: torch.dtype | None = None,
    most_bytes: int = MOST_BYTES,
) -> None:
    """Write the folder; every rank of the job calls this, and all who hold parts of a weight at the same time.

    weights: of this rank's stages, by their names in a checkpoint. writes: whether this rank is the one that
    writes them, of all that hold the same layers. dtype: of what is written, if not that of the weights.
    Raises CannotWrite.
    """
    place = Path(path)
    if has_weights(place):
        raise CannotWrite(str(path), "it holds a checkpoint already; give another folder")
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWrite(str(path), error.strerror or str(error)) from None
    sizes = {name: weight.numel() * (dtype or weight.dtype).itemsize for name, weight in weights.items()}
    everyone: list[dict[str, int]] = [{}] * dist.get_world_size()
    dist.all_gather_object(everyone, sizes if writes else {})
    plans = plan_files(everyone, most_bytes)
    _write_mine(place, weights, plans[dist.get_rank()], dtype)
    dist.barrier()  # the index names what is there
    if dist.get_rank() == 0:
        kind = dtype or next(weight.dtype for weight in weights.values())
        _write_index(place, plans, sum(sum(sizes.values()) for sizes in everyone), config, kind)
    dist.barrier()


def plan_files(sizes: Sequence[Mapping[str, int]], most_bytes: int) -> list[Plan]:
    """Files of each rank: none larger than `most_bytes` unless one tensor is, each tensor in one of them."""
    groups: list[tuple[int, list[str]]] = []
    taken: set[str] = set()
    for rank, mine in enumerate(sizes):
        room = 0
        for name, size in mine.items():
            if name in taken:
                continue  # a tied head: the embedding is written where it is
            taken.add(name)
            if size > room or not groups or groups[-1][0] != rank:
                groups.append((rank, []))
                room = most_bytes
            groups[-1][1].append(name)
            room -= size
    plans: list[Plan] = [{} for _ in sizes]
    for number, (rank, names) in enumerate(groups, 1):
        file = SINGLE if len(groups) == 1 else f"model-{number:05}-of-{len(groups):05}.safetensors"
        plans[rank][file] = names
    return plans


def _write_mine(place: Path, weights: Mapping[str, nn.Parameter], plan: Plan, dtype: torch.dtype | None) -> None:
    """Gather every weight whole, one after the other; write each file when its last one is there."""
    file_of = {name: file for file, names in plan.items() for name in names}
    held: dict[str, Tensor] = {}
    for name, weight in weights.items():
        value = weight.full_tensor() if isinstance(weight, DTensor) else weight
        if name not in file_of:
            continue
        held[name] = value.detach().to("cpu", dtype or value.dtype).contiguous()
        file = file_of[name]
        if all(one in held for one in plan[file]):
            _write(place / file, {one: held.pop(one) for one in plan[file]})


def _write(path: Path, tensors: Mapping[str, Tensor]) -> None:
    temporary = path.with_name(f".{path.name}.part")
    try:
        save_file(dict(tensors), temporary, metadata={"format": "pt"})
        os.replace(temporary, path)
    except OSError as error:
        raise CannotWrite(str(path), error.strerror or str(error)) from None
    finally:
        temporary.unlink(missing_ok=True)


def _write_index(place: Path, plans: Sequence[Plan], size: int, config: DecoderConfig, dtype: torch.dtype) -> None:
    file_of = {name: file for plan in plans for file, names in plan.items() for name in names}
    if set(file_of.values()) != {SINGLE}:
        index: dict[str, Any] = {"metadata": {"total_size": size}, "weight_map": dict(sorted(file_of.items()))}
        write_atomically(place / INDEX, json.dumps(index, indent=2) + "\n")
    raw = dict(config.raw) | {"dtype": str(dtype).removeprefix("torch.")}
    write_atomically(place / CONFIG, json.dumps(raw, indent=2) + "\n")
