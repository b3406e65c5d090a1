"""pipesim: pipeline-parallel training schedules, simulated, drawn, searched and run.

    import pipesim

Every public name is reached from here and imported when it is first used, so that `import pipesim` costs
next to nothing and needs neither torch nor plotly.
"""

from importlib import import_module

__version__ = "0.1.0"

# Public name -> the module it comes from. After a change: `make stub`, which tells type checkers.
_PUBLIC = {
    "Action": "pipesim.ir.action",
    "Costs": "pipesim.costs.costs",
    "Kind": "pipesim.ir.action",
    "Layout": "pipesim.costs.layouts.layout",
    "Model": "pipesim.costs.models.model",
    "PipesimError": "pipesim.errors",
    "Placement": "pipesim.ir.placement",
    "Program": "pipesim.ir.program",
    "Schedule": "pipesim.ir.schedule",
    "Timeline": "pipesim.timeline",
    "build": "pipesim.schedules.lookup",
    "chart": "pipesim.viz.chart",
    "check": "pipesim.ir.check",
    "comparison": "pipesim.viz.comparison",
    "difference": "pipesim.viz.difference",
    "estimate": "pipesim.costs.estimate",
    "load_cluster": "pipesim.costs.clusters.cluster_catalogue",
    "load_model": "pipesim.costs.models.model_catalog",
    "load_timeline": "pipesim.timeline_file",
    "lower": "pipesim.ir.lower",
    "parse_costs": "pipesim.costs.plain",
    "read_profiler_traces": "pipesim.viz.kineto",
    "save_timeline": "pipesim.timeline_file",
    "simulate": "pipesim.engine.choose",
    "summarize": "pipesim.metrics",
    "write_figure": "pipesim.viz.output",
    "write_html": "pipesim.viz.page",
    "write_trace": "pipesim.viz.trace",
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> object:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'pipesim' has no attribute {name!r}", name=name, obj=None)
    value = getattr(import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
