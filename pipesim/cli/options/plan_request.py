"""What a `pipesim plan` command line asks for: the job, and the choices to try."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, cast

import typer

from pipesim.cli.options import case
from pipesim.cli.options.case import policy_of
from pipesim.costs.clusters.cluster_catalogue import load_cluster
from pipesim.costs.layouts.layout import Recompute
from pipesim.costs.models.model_catalog import load_model
from pipesim.plan.request import ImpossibleRequest, Request
from pipesim.units import parse_bytes


def _numbers_of(*names: str, what: str) -> Any:
    return typer.Option(*names, metavar="1,2,4", help=f"{what} to try.", show_default="all that make sense")


@dataclass(frozen=True)
class JobOptions:
    """The training job, as given."""

    panel: ClassVar[str] = "Job"

    model: case.ModelName = None
    cluster: case.ClusterName = None
    global_batch: case.GlobalBatch = None
    seq: case.Seq = 4096
    precision: case.PrecisionName = "bf16"
    framework: case.FrameworkName = "megatron-lm"
    memory_limit: Annotated[
        str | None, typer.Option("--memory-limit", "--max-memory", help="Most a GPU may hold, e.g. 76GB.")
    ] = None
    comm: case.CommPolicy = "edge"


@dataclass(frozen=True)
class SpaceOptions:
    """What is tried, as given."""

    panel: ClassVar[str] = "Choices to try"

    schedules: Annotated[str | None, typer.Option("--schedules", help="Families, e.g. 1f1b,interleaved,zb-v.")] = None
    tp: Annotated[str | None, _numbers_of("--tp", what="Tensor-parallel degrees")] = None
    pp: Annotated[str | None, _numbers_of("--ranks", "--pp", "-p", what="Pipeline ranks")] = None
    dp: Annotated[str | None, _numbers_of("--dp", what="Data-parallel degrees")] = None
    cp: Annotated[str | None, _numbers_of("--cp", what="Context-parallel degrees")] = None
    ep: Annotated[str | None, _numbers_of("--ep", what="Expert-parallel degrees")] = None
    micro_batch: Annotated[str | None, _numbers_of("--micro-batch", what="Sequences a microbatch")] = None
    virtual: Annotated[str | None, _numbers_of("--virtual", "-v", what="Stages a rank")] = None
    zero: Annotated[str | None, _numbers_of("--zero", what="ZeRO stages")] = None
    recompute: Annotated[str, typer.Option("--recompute", help="Some of none, selective, full.")] = (
        "none,selective,full"
    )
    split: Annotated[str, typer.Option("--split", help="Rules of layers to stages; or numbers, 10+12+10.")] = (
        "even,balanced"
    )
    tp_across_nodes: Annotated[
        bool, typer.Option("--tp-across-nodes", help="Tensor-parallel groups may span nodes.")
    ] = False


def request_of(job: JobOptions, space: SpaceOptions) -> Request:
    """The request of a command line. Raises ImpossibleRequest, BadCase, BadQuantity and what reading models raises."""
    limit = job.memory_limit
    return Request(
        model=load_model(required("--model", job.model, "llama-3-8b")),
        cluster=load_cluster(required("--cluster", job.cluster, "dgx-h100:8")),
        global_batch=required("--global-batch", job.global_batch, "1024"),
        seq=job.seq,
        precision=job.precision,
        framework=job.framework,
        max_memory_bytes=None if limit is None else parse_bytes(limit, name="memory limit", positive=True),
        schedules=None if space.schedules is None else tuple(space.schedules.split(",")),
        tp=_numbers("tp", space.tp),
        pp=_numbers("pp", space.pp),
        dp=_numbers("dp", space.dp),
        cp=_numbers("cp", space.cp),
        ep=_numbers("ep", space.ep),
        micro_batch=_numbers("micro-batch", space.micro_batch),
        virtual=_numbers("virtual", space.virtual),
        zero=_numbers("zero", space.zero, least=0),
        recompute=cast(tuple[Recompute, ...], tuple(space.recompute.split(","))),  # Request refuses other words
        splits=tuple(map(_split, space.split.split(","))),
        tp_across_nodes=space.tp_across_nodes,
        comm=policy_of(job.comm),
    )


def required(option: str, value: Any, example: str) -> Any:
    """The value of an option that has to be given. Raises ImpossibleRequest."""
    if value is None:
        raise ImpossibleRequest(f"no {option}", f"give one, e.g. {option} {example}")
    return value


def _numbers(name: str, text: str | None, least: int = 1) -> tuple[int, ...] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) >= least for part in parts):
        raise ImpossibleRequest(f"--{name} {text}: not whole numbers from {least}", f"expected e.g. --{name} 1,2,4")
    return tuple(int(part) for part in parts)


def _split(text: str) -> Any:
    return tuple(int(part) for part in text.split("+")) if text.replace("+", "").isdecimal() else text
