"""Where a search takes its costs from, as a command line says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipesim.cli.options.case import BadCase, CostOptions, layout_of, offered_times
from pipesim.cli.options.groups import changed
from pipesim.costs.clusters.cluster import Cluster
from pipesim.costs.costs import Costs
from pipesim.costs.costs_file import read_costs_file
from pipesim.costs.estimate import estimate, typical_times
from pipesim.costs.layouts.layout import Layout
from pipesim.costs.models.model import Model
from pipesim.costs.plain import parse_costs
from pipesim.ir.schedule import Schedule
from pipesim.plan.search.setting import Prices

Times = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class EstimatedPrices:
    """Costs that are estimated anew for each placement."""

    model: Model
    cluster: Cluster
    layout: Layout

    def of(self, schedule: Schedule) -> Costs:
        """Raises what `estimate` raises."""
        return estimate(self.model, self.cluster, self.layout, schedule.placement).costs


def prices_of(given: CostOptions, ranks: int, microbatches: int | None) -> tuple[Prices, Times, int]:
    """Costs, times for families that build for them, and the number of microbatches. Raises BadCase and others."""
    if given.model is not None:
        if given.costs is not None:
            raise BadCase("--costs and --model are two sources of times", "give one of them")
        return _of_model(given, ranks, microbatches)
    unused = changed(given, but=("costs",))
    if unused is not None:
        raise BadCase(f"{unused} with --costs, which are of a layout already", "leave it out, or give --model")
    if given.costs is None:
        raise BadCase("no times given", "give --costs F=1,I=1,W=1, a costs file, or --model and --cluster")
    if microbatches is None:
        raise BadCase("no number of microbatches given", f"give e.g. --microbatches {4 * ranks}")
    if "=" in given.costs and not Path(given.costs).exists():
        plain = parse_costs(given.costs)
        if not any(plain.number(key) for key in ("F", "B", "I", "W")):
            raise BadCase(f"--costs {given.costs}: nothing takes time", "give at least one above 0, e.g. F=1,I=1,W=1")
        return plain, offered_times(plain), microbatches
    file = read_costs_file(Path(given.costs))
    return file, file.typical_times(ranks), microbatches


def _of_model(given: CostOptions, ranks: int, microbatches: int | None) -> tuple[Prices, Times, int]:
    from pipesim.costs.clusters.cluster_catalogue import load_cluster
    from pipesim.costs.models.model_catalog import load_model

    if given.cluster is None:
        raise BadCase("--model without --cluster", "give a cluster such as --cluster dgx-h100:8")
    model, cluster = load_model(str(given.model)), load_cluster(given.cluster)
    layout = layout_of(given, ranks, cluster.devices)
    if given.global_batch is None and microbatches is not None:
        layout = replace(layout, global_batch=microbatches * layout.micro_batch * layout.dp)
    layout.check_gpus(cluster.devices)
    if microbatches not in (None, layout.microbatches):
        raise BadCase(
            f"--microbatches {microbatches}, but --global-batch {layout.global_batch} makes {layout.microbatches}",
            "leave --microbatches out",
        )
    return EstimatedPrices(model, cluster, layout), typical_times(model, cluster, layout), layout.microbatches
