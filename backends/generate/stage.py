"""A stage that generates: a decoder stage with keys and values of each group, and on the last one the choice."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from pipesim.backends.execute.runner import Gradients
from pipesim.backends.generate.prompts import Group
from pipesim.backends.generate.sampling import Sampling
from pipesim.backends.memory import HeldBytes
from pipesim.backends.model.cache import LayerCache
from pipesim.backends.model.stage import DecoderStage
from pipesim.backends.trees import Tree

STOPPED = -1  # the token of a sequence that has ended


class GeneratingStage:
    """What the walk needs of a stage. Key: (group, number of the new token); number 0 is the prompts' pass.

    Tokens go from the last stage back to the first. A group that has ended passes on as an empty message.
    """

    def __init__(
        self,
        module: DecoderStage,
        groups: Sequence[Group],
        new_tokens: int,
        sampling: Sampling,
        stop: Collection[int],
        *,
        is_last: bool,
    ) -> None:
        self._module, self._groups, self._sampling, self._is_last = module.eval(), groups, sampling, is_last
        self._stop = torch.tensor(sorted(stop), dtype=torch.int64)
        most = [group.longest + new_tokens for group in groups]
        self._caches = [{number: LayerCache(room) for number in module.numbers()} for room in most]
        self._ended = [torch.zeros(len(group.numbers), dtype=torch.bool) for group in groups]

    def forward(self, key: tuple[int, int], inputs: Tree, **options: Any) -> Tree:
        with torch.no_grad():
            return self._pass(key, inputs)

    def _pass(self, key: tuple[int, int], inputs: Tree) -> Tensor:
        group, token = self._groups[key[0]], key[1]
        assert isinstance(inputs, Tensor)
        if self._is_over(inputs):
            return self._over(group)
        if self._module.model.embed_tokens is not None:
            inputs = (inputs if inputs.dim() == 2 else inputs[:, None]).clamp(min=0)
        where = self._module.where(
            group.positions(token, inputs.device), group.mask(token, inputs.device), self._caches[key[0]]
        )
        outputs = self._module.run(inputs, where, last_only=True)
        return self._choose(key, outputs) if self._is_last else outputs

    def _is_over(self, inputs: Tensor) -> bool:
        return not inputs.numel() or (not inputs.is_floating_point() and bool((inputs == STOPPED).all()))

    def _over(self, group: Group) -> Tensor:
        if self._is_last:
            return torch.full((len(group.numbers),), STOPPED)
        return torch.empty(0)

    def _choose(self, key: tuple[int, int], logits: Tensor) -> Tensor:
        group, token = key
        chosen = self._sampling.choose(logits[:, -1], self._groups[group].numbers, token)
        ended = self._ended[group].to(chosen.device)
        chosen = torch.where(ended, STOPPED, chosen)
        self._ended[group] = ended | torch.isin(chosen, self._stop.to(chosen.device))
        return chosen

    # The walk knows stages that train, too; schedules of decoding have forwards only.

    def backward(self, key: tuple[int, int], gradients: Gradients) -> Gradients:
        raise AssertionError(f"a backward of token {key[1]} of group {key[0]}, but nothing is trained here")

    input_gradient = backward

    def weight_gradient(self, key: tuple[int, int]) -> None:
        self.backward(key, [])

    def held_bytes(self) -> HeldBytes:
        """Bytes of keys and values."""
        caches = [cache for group in self._caches for cache in group.values() if cache.length]
        return HeldBytes(sum(part.nbytes for cache in caches for part in cache.tensors()))
