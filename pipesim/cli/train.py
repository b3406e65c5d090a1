"""`pipesim run --layout`: training under tensor, pipeline and data parallelism; its options, and the task of them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from pipesim.cli.options.case import BadCase, layer_counts, policy_of
from pipesim.cli.options.job import JobChoice, under_torchrun
from pipesim.cli.options.outputs import Outputs
from pipesim.cli.options.schedule import ScheduleOptions, schedule_from_options
from pipesim.cli.views.layout_report import report
from pipesim.costs.layouts.layout import BadLayout, Layout
from pipesim.ir.check import check_program
from pipesim.ir.lower import lower
from pipesim.metrics import summarize

LayoutText = Annotated[
    str | None, typer.Option("--layout", metavar="pp=2,tp=2,dp=2", help="Train under this layout, on all its ranks.")
]
Data = Annotated[str | None, typer.Option("--data", help="Text to train on, a UTF-8 file (a small built-in one).")]
TokenizerFile = Annotated[str | None, typer.Option("--tokenizer", help="A tokenizer.json (the model's, or bytes).")]
ZeroStage = Annotated[int, typer.Option("--zero", min=0, max=3, help="ZeRO stage over dp, by FSDP2.")]
Sequence = Annotated[
    bool, typer.Option("--sequence-parallel/--no-sequence-parallel", help="Split norms and residuals over tp.")
]
Recompute = Annotated[str, typer.Option("--recompute", help="Activation checkpointing: none, selective or full.")]
Clip = Annotated[float, typer.Option("--clip", min=0, help="Largest norm of all gradients; 0 leaves them as they are.")]
Accumulate = Annotated[int, typer.Option("--accumulate", min=1, help="Runs of the pipeline for one optimizer step.")]
Warmup = Annotated[int, typer.Option("--warmup", min=0, help="Steps in which the learning rate rises.")]
LrShape = Annotated[str, typer.Option("--lr-shape", help="Learning rate after that: constant, linear or cosine.")]
LayerSplit = Annotated[str, typer.Option("--split", help="Layers to stages: even, balanced, or e.g. 3,5 a stage.")]
Overlap = Annotated[bool, typer.Option("--overlap/--no-overlap", help="Reduce gradients behind other work.")]
Save = Annotated[str | None, typer.Option("--save", help="Write the weights there, in Hugging Face's format.")]

_AXES = ("pp", "tp", "dp", "cp", "ep")
_PRECISIONS = {"fp32": "fp32", "fp64": "fp32", "bf16": "amp_bf16"}


@dataclass(frozen=True)
class ParallelChoice:
    """What a command line says of a layout and of training under it."""

    panel: ClassVar[str] = "Training under a layout"

    layout: LayoutText = None
    data: Data = None
    tokenizer: TokenizerFile = None
    zero: ZeroStage = 0
    sequence_parallel: Sequence = False
    recompute: Recompute = "none"
    clip: Clip = 1.0
    accumulate: Accumulate = 1
    warmup: Warmup = 0
    lr_shape: LrShape = "constant"
    split: LayerSplit = "even"
    overlap: Overlap = True
    save: Save = None

    def require_none(self) -> None:
        """Raises BadCase where something is given that only works under a layout."""
        given = next((name for name, value in vars(self).items() if value != getattr(ParallelChoice(), name)), None)
        if given is not None:
            raise BadCase(f"--{given.replace('_', '-')} without --layout", "give one, such as --layout pp=2,tp=2,dp=2")


def degrees_of(text: str) -> dict[str, int]:
    """Degrees of `pp=2,tp=2,dp=2`. Raises BadCase."""
    found: dict[str, int] = {}
    for part in text.split(","):
        axis, _, number = (word.strip() for word in part.partition("="))
        if axis not in _AXES or axis in found or not number.isdecimal() or not int(number):
            raise BadCase(f"--layout {text}: {part.strip()!r}", f"degrees of {', '.join(_AXES)} as in pp=2,tp=2,dp=2")
        found[axis] = int(number)
    return found


def layout_of(choice: JobChoice, parallel: ParallelChoice, *, microbatches: int, virtual: int = 1) -> Layout:
    """The layout of a command line. Raises BadCase, BadLayout."""
    assert parallel.layout is not None
    degrees = degrees_of(parallel.layout)
    if choice.dtype not in _PRECISIONS:
        raise BadCase(f"--dtype {choice.dtype}", f"there are {', '.join(_PRECISIONS)}")
    given: dict[str, Any] = degrees | {
        "virtual": virtual,
        "sequence_parallel": parallel.sequence_parallel and degrees.get("tp", 1) > 1,
        "zero_stage": parallel.zero,
        "recompute": parallel.recompute,
        "precision": _PRECISIONS[choice.dtype],
        "micro_batch": choice.micro_batch,
        "global_batch": degrees.get("dp", 1) * microbatches * choice.micro_batch * parallel.accumulate,
        "seq": choice.seq,
        "split": layer_counts(parallel.split) if parallel.split[:1].isdecimal() else parallel.split,
    }
    return Layout(**given)


@dataclass(frozen=True)
class Asked:
    """All that a command line says of a training run."""

    name: str
    choice: JobChoice
    parallel: ParallelChoice
    schedule: ScheduleOptions
    metrics: Path | None = None


def first_layout(asked: Asked) -> Layout:
    """The layout that is asked for. Raises BadCase, BadLayout, and what building a schedule raises."""
    parallel = asked.parallel
    assert parallel.layout is not None
    pp = degrees_of(parallel.layout).get("pp", 1)
    if asked.schedule.ranks not in (None, pp):
        raise BadCase(f"--ranks {asked.schedule.ranks}, but --layout {parallel.layout}", "leave --ranks out")
    made = schedule_from_options(asked.name, replace(asked.schedule, ranks=pp))
    return layout_of(asked.choice, parallel, microbatches=made.microbatches, virtual=made.placement.length // pp)


def train_of(asked: Asked, layout: Layout, keep: Any = None) -> Any:
    """The `Training` at a layout, checked. Raises what is wrong with it."""
    from pipesim.backends.parallel.places import check_layout, of_stages
    from pipesim.backends.parallel.rates import Rates
    from pipesim.backends.stage import StageOptions
    from pipesim.backends.training.task import Training

    choice, parallel = asked.choice, asked.parallel
    _refuse(choice)
    count, left = divmod(layout.microbatches, parallel.accumulate)
    if left or not count:
        raise BadLayout(f"{layout.microbatches} microbatches in {parallel.accumulate} runs", "a whole number works")
    made = schedule_from_options(asked.name, replace(asked.schedule, ranks=layout.pp, microbatches=count))
    layout = of_stages(layout, made.placement.length)
    check_layout(layout, layout.gpus)
    clip = parallel.clip > 0 and made.update_every is None
    program = lower(made, comm=policy_of(choice.comm), reduce=layout.dp > 1, clip=clip)
    check_program(program)
    source = _source(choice, parallel)
    source.check(layout, made.placement.length)
    if parallel.save is not None and not hasattr(source, "config"):
        raise BadCase("--save with a model that has no config.json", "it works with Hugging Face's architectures")
    return Training(
        program,
        layout,
        source,
        Rates(choice.lr, parallel.warmup, parallel.lr_shape, choice.steps),  # type: ignore[arg-type]  # Rates checks
        steps=choice.steps,
        samples=choice.micro_batch,
        rounds=parallel.accumulate,
        clip_norm=parallel.clip or None,
        stage=StageOptions(strategy=choice.split_backward, seed=choice.seed),
        overlap=parallel.overlap,
        report=choice.dtype != "fp64" and hasattr(source, "config"),
        metrics=asked.metrics,
        save=parallel.save,
        keep=keep,
    )


def _refuse(choice: JobChoice) -> None:
    """Raises BadCase for what only a single pipeline in one piece can do."""
    for option, given in (
        ("--emulate", choice.emulate is not None),
        ("--dynamic-shapes", choice.dynamic_shapes),
        ("--no-check", choice.no_check),
    ):
        if given:
            raise BadCase(f"{option} with --layout or --checkpoint", f"leave one of them out: {option} is of --ranks")


def _source(choice: JobChoice, parallel: ParallelChoice) -> Any:
    """Raises BadCase, BadModelSource, and what reading a model or a text raises."""
    from pipesim.backends.huggingface.folder import has_weights
    from pipesim.backends.job.sources import FileSource, find_source
    from pipesim.backends.model.config import load_decoder
    from pipesim.backends.parallel.sources import DecoderSource, ModulesSource

    model = choice.model
    if model is None:
        raise BadCase("--layout without --model", "give tiny-llama, a Hugging Face folder, or my_module.py:stages")
    if ".py:" in model:
        file = find_source(model, seq=choice.seq, seed=choice.seed, dtype=choice.dtype)
        assert isinstance(file, FileSource)
        return ModulesSource(file, choice.dtype)
    folder = model if Path(model).is_dir() else None
    return DecoderSource(
        load_decoder(model),
        choice.seq,
        choice.seed,
        choice.dtype,
        folder if folder is not None and has_weights(folder) else None,
        parallel.data,
        parallel.tokenizer or folder,
    )


def run_ranks(function: Any, task: Any, ranks: int, choice: JobChoice) -> Any:
    """Run a worker function on all ranks of a layout; what rank 0 gives (None on torchrun's other workers)."""
    from pipesim.backends.job.local import JobOptions, run_local
    from pipesim.backends.job.worker import WrongWorldSize, as_member
    from pipesim.backends.parallel.places import WrongWorld, fitting, short

    if under_torchrun():
        try:
            return as_member(ranks, choice.device, choice.timeout, function, task)
        except WrongWorldSize as error:
            fits = fitting(task.layout, error.processes)
            raise WrongWorld(short(task.layout), ranks, error.processes, fits) from None
    options = JobOptions(choice.device, choice.timeout, choice.port, task.program)
    return run_local(ranks, function, task, options=options)[0]


def run_layout(asked: Asked) -> tuple[Any, Any]:
    """Train as asked for, in one piece: the task, and what rank 0 knows of it (None on others)."""
    from pipesim.backends.training.train import train

    task = train_of(asked, first_layout(asked))
    return task, run_ranks(train, task, task.layout.gpus, asked.choice)


def tell(task: Any, found: Any, outputs: Outputs) -> None:
    """Write and print what a run that has ended has come to."""
    from pipesim.backends.measure.timelines import assemble

    if not found.records:
        for option, path in (("--out", outputs.out), ("--trace", outputs.trace), ("--timeline", outputs.timeline)):
            if path is not None:
                raise BadCase(f"{option} of a job that was done already", "it shows a step: give more --steps")
        print(json.dumps({"losses": []}) if outputs.as_json else f"all {task.steps} steps are done")
        return
    made = assemble(task.program, found.records)
    figures = summarize(made)
    outputs.write(made, figures)
    report(task, found, made, figures, as_json=outputs.as_json)
