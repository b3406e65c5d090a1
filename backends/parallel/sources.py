"""What is trained under a layout: a decoder on a text, or a user's own stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import nn

from pipesim.backends.data.samples import Samples, samples_of
from pipesim.backends.data.tokens import built_in_text, load_tokenizer
from pipesim.backends.execute.wiring import Tie, find_ties
from pipesim.backends.huggingface.load import stored_weights
from pipesim.backends.job.sources import FileSource
from pipesim.backends.model.config import DecoderConfig
from pipesim.backends.model.stage import check_length, stages_of
from pipesim.backends.parallel.decoders import decoder_loss, decoder_stages, decoder_ties, first_weights
from pipesim.backends.parallel.places import Places, of_stages
from pipesim.backends.parallel.tensor import check_tensor_parallel
from pipesim.backends.pipeline import module_of
from pipesim.backends.stage import LossFunction
from pipesim.backends.trees import Tree
from pipesim.costs.layouts.layout import BadLayout, Layout
from pipesim.files import read_text

WEIGHTS = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.float32}
COMPUTE = {"bf16": torch.bfloat16}  # mixed precision: the weights stay as they are


@dataclass(frozen=True)
class Parts:
    """A model in stages on this rank."""

    build: Callable[[int], nn.Module]
    loss: LossFunction
    ties: Sequence[Tie]


class ParallelSource(Protocol):
    """What a job is made of; sent to the processes, which build from it."""

    @property
    def dtype(self) -> str:
        """fp32, fp64 or bf16 (mixed)."""
        ...

    @property
    def tokens(self) -> int:
        """Tokens of one sample."""
        ...

    @property
    def seed(self) -> int:
        """Of weights and data."""
        ...

    def check(self, layout: Layout, stages: int) -> None:
        """Raise what is wrong before any process starts."""
        ...

    def parts(self, places: Places, stages: int, device: torch.device) -> Parts: ...

    def batch(self, samples: int, step: int) -> tuple[Tree, Tree]:
        """Inputs and targets of one step of the whole job, the same on all ranks."""
        ...


@dataclass(frozen=True)
class DecoderSource:
    """A decoder on a text. folder: of its weights, else first weights by the seed. text: a file, or None."""

    config: DecoderConfig
    seq: int = 64
    seed: int = 0
    dtype: str = "fp32"
    folder: str | None = None
    text: str | None = None
    tokenizer: str | None = None

    @property
    def tokens(self) -> int:
        return self.seq

    @cached_property
    def samples(self) -> Samples:
        """Of the text. Raises CannotRead, TooLittleText, VocabularyTooSmall."""
        text = built_in_text() if self.text is None else read_text(self.text)
        model = self.config.model
        tokenizer = load_tokenizer(self.tokenizer)
        return samples_of(text, tokenizer, seq=self.seq, seed=self.seed, model=model.name, rows=model.vocab)

    def check(self, layout: Layout, stages: int) -> None:
        check_tensor_parallel(self.config.model, of_stages(layout, stages))
        stages_of(self.config, of_stages(layout, stages), stages)
        check_length(self.config, self.seq)
        assert self.samples.windows
        if self.folder is not None:
            stored_weights(self.folder)

    def parts(self, places: Places, stages: int, device: torch.device) -> Parts:
        fill = first_weights(self.config, self.seed) if self.folder is None else stored_weights(self.folder)
        build = decoder_stages(
            self.config,
            places,
            stages,
            fill=fill,
            dtype=WEIGHTS[self.dtype],
            compute_dtype=COMPUTE.get(self.dtype),
            device=device,
        )
        return Parts(build, decoder_loss(places), decoder_ties(self.config, places.layout, stages))

    def batch(self, samples: int, step: int) -> tuple[Tree, Tree]:
        return self.samples.batch(step, samples)


@dataclass(frozen=True)
class ModulesSource:
    """A user's `my_module.py:stages`, on pipeline and data-parallel ranks."""

    file: FileSource
    dtype: str = "fp32"

    @property
    def tokens(self) -> int:
        return 1

    @property
    def seed(self) -> int:
        return self.file.seed

    def check(self, layout: Layout, stages: int) -> None:
        if layout.tp > 1:
            raise BadLayout(f"tp={layout.tp} with {self.file.name}, whose tensors nobody knows how to split", "tp=1")
        self.file.modules(stages)

    def parts(self, places: Places, stages: int, device: torch.device) -> Parts:
        made = self.file.modules(stages)
        ties = find_ties(made) if isinstance(made, Sequence) else ()

        def build(stage: int) -> nn.Module:
            return module_of(made, stage).to(device, WEIGHTS[self.dtype])

        return Parts(build, self.file.loss(), ties)

    def batch(self, samples: int, step: int) -> tuple[Tree, Tree]:
        return self.file.batch(samples, step)


def checkpoint_names(modules: Mapping[int, nn.Module]) -> dict[str, nn.Parameter]:
    """Parameters of this rank's decoder stages by their names in a checkpoint; the first place of a tied one."""
    found: dict[str, nn.Parameter] = {}
    for _, module in sorted(modules.items()):
        named: Mapping[str, nn.Parameter] = getattr(module, "weights", dict)()
        found = {**named, **found}
    return found
