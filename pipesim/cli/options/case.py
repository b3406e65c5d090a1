"""What a command line describes: a schedule and its costs, from plain numbers or from model, cluster and layout.

`simulate`, `compare`, `report` and others take the same options, declared here once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from pipesim.cli.options.groups import changed
from pipesim.cli.options.schedule import ScheduleOptions, schedule_from_options, transfers_of
from pipesim.costs.costs import Costs
from pipesim.costs.costs_file import read_costs_file
from pipesim.costs.estimate import Estimate, estimate, typical_times
from pipesim.costs.layouts.layout import Layout
from pipesim.costs.plain import PlainCosts, parse_costs
from pipesim.costs.times.habits import USUAL_TENSOR_OVERLAP, Habits, habits_of
from pipesim.errors import PipesimError
from pipesim.ir.lower import lower
from pipesim.ir.program import COMM_POLICIES, Comm, Program
from pipesim.ir.schedule import Schedule

CostsText = Annotated[
    str | None,
    typer.Option("--costs", metavar="TEXT|FILE", help="Times: F=18ms,I=18ms,W=9ms,C=0.6ms, or a file of `profile`."),
]
ModelName = Annotated[
    str | None, typer.Option("--model", help="A model of the catalogue, a Hugging Face config.json or its folder.")
]
ClusterName = Annotated[str | None, typer.Option("--cluster", help="PRESET:NODES such as dgx-h100:8, or a file.")]
Tp = Annotated[int, typer.Option("--tp", min=1, help="Tensor-parallel degree.")]
Dp = Annotated[int | None, typer.Option("--dp", min=1, help="Data-parallel degree (what fills the cluster).")]
Cp = Annotated[int, typer.Option("--cp", min=1, help="Context-parallel degree.")]
Ep = Annotated[int, typer.Option("--ep", min=1, help="Expert-parallel degree.")]
MicroBatch = Annotated[int, typer.Option("--micro-batch", min=1, help="Sequences a microbatch.")]
GlobalBatch = Annotated[int | None, typer.Option("--global-batch", min=1, help="Sequences a step of the whole job.")]
Seq = Annotated[int, typer.Option("--seq", min=1, help="Tokens a sequence.")]
PrecisionName = Annotated[str, typer.Option("--precision", help="bf16, fp16, fp32 or fp8.")]
RecomputeName = Annotated[str, typer.Option("--recompute", help="none, selective or full.")]
Zero = Annotated[int, typer.Option("--zero", min=0, max=3, help="ZeRO stage of optimizer, gradients and weights.")]
SequenceParallel = Annotated[
    bool | None,
    typer.Option("--sequence-parallel/--no-sequence-parallel", help="Split norms over tp (on where tp > 1)."),
]
Split = Annotated[str, typer.Option("--split", help="Layers to stages: even, balanced, … or numbers such as 10,12,10.")]
FrameworkName = Annotated[
    str, typer.Option("--framework", help="Whose kernels, overlap and host times: megatron-lm, nemo, nanotron, fsdp, …")
]
AttentionName = Annotated[str, typer.Option("--attention", help="flash, fused-softmax or unfused.")]
OverlapText = Annotated[
    str | None,
    typer.Option(
        "--overlap", help="What runs behind compute: none, or some of tensor,reduce,gather (as the framework does)."
    ),
]
CommPolicy = Annotated[
    str, typer.Option("--comm", help="Lanes of transfers: edge, pair, rank or blocking (see docs/concepts.md).")
]


_OVERLAPS = ("tensor", "reduce", "gather")


@dataclass(eq=False)
class BadCase(PipesimError):
    """Options that do not go together."""

    problem: str
    works: str

    def __str__(self) -> str:
        return f"{self.problem}; {self.works}"


@dataclass(frozen=True)
class CostOptions:
    """The options that say what things cost, as given."""

    panel: ClassVar[str] = "Costs: plain numbers, or model, cluster and layout"

    costs: CostsText = None
    model: ModelName = None
    cluster: ClusterName = None
    tp: Tp = 1
    dp: Dp = None
    cp: Cp = 1
    ep: Ep = 1
    micro_batch: MicroBatch = 1
    global_batch: GlobalBatch = None
    seq: Seq = 4096
    precision: PrecisionName = "bf16"
    recompute: RecomputeName = "none"
    zero: Zero = 0
    sequence_parallel: SequenceParallel = None
    split: Split = "even"
    comm: CommPolicy = "edge"
    framework: FrameworkName = "megatron-lm"
    attention: AttentionName = "flash"
    overlap: OverlapText = None


@dataclass(frozen=True, eq=False)
class Case:
    """One schedule with its program and costs; `estimate` where they come from a model."""

    schedule: Schedule
    program: Program
    costs: Costs
    estimate: Estimate | None = None
    facts: dict[str, Any] | None = None


def make_case(name: str, schedule: ScheduleOptions, options: CostOptions, *, lenient: bool = False) -> Case:
    """Build, check and price what a command line asks for. lenient: see `schedule_from_options`."""
    comm = policy_of(options.comm)
    if options.model is not None:
        if options.costs is not None:
            raise BadCase("--costs and --model are two sources of times", "give one of them")
        return _case_of_model(name, schedule, options, comm, lenient)
    if options.costs is None:
        raise BadCase(
            "no times given", "give --costs F=1,I=1,W=1, or --model and --cluster (e.g. llama-3-8b, dgx-h100:1)"
        )
    unused = changed(options, but=("costs", "comm"))
    if unused is not None:
        raise BadCase(f"{unused} with --costs, which are of a layout already", "leave it out, or give --model")
    return _case_of_numbers(name, schedule, options.costs, comm, lenient)


def _case_of_numbers(name: str, choice: ScheduleOptions, costs: str, comm: Comm, lenient: bool) -> Case:
    if "=" in costs and not Path(costs).exists():
        plain = parse_costs(costs)
        schedule = schedule_from_options(name, choice, offered=offered_times(plain), lenient=lenient)
        reduces = "reduce" in plain.values
        return Case(schedule, _lower(name, schedule, comm, reduces), plain.of(schedule))
    file = read_costs_file(Path(costs))
    schedule = schedule_from_options(name, choice, offered=file.typical_times(choice.ranks), lenient=lenient)
    return Case(schedule, _lower(name, schedule, comm, False), file.of(schedule))


def _lower(name: str, schedule: Schedule, comm: Comm, reduces: bool, clip: bool = False) -> Program:
    """The schedule's own program, or that of a file with transfers as they stand there."""
    written = transfers_of(name, schedule, comm)
    return lower(schedule, comm=comm, reduce=reduces, clip=clip) if written is None else written


def policy_of(text: str) -> Comm:
    """The lane policy of that name. Raises BadCase."""
    for policy in COMM_POLICIES:
        if policy == text:
            return policy
    raise BadCase(f"--comm {text}: no such policy", f"there are {', '.join(COMM_POLICIES)}")


def offered_times(plain: PlainCosts) -> dict[str, float]:
    """Times for families that build for the actual costs."""
    if "I" not in plain.values:
        return {}
    return {
        "forward": plain.number("F"),
        "input_grad": plain.number("I"),
        "weight_grad": plain.number("W"),
        "latency": plain.number("C"),
    }


def _case_of_model(name: str, choice: ScheduleOptions, options: CostOptions, comm: Comm, lenient: bool) -> Case:
    from pipesim.costs.clusters.cluster_catalogue import load_cluster
    from pipesim.costs.models.model_catalog import load_model

    if options.cluster is None:
        raise BadCase("--model without --cluster", "give a cluster such as --cluster dgx-h100:8")
    model, cluster = load_model(str(options.model)), load_cluster(options.cluster)
    layout = layout_of(options, 1 if choice.ranks is None else choice.ranks, cluster.devices)
    layout.check_gpus(cluster.devices)
    if choice.microbatches not in (None, layout.microbatches):
        raise BadCase(
            f"--microbatches {choice.microbatches}, but --global-batch {layout.global_batch} in micro-batches of "
            f"{layout.micro_batch} over dp={layout.dp} makes {layout.microbatches}",
            "leave --microbatches out",
        )
    choice = replace(choice, microbatches=layout.microbatches, ranks=layout.pp)
    times = typical_times(model, cluster, layout)
    schedule = schedule_from_options(name, choice, offered=times, lenient=lenient)
    made = estimate(model, cluster, layout, schedule.placement, habits=habits_with(options.framework, options.overlap))
    program = _lower(name, schedule, comm, layout.dp * layout.cp > 1, clip=schedule.update_every is None)
    facts = {"model": model.name, "cluster": cluster.name, "layout": describe(made.layout)}
    return Case(schedule, program, made.costs, made, facts)


def layout_of(options: CostOptions, ranks: int, devices: int) -> Layout:
    """The layout of a command line: dp is what fills the cluster, the global batch one microbatch a rank.

    Raises BadLayout, BadCase.
    """
    others = options.tp * ranks * options.cp
    dp = options.dp if options.dp is not None else max(1, devices // max(1, others))  # Layout refuses no ranks
    split = options.split
    return Layout(
        tp=options.tp,
        pp=ranks,
        dp=dp,
        cp=options.cp,
        ep=options.ep,
        sequence_parallel=options.tp > 1 if options.sequence_parallel is None else options.sequence_parallel,
        zero_stage=options.zero,
        recompute=options.recompute,  # type: ignore[arg-type]  # Layout refuses other words
        precision=options.precision,
        framework=options.framework,
        attention=options.attention,  # type: ignore[arg-type]
        micro_batch=options.micro_batch,
        global_batch=options.global_batch or ranks * dp * options.micro_batch,
        seq=options.seq,
        split=layer_counts(split) if split[:1].isdecimal() else split,  # type: ignore[arg-type]
    )


def habits_with(framework: str, overlap: str | None) -> Habits:
    """A framework's habits, with `overlap` in place of what it overlaps. Raises BadCase."""
    usual = habits_of(framework)
    if overlap is None:
        return usual
    words = {word.strip() for word in overlap.split(",")} - {"none", ""}
    if not words <= set(_OVERLAPS):
        raise BadCase(f"--overlap {overlap}: no such communication", f"none, or some of {','.join(_OVERLAPS)}")
    return replace(
        usual,
        tensor_overlap=(usual.tensor_overlap or USUAL_TENSOR_OVERLAP) if "tensor" in words else 0.0,
        reduce_overlap="reduce" in words,
        gather_overlap="gather" in words,
    )


def layer_counts(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise BadCase(f"--split {text}: not numbers of layers", "expected e.g. 10,12,10, one number a stage")
    return tuple(int(part) for part in parts)


def describe(layout: Layout) -> str:
    """A layout in a line: tp8 · pp8 · dp1 …"""
    degrees = {"tp": layout.tp, "pp": layout.pp, "dp": layout.dp, "cp": layout.cp, "ep": layout.ep}
    words = [f"{axis}{degree}" for axis, degree in degrees.items() if degree > 1 or axis in ("tp", "pp", "dp")]
    if layout.virtual > 1:
        words.append(f"v{layout.virtual}")
    words += [f"micro-batch {layout.micro_batch}", f"global batch {layout.global_batch}", f"seq {layout.seq}"]
    words += [layout.precision, *(["sequence parallel"] if layout.sequence_parallel else [])]
    if layout.recompute != "none":
        words.append(f"{layout.recompute} recompute")
    if layout.zero_stage:
        words.append(f"ZeRO-{layout.zero_stage}")
    return " · ".join(words)


def notes(case: Case) -> Sequence[str]:
    """What the reader should know of the case: uneven stages, assumptions."""
    if case.estimate is None:
        return ()
    layers = [stage.layers for stage in case.estimate.stages]
    uneven = [f"layers per stage differ: {layers}"] if len(set(layers)) > 1 else []
    return (*uneven, *case.estimate.assumptions)
