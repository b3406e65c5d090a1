"""The storage that `torch.distributed.checkpoint` writes to and reads from: safetensors files and one JSON file.

Torch's own file storage keeps its metadata as a pickle, and its safetensors storage keeps no checksums and has no
moment at which a checkpoint becomes one.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from pipesim.backends.checkpoint import folder
from pipesim.backends.checkpoint.description import Description, File, Part, Tensor, dtype_name

MOST_BYTES = 512 << 20  # of one file, unless one part is larger: so much more memory does writing take


@dataclass(frozen=True)
class _Place:
    """Where a rank writes."""

    folder: Path
    rank: int


@dataclass(frozen=True)
class _Stored:
    """A part that was written, and the file it is in."""

    part: Part
    dtype: str
    file: File


class FolderWriter(StorageWriter):
    """Writes one checkpoint. state: what is in it beside tensors. owner: on the coordinator, of the folder."""

    def __init__(
        self, root: Path, step: int, state: Mapping[str, Any], *, owner: str | None = None, most_bytes: int = MOST_BYTES
    ) -> None:
        self.root, self.step, self.state, self.owner, self.most_bytes = root, step, state, owner, most_bytes
        self.unfinished: Path | None = None  # on the coordinator

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        self.unfinished = None

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        pass

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        self.unfinished = folder.begin(self.root, self.step)
        return [replace(plan, storage_data=_Place(self.unfinished, rank)) for rank, plan in enumerate(plans)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        place: _Place = plan.storage_data
        results: list[WriteResult] = []
        for number, items in enumerate(_by_file(plan.items, self.most_bytes)):
            results += _write_file(place.folder, f"rank-{place.rank:05}-{number:03}.safetensors", items, planner)
        return _done(results)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        assert self.unfinished is not None
        tensors: dict[str, Tensor] = {}
        files: dict[str, File] = {}
        for result in (result for of_rank in results for result in of_rank):
            stored: _Stored = result.storage_data
            whole = metadata.state_dict_metadata[result.index.fqn]
            assert isinstance(whole, TensorStorageMetadata)
            entry = tensors.setdefault(result.index.fqn, Tensor(dtype=stored.dtype, shape=list(whole.size), parts=[]))
            entry.parts.append(stored.part)
            files[stored.part.file] = stored.file
        if self.owner is not None:
            folder.require_owner(self.root, self.owner)
        folder.commit(
            self.unfinished,
            Description(step=self.step, state=dict(self.state), tensors=dict(sorted(tensors.items())), files=files),
        )
        self.unfinished = None

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return True


def _by_file(items: list[WriteItem], most_bytes: int) -> Iterator[list[WriteItem]]:
    held: list[WriteItem] = []
    size = 0
    for item in items:
        assert item.type != WriteItemType.BYTE_IO, f"{item.index.fqn} is not a tensor"
        assert item.tensor_data is not None
        own = item.tensor_data.chunk.sizes.numel() * item.tensor_data.properties.dtype.itemsize
        if held and size + own > most_bytes:
            yield held
            held, size = [], 0
        held.append(item)
        size += own
    if held:
        yield held


def _write_file(place: Path, name: str, items: list[WriteItem], planner: SavePlanner) -> list[WriteResult]:
    parts: dict[str, Part] = {}
    values: dict[str, torch.Tensor] = {}
    for number, item in enumerate(items):
        assert item.tensor_data is not None
        chunk, key = item.tensor_data.chunk, f"{number}:{item.index.fqn}"
        value: torch.Tensor = planner.resolve_data(item)  # type: ignore[assignment]
        values[key] = value.detach().cpu().contiguous()
        parts[key] = Part(offsets=list(chunk.offsets), sizes=list(chunk.sizes), file=name, key=key)
    data = save(values)
    folder.write_synced(place / name, data)
    file = File(size=len(data), sha256=hashlib.sha256(data).hexdigest())
    return [
        WriteResult(item.index, values[key].nbytes, _Stored(parts[key], dtype_name(values[key].dtype), file))
        for item, key in zip(items, parts, strict=True)
    ]


class FolderReader(StorageReader):
    """Reads a checkpoint whose files have been checked: of each part only what this rank wants."""

    def __init__(self, place: Path, description: Description) -> None:
        self.place, self.description = place, description
        self._parts = {
            MetadataIndex(name, part.offsets): part
            for name, tensor in description.tensors.items()
            for part in tensor.parts
        }

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        pass

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        return Metadata({name: _metadata(tensor) for name, tensor in self.description.tensors.items()})

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        pass

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        by_file: dict[str, list[ReadItem]] = {}
        for item in plan.items:
            by_file.setdefault(self._parts[item.storage_index].file, []).append(item)
        for name, items in by_file.items():
            with safe_open(self.place / name, framework="pt") as file:
                for item in items:
                    self._read(file, item, planner)
        return _done(None)

    def _read(self, file: Any, item: ReadItem, planner: LoadPlanner) -> None:
        key = self._parts[item.storage_index].key
        ranges = tuple(
            slice(begin, begin + length) for begin, length in zip(item.storage_offsets, item.lengths, strict=True)
        )
        value = file.get_slice(key)[ranges] if ranges else file.get_tensor(key)
        target = planner.resolve_tensor(item).detach()
        target.copy_(value)
        planner.commit_tensor(item, target)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return True


def _metadata(tensor: Tensor) -> TensorStorageMetadata:
    chunks = [ChunkStorageMetadata(torch.Size(part.offsets), torch.Size(part.sizes)) for part in tensor.parts]
    return TensorStorageMetadata(TensorProperties(dtype=tensor.torch_dtype), torch.Size(tensor.shape), chunks)


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future
