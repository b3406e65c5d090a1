"""Prompts put into groups, each group filled up on the left to one length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pipesim.backends.model.config import DecoderConfig
from pipesim.errors import PipesimError


@dataclass(eq=False)
class BadPrompt(PipesimError):
    """A prompt that the model cannot continue."""

    number: int
    problem: str
    works: str

    def __str__(self) -> str:
        return f"prompt {self.number}: {self.problem}; {self.works}"


@dataclass(frozen=True)
class Group:
    """Prompts that go through the pipeline together.

    numbers: of the prompts among all. tokens: (prompts, longest), filled up on the left. lengths: of each.
    """

    numbers: tuple[int, ...]
    tokens: Tensor
    lengths: Tensor

    @property
    def longest(self) -> int:
        return self.tokens.shape[1]

    @property
    def padding(self) -> Tensor | None:
        """Places that are filled up in each prompt; None if there are none."""
        padding = self.longest - self.lengths
        return padding if bool(padding.any()) else None

    def positions(self, token: int, device: torch.device) -> Tensor:
        """Of what enters for generated token number `token`: the prompts (0), or the token before: (prompts, …)."""
        lengths = self.lengths.to(device)
        if token:
            return (lengths + token - 1)[:, None]
        return (torch.arange(self.longest, device=device)[None, :] - (self.longest - lengths)[:, None]).clamp(min=0)

    def mask(self, token: int, device: torch.device) -> Tensor | None:
        """Where queries may look, (prompts, 1, queries, keys); None if all may look at all up to themselves."""
        if self.padding is None:
            return None
        keys = torch.arange(self.longest + token, device=device)
        real = keys[None, :] >= self.padding.to(device)[:, None]
        if token:
            return real[:, None, None, :]
        before = keys[None, :] <= keys[:, None]
        itself = keys[None, :] == keys[:, None]  # what fills up looks at itself, or its softmax would be 0/0
        return (before[None] & real[:, None, :] | itself[None])[:, None]


def make_groups(prompts: Sequence[tuple[int, Sequence[int]]], groups: int) -> list[Group]:
    """(number, tokens) of each prompt in so many groups, those of like length together; some may be empty."""
    ordered = sorted(prompts, key=lambda prompt: len(prompt[1]))
    sizes = [len(ordered) // groups + (place < len(ordered) % groups) for place in range(groups)]
    found, first = [], 0
    for size in sizes:
        found.append(_group(ordered[first : first + size]))
        first += size
    return found


def _group(prompts: Sequence[tuple[int, Sequence[int]]]) -> Group:
    longest = max((len(tokens) for _, tokens in prompts), default=1)
    rows = torch.zeros(len(prompts), longest, dtype=torch.int64)
    for row, (_, tokens) in zip(rows, prompts, strict=True):
        row[longest - len(tokens) :] = torch.tensor(tokens)
    lengths = torch.tensor([len(tokens) for _, tokens in prompts], dtype=torch.int64)
    return Group(tuple(number for number, _ in prompts), rows, lengths)


def check_prompts(config: DecoderConfig, prompts: Sequence[Sequence[int]], new_tokens: int) -> None:
    """Raises BadPrompt for one that is empty, has tokens the model lacks, or leaves no room for new ones."""
    most = config.model.max_positions
    for number, tokens in enumerate(prompts):
        if not tokens:
            raise BadPrompt(number, "it is empty", "give at least one token")
        if not 0 <= min(tokens) <= max(tokens) < config.model.vocab:
            bad = max(tokens) if min(tokens) >= 0 else min(tokens)
            raise BadPrompt(
                number, f"token {bad} is none of {config.model.name}", f"0 to {config.model.vocab - 1} work"
            )
        if most and len(tokens) + new_tokens > most:
            raise BadPrompt(
                number,
                f"{len(tokens)} tokens and {new_tokens} new ones exceed the context of {most} of {config.model.name}",
                f"at most {most - len(tokens)} new ones fit"
                if len(tokens) < most
                else f"at most {most - new_tokens} tokens work",
            )
