"""Samples of a text that follow from a seed and the step alone: the same in every layout, and after a restart."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from pipesim.backends.data.tokens import Tokenizer, VocabularyTooSmall
from pipesim.backends.randomness import mix
from pipesim.errors import PipesimError


@dataclass(eq=False)
class TooLittleText(PipesimError):
    """A text that does not fill one sequence."""

    tokens: int
    seq: int

    def __str__(self) -> str:
        works = f"--seq {self.tokens - 1} or less, or a longer text" if self.tokens > 2 else "give a longer text"
        return f"a text of {self.tokens} tokens does not fill a sequence of {self.seq} and its targets; {works}"


@dataclass(frozen=True)
class Samples:
    """Windows of a text, each once an epoch, in an order of their own every epoch.

    tokens: of the whole text. seq: tokens of a sample. The windows follow each other; what is left over at the
    end of the text is not used.
    """

    tokens: Tensor
    seq: int
    seed: int = 0

    @property
    def windows(self) -> int:
        """How many samples an epoch has."""
        return (len(self.tokens) - 1) // self.seq

    def batch(self, step: int, sequences: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of step number `step` (from 0), each (sequences, seq)."""
        places = [self._window(step * sequences + number) * self.seq for number in range(sequences)]
        rows = torch.stack([self.tokens[place : place + self.seq + 1].long() for place in places])
        return rows[:, :-1], rows[:, 1:]

    def _window(self, number: int) -> int:
        epoch, place = divmod(number, self.windows)
        return int(_order(self.seed, epoch, self.windows)[place])


@lru_cache(maxsize=4)
def _order(seed: int, epoch: int, windows: int) -> Tensor:
    return torch.randperm(windows, generator=torch.Generator().manual_seed(mix(seed, epoch)))


def samples_of(text: str, tokenizer: Tokenizer, *, seq: int, seed: int, model: str, rows: int) -> Samples:
    """Samples of a text for a model with so many rows in its embedding. Raises TooLittleText, VocabularyTooSmall."""
    tokens = torch.tensor(tokenizer.encode(text), dtype=torch.int32)
    needed = int(tokens.max()) + 1 if len(tokens) else 0
    if needed > rows:
        raise VocabularyTooSmall(model, rows, needed)
    if len(tokens) < seq + 1:
        raise TooLittleText(len(tokens), seq)
    return Samples(tokens, seq, seed)
