"""A schedule of one's own, from the idea to gradients on real processes.

The idea: 1F1B, but with backwards split, and each weight gradient put off until `delay` input gradients later. The
input gradients reach the ranks before sooner, and the weight gradients fill the drain; the price is memory.

python examples/own_schedule.py      (needs PyTorch: pip install -e '.[run]')
"""

import torch
import torch.distributed as dist
from torch import nn

import pipesim
from pipesim.backends.batch import cut_batch
from pipesim.backends.job.local import run_local
from pipesim.backends.pipeline import Pipeline
from pipesim.ir.placement import linear

RANKS, MICROBATCHES = 4, 8


def late_weights(*, ranks: int, microbatches: int, delay: int = 2) -> pipesim.Schedule:
    """1F1B with every weight gradient `delay` input gradients late: a list of texts a rank."""
    rows = []
    for rank in range(ranks):
        ahead = min(ranks - rank, microbatches)  # forwards before the first backward, as in 1F1B
        row = [f"{rank}F{m}" for m in range(ahead)]
        for m in range(microbatches):
            row += [f"{rank}I{m}"]
            row += [f"{rank}F{m + ahead}"] if m + ahead < microbatches else []
            row += [f"{rank}W{m - delay}"] if m >= delay else []
        rows.append(row + [f"{rank}W{m}" for m in range(max(microbatches - delay, 0), microbatches)])
    return pipesim.Schedule.of_texts("late-weights", linear(ranks), microbatches, rows)


def model() -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)).double() for _ in range(RANKS)]


def gradients(stage: nn.Module) -> torch.Tensor:
    return torch.cat([weight.grad.flatten() for weight in stage.parameters() if weight.grad is not None])


def largest_error(context: object, schedule: pipesim.Schedule) -> float:
    """One rank: a step of the pipeline, and its stage's gradients beside those of the whole model in one process."""
    inputs, targets = torch.randn(2, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    pipeline = Pipeline(pipesim.lower(schedule), model(), loss_fn=nn.functional.mse_loss)
    pipeline.step(cut_batch(inputs, targets, microbatches=MICROBATCHES))
    alone = model()
    nn.functional.mse_loss(nn.Sequential(*alone)(inputs), targets).backward()
    rank = dist.get_rank()
    expected, actual = gradients(alone[rank]), gradients(pipeline.modules[rank])
    return float((expected - actual).abs().max() / expected.abs().max())


if __name__ == "__main__":
    mine = late_weights(ranks=RANKS, microbatches=MICROBATCHES)
    print(mine)
    pipesim.check(mine)  # raises with the list of faults: incomplete, misplaced, a deadlock, …
    times = pipesim.parse_costs("F=10ms,I=10ms,W=10ms,C=0.5ms")
    for schedule in (pipesim.build("1f1b", ranks=RANKS, microbatches=MICROBATCHES), mine):
        figures = pipesim.summarize(pipesim.simulate(pipesim.lower(schedule), times.of(schedule)))
        step, bubble = f"{figures.step_time_s * 1e3:5.1f} ms a step", f"bubble {figures.bubble_fraction:.1%}"
        held = f"activations of at most {figures.peak_activations.max():.0f} microbatches"
        print(f"{schedule.name:12} {step}, {bubble}, {held}")
    worst = max(run_local(RANKS, largest_error, mine))
    print(f"on {RANKS} processes: gradients equal those of one process to 1e-12: {worst < 1e-12}")
