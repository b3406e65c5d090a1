"""Training on a real text: the losses are those of one process, and they fall."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from pipesim.backends.batch import cut_batch
from pipesim.backends.job.local import run_local
from pipesim.backends.model.config import DecoderConfig, load_decoder, tiny_decoder
from pipesim.backends.model.loss import token_loss
from pipesim.backends.parallel.rates import Rates
from pipesim.backends.parallel.sources import DecoderSource
from pipesim.backends.training.task import Trained, Training
from pipesim.backends.training.train import train
from pipesim.costs.layouts.layout import Layout
from pipesim.ir.lower import lower
from pipesim.schedules.lookup import build
from tests.backends.parallel.cases import stage_alone

SEQ, SEQUENCES = 32, 4
MODEL = tiny_decoder(hidden_size=32, intermediate_size=64, num_hidden_layers=4)


def training(layout: Layout, schedule: str, steps: int, **more: object) -> Training:
    microbatches = SEQUENCES // layout.dp
    program = lower(build(schedule, ranks=layout.pp, microbatches=microbatches), reduce=layout.dp > 1, clip=True)
    source = DecoderSource(MODEL, SEQ, seed=1, dtype="fp64")
    rates = Rates(5e-3, warmup=5, shape="cosine", steps=steps)
    return Training(program, layout, source, rates, steps=steps, report=False, progress=False, **more)  # type: ignore[arg-type]


def losses_alone(config: DecoderConfig, steps: int) -> list[float]:
    """The same steps in one process."""
    source, rates = DecoderSource(config, SEQ, seed=1), Rates(5e-3, warmup=5, shape="cosine", steps=steps)
    model = stage_alone(config)
    weights = list(model.parameters())
    optimizer = torch.optim.AdamW(weights, lr=1.0, weight_decay=0.01)
    found = []
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = rates.at(step)
        batch = cut_batch(*source.batch(SEQUENCES, step), microbatches=SEQUENCES)
        total = 0.0
        for number in range(SEQUENCES):
            loss = token_loss(model(batch.inputs[number][0]), batch.targets[number][0]) / SEQUENCES
            loss.backward()
            total += float(loss.detach())
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        found.append(total)
    return found


def run(task: Training) -> Trained:
    found = run_local(task.layout.gpus, train, task)[0]
    assert isinstance(found, Trained)
    return found


@pytest.mark.slow
def test_fifty_steps_on_a_text_are_those_of_one_process() -> None:
    expected = losses_alone(MODEL, 50)
    found = run(training(Layout(pp=2, tp=2, seq=SEQ, global_batch=SEQUENCES, sequence_parallel=True), "zb-v", 50))
    losses = [step.loss for step in found.steps]
    assert losses == pytest.approx(expected, rel=1e-6)
    assert sum(losses[-5:]) / 5 < 0.6 * losses[0]


@pytest.mark.slow
def test_a_few_steps_with_metrics_and_saved_weights(tmp_path: Path) -> None:
    layout = Layout(pp=2, dp=2, seq=SEQ, global_batch=SEQUENCES, zero_stage=3, split="balanced")
    folder, metrics = tmp_path / "weights", tmp_path / "metrics.jsonl"
    found = run(training(layout, "1f1b", 4, metrics=metrics, save=str(folder)))
    expected = losses_alone(MODEL, 4)
    assert [step.loss for step in found.steps] == pytest.approx(expected, rel=1e-9)
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert [(line["step"], line["loss"]) for line in lines] == [(step.step, step.loss) for step in found.steps]
    assert [line["lr"] for line in lines] == pytest.approx([1e-3, 2e-3, 3e-3, 4e-3])
    again = DecoderSource(load_decoder(str(folder)), SEQ, seed=1, dtype="fp64", folder=str(folder))
    more = Training(
        lower(build("1f1b", ranks=1, microbatches=SEQUENCES)),
        Layout(seq=SEQ, global_batch=SEQUENCES),
        again,
        Rates(0.0),
        steps=1,
        report=False,
        progress=False,
    )
    assert run(more).steps[0].loss < expected[0]  # the trained weights, not the first ones
