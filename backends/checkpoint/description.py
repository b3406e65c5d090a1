"""What is in a checkpoint, as JSON: tensors and where their parts lie, files and their checksums, the job's state.

A checkpoint is a folder of safetensors files and `checkpoint.json`. Nothing in it is a pickle.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipesim.files import CannotRead, read_text

FILE = "checkpoint.json"
_BLOCK = 1 << 22

_Size = Annotated[int, Field(ge=0)]
_FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]  # of this folder


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Part(_Strict):
    """A block of a tensor: where it begins, its lengths, and under which key of which file it is."""

    offsets: list[_Size]
    sizes: list[_Size]
    file: _FileName
    key: str


class Tensor(_Strict):
    """A whole tensor, in parts that cover it."""

    dtype: str
    shape: list[_Size]
    parts: list[Part]

    @property
    def torch_dtype(self) -> torch.dtype:
        """Raises CannotRead for a name that is no type of torch."""
        found = getattr(torch, self.dtype, None)
        if not isinstance(found, torch.dtype):
            raise CannotRead(FILE, f"no type {self.dtype!r}")
        return found


class File(_Strict):
    """Length and checksum of a file."""

    size: _Size
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Description(_Strict):
    """A checkpoint. step: steps done when it was written. state: all that is not a tensor."""

    format: Literal["pipesim-checkpoint"] = "pipesim-checkpoint"
    version: Literal[1] = 1
    step: _Size
    state: dict[str, Any]
    tensors: dict[str, Tensor]
    files: dict[_FileName, File]


def to_text(description: Description) -> str:
    """JSON with a checksum of itself."""
    content = description.model_dump()
    return json.dumps({"sha256": _digest(content), "content": content}, indent=1) + "\n"


def read_description(folder: Path) -> Description:
    """Raises CannotRead for a file that is missing, damaged, of another program, or of a newer version."""
    path = folder / FILE
    try:
        found = json.loads(read_text(path))
    except (json.JSONDecodeError, RecursionError) as error:
        raise CannotRead(str(path), f"damaged: {' '.join(str(error).split())}") from None
    if not isinstance(found, Mapping) or set(found) != {"sha256", "content"}:
        raise CannotRead(str(path), "not a checkpoint of pipesim")
    if found["sha256"] != _digest(found["content"]):
        raise CannotRead(str(path), "damaged: its checksum is another")
    try:
        made = Description.model_validate(found["content"])
    except ValidationError as error:
        first = error.errors()[0]
        raise CannotRead(str(path), f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    _require_whole(made, path)
    return made


def _require_whole(description: Description, path: Path) -> None:
    for name, tensor in description.tensors.items():
        held = sum(math.prod(part.sizes) for part in tensor.parts)
        if held != math.prod(tensor.shape) or any(part.file not in description.files for part in tensor.parts):
            raise CannotRead(str(path), f"{name} has parts that do not make a whole")


def check_file(folder: Path, name: str, expected: File) -> None:
    """Raises CannotRead where a file is not what was written."""
    path = folder / name
    try:
        size = path.stat().st_size
        if size != expected.size:
            raise CannotRead(str(path), f"damaged: {size} bytes, {expected.size} were written")
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    except OSError as error:
        raise CannotRead(str(path), error.strerror or str(error)) from None
    if digest.hexdigest() != expected.sha256:
        raise CannotRead(str(path), "damaged: its checksum is another")


def dtype_name(dtype: torch.dtype) -> str:
    """`float64` of `torch.float64`."""
    return str(dtype).removeprefix("torch.")


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
