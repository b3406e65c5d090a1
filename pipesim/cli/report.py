"""`pipesim report`: one page on one step, with figures, what they mean, and where they come from."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from pipesim.cli import case as options
from pipesim.cli.case import Case, CostOptions, make_case, notes
from pipesim.cli.options import Group, MemoryLimit, Microbatches, Offload, Option, Ranks, Slices, Virtual
from pipesim.cli.simulate import EngineName, engine_of, run_case, warn_if_too_large
from pipesim.files import require_writable
from pipesim.metrics import summarize
from pipesim.timeline_file import load_timeline
from pipesim.viz.report import Report, write_report

Name = Annotated[
    str, typer.Argument(help="A schedule by name, my_module.py:build, a file of orders, or a saved timeline.")
]
Out = Annotated[Path, typer.Option("--out", help="The report, an HTML file.")]
_TIMELINES = (".npz", ".jsonl")


def report(
    name: Name,
    ranks: Ranks = None,
    microbatches: Microbatches = None,
    virtual: Virtual = None,
    group: Group = None,
    slices: Slices = None,
    memory_limit: MemoryLimit = None,
    offload: Offload = None,
    option: Option = None,
    costs: options.CostsText = None,
    model: options.ModelName = None,
    cluster: options.ClusterName = None,
    tp: options.Tp = 1,
    dp: options.Dp = None,
    cp: options.Cp = 1,
    ep: options.Ep = 1,
    micro_batch: options.MicroBatch = 1,
    global_batch: options.GlobalBatch = None,
    seq: options.Seq = 4096,
    precision: options.PrecisionName = "bf16",
    recompute: options.RecomputeName = "none",
    zero: options.Zero = 0,
    sequence_parallel: options.SequenceParallel = None,
    split: options.Split = "even",
    comm: options.CommPolicy = "edge",
    engine: EngineName = "auto",
    out: Out = Path("report.html"),
) -> None:
    """Write a report of one step: figures, charts, breakdowns, what to change, and how it was made.

    Example: pipesim report 1f1b --model llama-3-8b --cluster dgx-h100:1 --pp 8 --global-batch 64 --out report.html
    """
    require_writable(out)
    if Path(name).suffix in _TIMELINES:
        made = load_timeline(Path(name))
        write_report(Report(made, summarize(made), inputs=_facts(made.facts), command=_command()), out)
        return
    given = CostOptions(
        costs, model, cluster, tp, dp, cp, ep, micro_batch, global_batch, seq, precision, recompute, zero,
        sequence_parallel, split, comm,
    )  # fmt: skip
    case = make_case(
        name, given, ranks=ranks, microbatches=microbatches, virtual=virtual, group=group, slices=slices,
        memory_limit=memory_limit, offload=offload, option=option,
    )  # fmt: skip
    timeline, found = run_case(case, engine_of(engine))
    made_of = Report(
        timeline, found, case.costs, case.estimate, _inputs(case, given), notes(case), _command()
    )  # fmt: skip
    write_report(made_of, out)
    print(f"{out}: {case.schedule.name}, step {found.step_time_s:.4g} s, bubble {found.bubble_fraction:.1%}")
    warn_if_too_large(case, found)


def _inputs(case: Case, given: CostOptions) -> dict[str, str]:
    schedule = case.schedule
    found = {
        "schedule": schedule.name,
        "ranks": str(schedule.ranks),
        "stages": f"{schedule.placement.stages} ({schedule.placement.kind()})",
        "microbatches": str(schedule.microbatches),
        "transfers": f"--comm {case.program.comm}",
    }
    if given.costs is not None:
        found["costs"] = given.costs
    if case.estimate is not None:
        found["layers a stage"] = ", ".join(str(stage.layers) for stage in case.estimate.stages)
    return found | _facts(case.facts or {})


def _facts(facts: dict[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in facts.items()}


def _command() -> str:
    return shlex.join(["pipesim", *sys.argv[1:]])
