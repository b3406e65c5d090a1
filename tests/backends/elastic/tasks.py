"""Tiny training jobs for tests: 8 layers of width 16, float64."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch

from pipesim.backends.checkpoint.saver import Checkpoints
from pipesim.backends.job.worker import Context
from pipesim.backends.model.config import tiny_decoder
from pipesim.backends.parallel.rates import Rates
from pipesim.backends.parallel.sources import DecoderSource
from pipesim.backends.stage import StageOptions
from pipesim.backends.training.task import Keep, Training
from pipesim.backends.training.train import Trainer
from pipesim.costs.layouts.layout import Layout
from pipesim.ir.lower import lower
from pipesim.schedules.lookup import build

BATCH = 8
CONFIG = tiny_decoder(hidden_size=16, intermediate_size=32, num_attention_heads=2, num_key_value_heads=2)


def task_at(pp: int, tp: int, dp: int, *, schedule: str = "1f1b", steps: int = 6, **changes: Any) -> Training:
    """A job at a layout whose steps have 8 samples."""
    zero_stage = changes.pop("zero_stage", 0)
    rounds = changes.get("rounds", 1)
    made = build(schedule, ranks=pp, microbatches=BATCH // dp // rounds)
    defaults: dict[str, Any] = {"stage": StageOptions(strategy="graph"), "report": False, "progress": False}
    return Training(
        lower(made, reduce=dp > 1, clip=True),
        Layout(pp=pp, tp=tp, dp=dp, zero_stage=zero_stage, global_batch=BATCH),
        DecoderSource(CONFIG, seq=8, dtype="fp64"),
        Rates(1e-2, warmup=2, shape="cosine", steps=12),
        steps=steps,
        **(defaults | changes),
    )


def keep(root: Path, *, hang_s: float = 60.0, **changes: Any) -> Keep:
    return Keep(Checkpoints(root, **({"every_steps": 2, "keep": 3} | changes)), hang_s)


def context() -> Context:
    import torch.distributed as dist

    return Context(dist.get_rank(), dist.get_world_size(), torch.device("cpu"))


def losses_of(trainer: Trainer) -> dict[int, float]:
    """Train, and the losses by step."""
    trainer.train()
    return {step.step: step.loss for step in trainer.done}


def whole_weights(trainer: Trainer) -> dict[str, str]:
    """A digest of every weight of this rank, gathered over tp and dp, and of its optimizer state."""
    from torch.distributed.tensor import DTensor

    found, held = {}, trainer.progress.held
    for name, places in held.weights().items():
        stage, weight = places[0]
        values = {"": weight} | (held.states(stage, weight) or {})
        for key, value in values.items():
            whole = value.full_tensor() if isinstance(value, DTensor) else value
            found[f"{name} {key}".strip()] = hashlib.sha256(whole.detach().numpy().tobytes()).hexdigest()[:16]
    return found
