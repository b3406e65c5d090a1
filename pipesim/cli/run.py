"""`pipesim run`: a schedule on real processes, and what they took as a timeline like any other."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from pipesim.cli import job, train
from pipesim.cli.case import BadCase
from pipesim.cli.job import JobChoice, require_torch
from pipesim.cli.options import Group, MemoryLimit, Microbatches, Name, Option, Ranks, Slices, Virtual
from pipesim.cli.train import Outputs, ParallelChoice
from pipesim.cli.training import Kept, train_through_failures
from pipesim.metrics import summarize
from pipesim.timeline import Timeline
from pipesim.units import format_seconds

TimelineFile = Annotated[Path | None, typer.Option("--timeline", help="The measured step: OUT.jsonl or OUT.npz.")]
Chart = Annotated[Path | None, typer.Option("--chart", help="Interactive chart of it, an HTML file.")]
Trace = Annotated[Path | None, typer.Option("--trace", help="Chrome/Perfetto trace, a JSON file.")]
MetricsFile = Annotated[Path | None, typer.Option("--metrics", help="A line a step: loss and seconds, JSONL.")]
Runtime = Annotated[str, typer.Option("--runtime", help="pipesim, or torch (its own pipelining runtime).")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
Fallback = Annotated[
    list[str] | None, typer.Option("--fallback", metavar="LAYOUT", help="Layout for another number of processes.")
]
CheckpointDir = Annotated[Path | None, typer.Option("--checkpoint", help="Folder of checkpoints; goes on from it.")]
CheckpointEvery = Annotated[str, typer.Option("--checkpoint-every", help="Steps, or a time such as 10min.")]
Keep = Annotated[int, typer.Option("--keep", min=1, help="How many of the newest checkpoints stay.")]
MaxRestarts = Annotated[int, typer.Option("--max-restarts", min=0, help="Of local processes, when one fails.")]


def run(
    name: Name,
    ranks: Ranks = None,
    microbatches: Microbatches = None,
    virtual: Virtual = None,
    group: Group = None,
    slices: Slices = None,
    memory_limit: MemoryLimit = None,
    option: Option = None,
    model: job.Model = None,
    emulate: job.Emulate = None,
    steps: job.Steps = 5,
    device: job.Device = "cpu",
    micro_batch: job.MicroBatch = 1,
    seq: job.Seq = 64,
    dtype: job.Dtype = "fp32",
    lr: job.Lr = 1e-3,
    seed: job.Seed = 0,
    comm: job.CommPolicy = "edge",
    split_backward: job.SplitBackward = "graph",
    dynamic_shapes: job.DynamicShapes = False,
    timeout: job.Timeout = 60.0,
    port: job.Port = 0,
    no_check: job.NoCheck = False,
    runtime: Runtime = "pipesim",
    timeline: TimelineFile = None,
    chart: Chart = None,
    trace: Trace = None,
    metrics: MetricsFile = None,
    as_json: Json = False,
    layout: train.LayoutText = None,
    data: train.Data = None,
    tokenizer: train.TokenizerFile = None,
    zero: train.ZeroStage = 0,
    sequence_parallel: train.Sequence = False,
    recompute: train.Recompute = "none",
    clip: train.Clip = 1.0,
    accumulate: train.Accumulate = 1,
    warmup: train.Warmup = 0,
    lr_shape: train.LrShape = "constant",
    split: train.LayerSplit = "even",
    overlap: train.Overlap = True,
    save: train.Save = None,
    checkpoint: CheckpointDir = None,
    checkpoint_every: CheckpointEvery = "100",
    keep: Keep = 2,
    fallback: Fallback = None,
    max_restarts: MaxRestarts = 0,
) -> None:
    """Run a schedule on local processes (or, under torchrun, as one of them).

    Example: pipesim run 1f1b --ranks 4 --microbatches 16 --model tiny-llama --steps 20 --chart run.html
    Example: pipesim run 1f1b --layout pp=2,tp=2,dp=2 --microbatches 4 --model tiny-llama --data book.txt --steps 50
    """
    require_torch()
    choice = JobChoice(
        model, emulate, steps, device, micro_batch, seq, dtype, lr, seed, comm, split_backward, dynamic_shapes,
        timeout, port, no_check,
    )  # fmt: skip
    parallel = ParallelChoice(
        layout, data, tokenizer, zero, sequence_parallel, recompute, clip, accumulate, warmup, lr_shape, split,
        overlap, save,
    )  # fmt: skip
    schedule = {
        "ranks": ranks, "microbatches": microbatches, "virtual": virtual, "group": group, "slices": slices,
        "memory_limit": memory_limit, "option": option,
    }  # fmt: skip
    job.require_writable_all(timeline, chart, trace, metrics)
    outputs = Outputs(timeline, chart, trace, metrics, as_json)
    if checkpoint is not None:
        kept = Kept(checkpoint, checkpoint_every, keep, fallback or (), max_restarts)
        train_through_failures(name, choice, parallel, kept, schedule, outputs)
    elif layout is None:
        parallel.require_none()
        _run_stages(name, choice, schedule, runtime, outputs)
    elif runtime != "pipesim":
        raise BadCase(f"--runtime {runtime} with --layout", "torch's runtime runs stages of one pipeline only")
    else:
        train.run_layout(name, choice, parallel, schedule, outputs)


def _run_stages(name: str, choice: JobChoice, schedule: dict[str, Any], runtime: str, outputs: Outputs) -> None:
    """Run the stages of one pipeline, one process a rank."""
    program, strict = job.program_of(name, choice, **schedule)
    task = job.task_of(program, choice, strict=strict)
    if runtime != "pipesim":
        from pipesim.backends.job.torch_runtime import require_runtime, train_with_torch

        require_runtime(runtime, task)
        if outputs.timeline is not None or outputs.chart is not None or outputs.trace is not None:
            raise BadCase("torch's runtime gives no timeline", "leave --timeline, --chart and --trace out")
        outcome = job.run_job(train_with_torch, task, choice)
    else:
        from pipesim.backends.job.train import train as train_stages

        outcome = job.run_job(train_stages, task, choice)
    if outcome is not None:
        _report(task, outcome, choice, outputs)


def _report(task: Any, outcome: Any, choice: JobChoice, outputs: Outputs) -> None:
    from pipesim.cli.simulate import write_outputs

    if outputs.metrics is not None:
        _write_metrics(outputs.metrics, outcome)
    if not outcome.records:
        _print_without_timeline(outcome, outputs.as_json)
        return
    made = measured_timeline(task, outcome)
    found = summarize(made)
    write_outputs(made, found, out=outputs.chart, trace=outputs.trace, timeline=outputs.timeline)
    schedule = task.program.schedule
    if outputs.as_json:
        head = {"name": schedule.name, "ranks": schedule.ranks, "microbatches": schedule.microbatches}
        tail = {"source": made.source, "losses": outcome.losses, "step_s": outcome.step_s}
        print(json.dumps(head | found.to_json() | tail))
        return
    from pipesim.cli.tables import console, rank_table, summary

    screen = console()
    word = "emulated" if choice.emulate is not None else f"measured on {choice.device}"
    title = f"{schedule.name}: {schedule.ranks} ranks, {schedule.microbatches} microbatches, {word}"
    if choice.emulate is None:
        title += f"\nloss {outcome.losses[0]:.4f} → {outcome.losses[-1]:.4f} in {len(outcome.losses)} steps"
    screen.print(summary(title, found))
    screen.print(rank_table(found))
    sys.stdout.flush()


def _write_metrics(path: Path, outcome: Any) -> None:
    from pipesim.files import write_atomically

    rows = [
        {"step": step, "loss": loss, "step_s": seconds}
        for step, (loss, seconds) in enumerate(zip(outcome.losses, outcome.step_s, strict=True), 1)
    ]
    write_atomically(path, "".join(json.dumps(row) + "\n" for row in rows))


def _print_without_timeline(outcome: Any, as_json: bool) -> None:
    """torch's runtime tells nothing of its actions."""
    found = {"losses": outcome.losses, "step_s": outcome.step_s, "median_step_s": median(outcome.step_s)}
    if as_json:
        print(json.dumps({"runtime": "torch"} | found))
    else:
        print(f"torch's runtime: loss {outcome.losses[0]:.4f} → {outcome.losses[-1]:.4f}, ", end="")
        print(f"median step {format_seconds(median(outcome.step_s))}")


def measured_timeline(task: Any, outcome: Any) -> Timeline:
    """The step of median time; its memory is that of the step in which bytes were noted."""
    from pipesim.backends.measure.timelines import assemble_with_memory

    return assemble_with_memory(
        task.program, outcome.records, outcome.weighed, source="measured" if task.emulate is None else "emulated"
    )
