"""One served copy of a model: its pipeline stages, the messages between them, and the groups that fill it."""

from __future__ import annotations

from dataclasses import dataclass

from pipesim.serving.group import Step
from pipesim.serving.step_costs import Floats, StageCosts


@dataclass(frozen=True, kw_only=True, eq=False)
class Instance:
    """Prices of a pipeline. Equal stages may be one object."""

    stages: tuple[StageCosts, ...]
    hops_s: tuple[Floats, ...]
    """Of the message from each stage to the next, for so many new tokens."""
    back_s: float
    """Of the sampled tokens from the last stage to the first."""
    groups: int
    """Groups of requests in flight."""

    def seconds(self, step: Step) -> list[float]:
        """Time of a step on each stage."""
        found: dict[int, float] = {}
        times = []
        rows = step.decoding + step.complete
        for stage in self.stages:
            if id(stage) not in found:
                found[id(stage)] = stage.seconds(
                    tokens=step.tokens, sequences=step.decoding, cached=step.cached, rows=rows, pieces=step.pieces
                )
            times.append(found[id(stage)])
        return times

    def communication(self, step: Step) -> float:
        """Tensor-parallel communication of a step, mean over stages."""
        return float(sum(stage.comm_s[step.tokens] for stage in self.stages)) / len(self.stages)
