"""Options and steps that `run`, `profile` and `validate` share: what is run, on which processes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated, Any, ClassVar, Literal

import typer

from pipesim.cli.options.case import BadCase, offered_times, policy_of
from pipesim.cli.options.schedule import ScheduleOptions, schedule_from_options
from pipesim.costs.plain import parse_costs
from pipesim.engine.durations import durations
from pipesim.errors import PipesimError
from pipesim.ir.check import check_program
from pipesim.ir.formats import read_program
from pipesim.ir.lower import lower
from pipesim.ir.program import Program
from pipesim.schedules.lookup import is_file

Model = Annotated[str | None, typer.Option("--model", help="tiny-llama, or my_module.py:stages.")]
Emulate = Annotated[
    str | None, typer.Option("--emulate", help="Stages that only wait: F=20ms,I=20ms,W=10ms (a rank's share).")
]
Steps = Annotated[int, typer.Option("--steps", min=1, help="Steps, after a first one that is not counted.")]
Device = Annotated[Literal["cpu", "cuda"], typer.Option("--device", help="cpu (gloo) or cuda (NCCL).")]
MicroBatch = Annotated[int, typer.Option("--micro-batch", min=1, help="Samples a microbatch.")]
Seq = Annotated[int, typer.Option("--seq", min=2, help="Tokens a sequence.")]
Dtype = Annotated[Literal["fp32", "fp64", "bf16"], typer.Option("--dtype", help="Numbers of weights and activations.")]
Lr = Annotated[float, typer.Option("--lr", min=0, help="Learning rate of AdamW; 0 only accumulates gradients.")]
Seed = Annotated[int, typer.Option("--seed", help="Of weights, data and dropout.")]
CommPolicy = Annotated[str, typer.Option("--comm", help="How transfers queue: edge or blocking (pair, rank: NCCL).")]
SplitBackward = Annotated[
    str, typer.Option("--split-backward", help="How backwards are split: graph, two_pass, module or whole.")
]
DynamicShapes = Annotated[bool, typer.Option("--dynamic-shapes", help="Shapes may differ from step to step.")]
Timeout = Annotated[
    float, typer.Option("--timeout", min=0.1, max=1e6, help="Seconds without progress before giving up.")
]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="Of the rendezvous; 0 finds a free one.")]
NoCheck = Annotated[bool, typer.Option("--no-check", help="Run a program that the checker refuses.")]


@dataclass(eq=False)
class MissingTorch(PipesimError):
    """The part of pipesim that runs is not installed."""

    def __str__(self) -> str:
        return "running needs PyTorch 2.13, which is not installed: pip install 'pipesim[run]'"


def require_torch() -> None:
    """Raises MissingTorch."""
    if find_spec("torch") is None:
        raise MissingTorch


@dataclass(frozen=True)
class JobChoice:
    """What is run and how, as given on a command line."""

    panel: ClassVar[str] = "Run"

    model: Model = None
    emulate: Emulate = None
    steps: Steps = 5
    device: Device = "cpu"
    micro_batch: MicroBatch = 1
    seq: Seq = 64
    dtype: Dtype = "fp32"
    lr: Lr = 1e-3
    seed: Seed = 0
    comm: CommPolicy = "edge"
    split_backward: SplitBackward = "graph"
    dynamic_shapes: DynamicShapes = False
    timeout: Timeout = 60.0
    port: Port = 0
    no_check: NoCheck = False


def program_of(name: str, choice: JobChoice, schedule: ScheduleOptions) -> tuple[Program, bool]:
    """The program to run, and whether it has to be run strictly as written, because it is broken but forced.

    Raises BadCase, BrokenSchedule, Deadlock and what building a schedule raises.
    """
    comm = policy_of(choice.comm)
    offered = offered_times(parse_costs(choice.emulate)) if choice.emulate is not None else {}
    made = schedule_from_options(name, schedule, offered=offered)
    program = (read_program(name, comm=comm) if is_file(name) else None) or lower(made, comm=comm)
    try:
        check_program(program)
    except PipesimError:
        if not choice.no_check:
            raise
        return program, True
    return program, False


def task_of(program: Program, choice: JobChoice, *, strict: bool = False, weigh_memory: bool = True) -> Any:
    """The `Task` of the workers. Raises BadCase, BadModelSource."""
    from pipesim.backends.execute.plan import require_runnable
    from pipesim.backends.job.sources import find_source
    from pipesim.backends.job.train import Task
    from pipesim.backends.split.strategies import STRATEGIES
    from pipesim.backends.stage import StageOptions

    if (choice.model is None) == (choice.emulate is None):
        raise BadCase(
            "what should run?", "give --model tiny-llama, --model my_module.py:stages, or --emulate F=20ms,B=30ms"
        )
    if choice.split_backward not in STRATEGIES:
        raise BadCase(f"--split-backward {choice.split_backward}", f"there are {', '.join(STRATEGIES)}")
    if program.comm in ("pair", "rank") and choice.device == "cpu":
        raise BadCase(f"--comm {program.comm} on gloo, which has no such queues", "use --comm edge or blocking")
    require_runnable(program)
    if choice.model is not None and program.schedule.slicing == "autoregressive":
        raise BadCase("a schedule that decodes tokens does not train", "use `pipesim generate`, or --emulate")
    source = None
    if choice.model is not None:
        source = find_source(choice.model, seq=choice.seq, seed=choice.seed, dtype=choice.dtype)
        source.modules(program.schedule.placement.length)
    emulate = None
    if choice.emulate is not None:
        emulate = parse_costs(choice.emulate).of(program.schedule)
        durations(program, emulate)  # says which time is missing
    return Task(
        program,
        source,
        emulate,
        steps=choice.steps,
        samples=choice.micro_batch,
        lr=choice.lr,
        stage=StageOptions(strategy=choice.split_backward, seed=choice.seed),
        dynamic_shapes=choice.dynamic_shapes,
        strict=strict,
        weigh_memory=weigh_memory,
    )


def under_torchrun() -> bool:
    """Whether this process is one that torchrun has started."""
    return "TORCHELASTIC_RUN_ID" in os.environ and "RANK" in os.environ


def run_job(function: Any, task: Any, choice: JobChoice) -> Any:
    """Run a worker function on as many processes as the program has ranks; what rank 0 gives.

    Under torchrun this process is one of them; the result is None on all but rank 0.
    Raises JobFailed, CannotStart, and on a torchrun worker what went wrong there.
    """
    from pipesim.backends.job.local import JobOptions, run_local
    from pipesim.backends.job.worker import as_member

    ranks = task.program.ranks
    if under_torchrun():
        return as_member(ranks, choice.device, choice.timeout, function, task)
    options = JobOptions(choice.device, choice.timeout, choice.port, task.program)
    return run_local(ranks, function, task, options=options)[0]
