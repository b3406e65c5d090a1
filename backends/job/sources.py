"""Where a job's stages, data and loss come from: the built-in decoder, or a user's file."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import torch
from torch import nn

from pipesim.backends.execute.failures import one_line
from pipesim.backends.job.tiny import Shape, next_token_loss, tiny_stage
from pipesim.backends.pipeline import Modules
from pipesim.backends.stage import LossFunction
from pipesim.backends.trees import Tree
from pipesim.errors import PipesimError

DTYPES = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16}


@dataclass(eq=False)
class BadModelSource(PipesimError):
    """A `--model` that gives no stages."""

    name: str
    reason: str

    def __str__(self) -> str:
        return (
            f"--model {self.name}: {self.reason}; expected tiny-llama, or my_module.py:stages with functions "
            "stages(count), batch(samples, step) and loss(outputs, targets)"
        )


class Source(Protocol):
    """What a job is made of; sent to the processes, which build from it."""

    def modules(self, stages: int) -> Modules:
        """The stages of the model, or a function that makes one."""
        ...

    def batch(self, samples: int, step: int) -> tuple[Tree, Tree]:
        """Inputs and targets of one step, the same on all ranks."""
        ...

    def loss(self) -> LossFunction: ...


@dataclass(frozen=True)
class TinySource:
    """The built-in decoder on random tokens."""

    shape: Shape = Shape()
    seq: int = 64
    seed: int = 0
    dtype: str = "fp32"

    def modules(self, stages: int) -> Modules:
        if self.shape.layers < stages:
            raise BadModelSource("tiny-llama", f"it has {self.shape.layers} layers, which do not fill {stages} stages")
        return lambda stage: tiny_stage(self.shape, stage, stages, seed=self.seed, dtype=DTYPES[self.dtype])

    def batch(self, samples: int, step: int) -> tuple[Tree, Tree]:
        generator = torch.Generator().manual_seed(self.seed * 7919 + step)
        tokens = torch.randint(self.shape.vocabulary, (samples, self.seq + 1), generator=generator)
        return tokens[:, :-1], tokens[:, 1:]

    def loss(self) -> LossFunction:
        return next_token_loss


@dataclass(frozen=True)
class FileSource:
    """A user's `my_module.py:stages`; `batch` and `loss` are functions of the same file."""

    path: str
    function: str
    seed: int = 0

    def modules(self, stages: int) -> Modules:
        torch.manual_seed(self.seed)
        made: Any = self._function(self.function)(stages)
        if callable(made) and not isinstance(made, nn.Module):
            build: Callable[[int], nn.Module] = made
            return build
        if not isinstance(made, Sequence) or not all(isinstance(one, nn.Module) for one in made):
            raise BadModelSource(self.name, f"{self.function}({stages}) gave a {type(made).__name__}, not modules")
        if len(made) != stages:
            raise BadModelSource(self.name, f"{self.function}({stages}) gave {len(made)} stages, not {stages}")
        return list(made)

    def batch(self, samples: int, step: int) -> tuple[Tree, Tree]:
        made: tuple[Tree, Tree] = self._function("batch")(samples, step)
        return made

    def loss(self) -> LossFunction:
        found: LossFunction = self._function("loss")
        return found

    @property
    def name(self) -> str:
        return f"{self.path}:{self.function}"

    def _function(self, name: str) -> Any:
        found = getattr(_load(self.path, self.name), name, None)
        if not callable(found):
            raise BadModelSource(self.name, f"it has no function {name}")
        return found


_loaded: dict[str, ModuleType] = {}


def _load(path: str, name: str) -> ModuleType:
    if path not in _loaded:
        spec = importlib.util.spec_from_file_location(f"pipesim_stages_{Path(path).stem}", path)
        if spec is None or spec.loader is None or not Path(path).is_file():
            raise BadModelSource(name, f"there is no file {path}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        sys.path.insert(0, str(Path(path).resolve().parent))
        try:
            spec.loader.exec_module(module)
        except Exception as error:  # whatever a stranger's file does when it is run
            raise BadModelSource(name, f"it cannot be loaded ({one_line(error)})") from error
        _loaded[path] = module
    return _loaded[path]


def find_source(name: str, *, seq: int = 64, seed: int = 0, dtype: str = "fp32") -> Source:
    """The source that `--model` names. Raises BadModelSource."""
    if dtype not in DTYPES:
        raise BadModelSource(name, f"no type {dtype!r} among {', '.join(DTYPES)}")
    if name == "tiny-llama":
        return TinySource(Shape(positions=max(1024, seq)), seq, seed, dtype)
    path, colon, function = name.rpartition(":")
    if colon and path.endswith(".py"):
        source = FileSource(str(Path(path).resolve()), function, seed)
        for needed in (function, "batch", "loss"):
            source._function(needed)
        return source
    raise BadModelSource(name, "no such model")
