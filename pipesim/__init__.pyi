# Written by `make stub` from the list in __init__.py.
from pipesim.costs.clusters.cluster_catalogue import load_cluster as load_cluster
from pipesim.costs.costs import Costs as Costs
from pipesim.costs.estimate import estimate as estimate
from pipesim.costs.layouts.layout import Layout as Layout
from pipesim.costs.models.model import Model as Model
from pipesim.costs.models.model_catalog import load_model as load_model
from pipesim.costs.plain import parse_costs as parse_costs
from pipesim.engine.choose import simulate as simulate
from pipesim.errors import PipesimError as PipesimError
from pipesim.ir.action import Action as Action
from pipesim.ir.action import Kind as Kind
from pipesim.ir.check import check as check
from pipesim.ir.lower import lower as lower
from pipesim.ir.placement import Placement as Placement
from pipesim.ir.program import Program as Program
from pipesim.ir.schedule import Schedule as Schedule
from pipesim.metrics import summarize as summarize
from pipesim.schedules.lookup import build as build
from pipesim.timeline import Timeline as Timeline
from pipesim.timeline_file import load_timeline as load_timeline
from pipesim.timeline_file import save_timeline as save_timeline
from pipesim.viz.chart import chart as chart
from pipesim.viz.comparison import comparison as comparison
from pipesim.viz.difference import difference as difference
from pipesim.viz.kineto import read_profiler_traces as read_profiler_traces
from pipesim.viz.output import write_figure as write_figure
from pipesim.viz.page import write_html as write_html
from pipesim.viz.trace import write_trace as write_trace

__version__: str
