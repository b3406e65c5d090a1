"""Llama-2-70B on 8 A100s, by tensor and pipeline degrees: `python benchmarks/planner/a100_8.py`; writes a100_8.txt.

Training: a step of 64 sequences of 4,096 tokens. Forward only: the same sequences through the model once, as in
prefill. Memory is what the fullest GPU would hold, whether it has that much or not; communication is the part of the
time that nothing hides, pipeline waiting for messages included.
"""

from __future__ import annotations

from pathlib import Path

from pipesim.costs.clusters.cluster_catalogue import load_cluster
from pipesim.costs.estimate import Estimate, estimate
from pipesim.costs.layouts.layout import Layout
from pipesim.costs.models.model_catalog import load_model
from pipesim.engine import fast
from pipesim.ir.lower import lower
from pipesim.ir.placement import linear
from pipesim.metrics import Metrics, summarize
from pipesim.schedules.lookup import build
from pipesim.units import format_bytes, format_seconds

MODEL, CLUSTER = load_model("llama-2-70b"), load_cluster("dgx-a100:1")
DEGREES = ((8, 1), (1, 4), (4, 2), (2, 4))
RESULTS = Path(__file__).with_name("a100_8.txt")


def run(tp: int, pp: int, schedule: str) -> tuple[Estimate, Metrics, float]:
    """Estimate, figures and peak bytes of one layout; what tp and pp leave over is data parallel."""
    dp = CLUSTER.devices // (tp * pp)
    layout = Layout(tp=tp, pp=pp, dp=dp, sequence_parallel=tp > 1, zero_stage=1, global_batch=64, seq=4096,
                    recompute="full")  # fmt: skip
    made = estimate(MODEL, CLUSTER, layout, linear(pp))
    orders = build(schedule, ranks=pp, microbatches=layout.microbatches)
    timeline = fast.simulate(lower(orders, reduce=schedule != "forward-only" and dp > 1), made.costs)
    assert timeline.memory is not None
    return made, summarize(timeline, made.costs), float(timeline.memory.peak.max())


def row(tp: int, pp: int, schedule: str) -> str:
    made, figures, peak = run(tp, pp, schedule)
    tokens = made.layout.tokens_per_step / figures.step_time_s
    exposed = sum(figures.exposed_comm_s.values()) / figures.step_time_s
    limit = CLUSTER.gpu.memory_bytes
    held = peak if schedule != "forward-only" else weights_bytes(made)
    fits = "" if held <= limit else f" (of {format_bytes(limit)})"
    name = " x ".join(f"{word}{value}" for word, value in (("tp", tp), ("pp", pp)) if value > 1)
    return (
        f"{name:>10}  dp{made.layout.dp}  {schedule:>12}  {format_seconds(figures.step_time_s):>9}  {tokens:>8,.0f}  "
        f"{exposed:>6.1%}  {figures.bubble_fraction:>6.1%}  {format_bytes(held)}{fits}"
    )


def weights_bytes(made: Estimate) -> float:
    """Weights and working memory of the fullest rank: no gradients or optimizer states, nothing kept."""
    held = made.costs.held
    assert held is not None
    return float((held.weights + held.workspace).max() + held.overhead.max())


def main() -> None:
    lines = ["    layout  dp       schedule       time  tokens/s   comm.  bubble  memory a GPU"]
    lines += [row(tp, pp, schedule) for schedule in ("1f1b", "forward-only") for tp, pp in DEGREES]
    text = "\n".join(lines) + "\n"
    print(text, end="")
    RESULTS.write_text(text)


if __name__ == "__main__":
    main()
