"""One small decoder in one process and under any layout: losses, norms and every gradient of a few steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from pipesim.backends.batch import Microbatches, cut_batch
from pipesim.backends.model.config import DecoderConfig, tiny_decoder
from pipesim.backends.model.initial import initialize
from pipesim.backends.model.loss import token_loss
from pipesim.backends.model.stage import DecoderStage, build_stage, stages_of
from pipesim.backends.parallel.decoders import decoder_loss, decoder_stages, decoder_ties, first_weights
from pipesim.backends.parallel.pipeline import ParallelOptions, ParallelPipeline
from pipesim.backends.parallel.places import Places, make_places
from pipesim.backends.parallel.updates import StepRules
from pipesim.backends.stage import StageOptions
from pipesim.costs.layouts.layout import Layout
from pipesim.ir.lower import lower
from pipesim.ir.program import Program
from pipesim.schedules.lookup import build

STEPS, SEQ, MICROBATCHES, CLIP = 3, 8, 4, 0.5
Changes = tuple[tuple[str, Any], ...]


def config(changes: Changes = ()) -> DecoderConfig:
    """Four layers, with biases where a test asks for them."""
    small: dict[str, Any] = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 16,
        "initializer_range": 0.3,
    }
    return tiny_decoder(**(small | dict(changes)))


class Noting(torch.optim.SGD):
    """SGD that keeps the gradients of its last step."""

    noted: list[Tensor]

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.noted = [weight.grad.clone() for group in self.param_groups for weight in group["params"]]
        super().step(closure)


def noting(weights: Any) -> torch.optim.Optimizer:
    return Noting(weights, lr=0.2, momentum=0.9)


def whole_batch(dp: int) -> Microbatches:
    """Microbatches of all replicas; a few targets do not count, so that their weights differ."""
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(16, (MICROBATCHES * dp, SEQ + 1), generator=generator)
    targets = tokens[:, 1:].clone()
    targets[1, :3] = -100
    weigh: Callable[[Tensor], float] = lambda target: float((target != -100).sum())  # noqa: E731
    return cut_batch(tokens[:, :-1], targets, microbatches=MICROBATCHES * dp, weights=weigh)


def stage_alone(made: DecoderConfig, dtype: torch.dtype = torch.float64) -> DecoderStage:
    """The whole model in this process."""
    layout = Layout()
    stage = build_stage(made, layout, stages_of(made, layout, 1)[0], dtype)
    stage.to_empty(device="cpu")
    stage.tie()
    initialize(stage.weights(), seed=1, std=made.init_std, part=lambda weight, value: value)
    return stage


@lru_cache
def alone(dp: int, changes: Changes) -> list[tuple[float, float, dict[str, Tensor]]]:
    """Loss, norm and gradients (after clipping) of each step in one process."""
    stage, batch = stage_alone(config(changes)), whole_batch(dp)
    weights = stage.weights()
    optimizer = noting(list(weights.values()))
    found = []
    for _ in range(STEPS):
        loss = 0.0
        for number in range(len(batch)):
            one = token_loss(stage(batch.inputs[number][0]), batch.targets[number][0]) * batch.weights[number][0]
            one.backward()
            loss += float(one.detach())
        norm = float(torch.nn.utils.clip_grad_norm_(list(weights.values()), CLIP))
        optimizer.step()
        optimizer.zero_grad()
        found.append((loss, norm, dict(zip(weights, optimizer.noted, strict=True))))
    return found


def program_of(schedule: str, layout: Layout) -> Program:
    options = {"virtual": 2} if schedule == "interleaved" else {}
    made = build(schedule, ranks=layout.pp, microbatches=MICROBATCHES, **options)
    return lower(made, reduce=layout.dp > 1, clip=True)


def layout_of(**numbers: Any) -> Layout:
    return Layout(seq=SEQ, global_batch=MICROBATCHES * numbers.get("dp", 1), precision="fp32", **numbers)


def pipeline_of(
    program: Program,
    places: Places,
    made: DecoderConfig,
    *,
    dtype: torch.dtype = torch.float64,
    overlap: bool = True,
    clip: float = CLIP,
    **more: Any,
) -> ParallelPipeline:
    length = program.schedule.placement.length
    return ParallelPipeline(
        program,
        places,
        decoder_stages(
            made, places, length, fill=first_weights(made, 1), dtype=dtype, compute_dtype=more.get("compute_dtype")
        ),
        loss_fn=decoder_loss(places),
        options=ParallelOptions(
            stage=StageOptions(strategy="graph"),
            rules=StepRules(noting, clip, overlap),
            ties=decoder_ties(made, places.layout, length),
            **more,
        ),
    )


def my_rounds(places: Places, rounds: int = 1) -> list[Microbatches]:
    """This replica's share of the whole batch."""
    batch, count = whole_batch(places.layout.dp), MICROBATCHES // rounds
    first = places.dp_rank * MICROBATCHES
    parts = [slice(first + number * count, first + (number + 1) * count) for number in range(rounds)]
    return [Microbatches(batch.inputs[part], batch.targets[part], batch.weights[part]) for part in parts]


def worst_error(schedule: str, numbers: dict[str, Any], changes: Changes = (), overlap: bool = True) -> float:
    """Largest relative error against one process: losses, norms, and gradients of every weight in every step."""
    layout = layout_of(**numbers)
    places = make_places(layout)
    program = program_of(schedule, layout)
    pipeline = pipeline_of(program, places, config(changes), overlap=overlap)
    rounds, worst = my_rounds(places), 0.0
    for loss, norm, gradients in alone(layout.dp, changes):
        found = pipeline.job_loss(pipeline.step(rounds).loss)
        assert pipeline.updates.norm is not None
        worst = max(worst, abs(found / loss - 1), abs(pipeline.updates.norm / norm - 1))
        largest = max(float(gradient.abs().max()) for gradient in gradients.values())
        for name, gradient in noted_gradients(pipeline):
            expected = gradients[name]
            scale = float(expected.abs().max()) or largest
            worst = max(worst, float((gradient - expected).abs().max()) / scale)
    return worst


def noted_gradients(pipeline: ParallelPipeline) -> Iterable[tuple[str, Tensor]]:
    """Whole gradients of the last step by the names of a checkpoint."""
    for number, module in pipeline.modules.items():
        optimizer = pipeline.updates.optimizers[number]
        assert isinstance(optimizer, Noting)
        assert isinstance(module, DecoderStage)
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        by_id = {id(weight): gradient for weight, gradient in zip(weights, optimizer.noted, strict=True)}
        for name, weight in module.weights().items():
            gradient = by_id[id(weight)]
            yield name, gradient.full_tensor() if isinstance(gradient, DTensor) else gradient
