"""The next token from its logits: the likeliest, or drawn with numbers that follow from the seed and the place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pipesim.backends.randomness import mix
from pipesim.errors import PipesimError


@dataclass(eq=False)
class BadSampling(PipesimError):
    """Numbers that nothing can be drawn with."""

    name: str
    value: float
    works: str

    def __str__(self) -> str:
        return f"{self.name}={self.value}; {self.works}"


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn.

    temperature: 0 takes the likeliest. top_k: only so many of the likeliest (0: all). top_p: only the likeliest
    that make up this probability (Holtzman et al. 1904.09751).
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise BadSampling("temperature", self.temperature, "0 (the likeliest) and above work")
        if self.top_k < 0:
            raise BadSampling("top_k", self.top_k, "0 (all) and above work")
        if not 0 < self.top_p <= 1:
            raise BadSampling("top_p", self.top_p, "above 0 and up to 1 works")

    def choose(self, logits: Tensor, sequences: Sequence[int], token: int) -> Tensor:
        """Next token of each row. sequences, token: numbers of the prompts, and which new token this is.

        A prompt's draw depends on these alone, not on its group or the layout.
        """
        if not self.temperature:
            return logits.argmax(-1)
        chances = self._chances(logits.double().cpu())
        drawn = []
        for row, sequence in zip(chances, sequences, strict=True):
            generator = torch.Generator().manual_seed(mix(self.seed, sequence, token))
            drawn.append(torch.multinomial(row, 1, generator=generator))
        return torch.cat(drawn).to(logits.device)

    def _chances(self, logits: Tensor) -> Tensor:
        ordered, places = (logits / self.temperature).softmax(-1).sort(descending=True)
        before = ordered.cumsum(-1) - ordered
        keep = before < self.top_p
        if self.top_k:
            keep[:, self.top_k :] = False
        return torch.zeros_like(logits).scatter(-1, places, ordered * keep)
