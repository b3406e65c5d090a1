"""`pipesim compare`: several schedules on the same costs, side by side on one time axis."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from pipesim.cli import case as options
from pipesim.cli.case import CostOptions, make_case
from pipesim.cli.options import Group, MemoryLimit, Microbatches, Offload, Option, Ranks, Slices, Virtual
from pipesim.cli.simulate import EngineName, Json, engine_of, run_case, to_json, warn_if_too_large
from pipesim.files import require_writable

Names = Annotated[list[str], typer.Argument(help="Schedules by name, my_module.py:build, or files.")]
Out = Annotated[Path | None, typer.Option("--out", help="Charts under each other, .html; or .png, .svg, .pdf.")]


def compare(
    names: Names,
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
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Compare schedules on the same costs; an option counts for the schedules that have it.

    Example: pipesim compare gpipe 1f1b interleaved -p 4 -m 8 -v 2 --costs F=1,I=1,W=1 --out compare.html
    """
    if out is not None:
        require_writable(out)
    given = CostOptions(
        costs, model, cluster, tp, dp, cp, ep, micro_batch, global_batch, seq, precision, recompute, zero,
        sequence_parallel, split, comm,
    )  # fmt: skip
    chosen = engine_of(engine)
    choice: dict[str, Any] = {
        "ranks": ranks, "microbatches": microbatches, "virtual": virtual, "group": group, "slices": slices,
        "memory_limit": memory_limit, "offload": offload, "option": option, "lenient": True,
    }  # fmt: skip
    cases = [make_case(name, given, **choice) for name in names]
    runs = [run_case(case, chosen) for case in cases]
    if out is not None:
        from pipesim.viz.comparison import comparison
        from pipesim.viz.output import drawing_for, write_figure

        figure = comparison([made for made, _ in runs], [found for _, found in runs], **drawing_for(out))
        write_figure(figure, out)
    if as_json:
        print(json.dumps([to_json(case, found) for case, (_, found) in zip(cases, runs, strict=True)]))
    else:
        from pipesim.cli.tables import comparison_table, console

        console().print(comparison_table([case.schedule.name for case in cases], [found for _, found in runs]))
    for case, (_, found) in zip(cases, runs, strict=True):
        warn_if_too_large(case, found)
