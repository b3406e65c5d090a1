"""Weights of several optimizer steps at once, for schedules that do not wait for a step to end.

A microbatch keeps the weights of its forward until its backward (weight stashing, PipeDream); the gradient is
then applied to the newest weights. Which version a forward takes is the schedule's rule.
"""

from collections.abc import Mapping

from torch import Tensor, nn


class Versions:
    """Copies of a module's parameters, numbered by the optimizer steps that made them."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.newest = 0
        self._copies: dict[int, dict[str, Tensor]] = {0: self._copy()}

    def _copy(self) -> dict[str, Tensor]:
        return {
            name: weight.detach().clone().requires_grad_(weight.requires_grad)
            for name, weight in self.module.named_parameters()
        }

    def weights(self, version: int) -> Mapping[str, Tensor]:
        """Parameters by name (-1: the newest); a backward leaves its gradients in their `.grad`."""
        return self._copies[self.newest if version < 0 else version]

    def collect(self, version_weights: Mapping[str, Tensor]) -> None:
        """Move the gradients of a version's weights to the module's parameters."""
        for name, weight in self.module.named_parameters():
            gradient = version_weights[name].grad
            if gradient is not None:
                version_weights[name].grad = None
                weight.grad = gradient if weight.grad is None else weight.grad.add_(gradient)

    def stepped(self) -> None:
        """The module's parameters have made a step: they are a new version. The last two stay."""
        self.newest += 1
        self._copies[self.newest] = self._copy()
        for old in [version for version in self._copies if version < self.newest - 1]:
            del self._copies[old]
