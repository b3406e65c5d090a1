"""Llama-3-8B on one node of H100s and one of A100s: equal stages make the fast node wait; fitted ones do not.

python examples/mixed_gpus.py
"""

from dataclasses import replace

import pipesim
from pipesim.costs.clusters.cluster_parts import cluster_of
from pipesim.plan.evaluate import priced
from pipesim.plan.planner import search
from pipesim.plan.request import Request

fast, slow = (pipesim.load_cluster(name).nodes[0] for name in ("dgx-h100", "dgx-a100"))
request = Request(
    model=pipesim.load_model("llama-3-8b"),
    cluster=cluster_of("an H100 node and an A100 node", [fast, slow]),
    global_batch=64,
    seq=4096,
    tp=(4,),
    pp=(4,),
    micro_batch=(1,),
    recompute=("none",),
    schedules=("1f1b",),
)
best = search(request, top=1).best[0].choice  # of a mixed cluster the planner also fits layers, and the order of nodes

times = {}
for split in ("even", best.split):
    schedule, made = priced(request, replace(best, split=split))
    timeline = pipesim.simulate(pipesim.lower(schedule, clip=True), made.costs)
    figures = pipesim.summarize(timeline, made.costs)
    times[split] = figures.step_time_s
    print(f"{split} stages: {figures.step_time_s:.3f} s a step, bubble {figures.bubble_fraction:.1%}")
    for rank, (site, stage) in enumerate(zip(made.sites, made.stages, strict=True)):
        busy = figures.per_rank.busy_s[rank]
        print(f"   rank {rank} on {site.gpu.name}: {stage.layers:2} layers, computes {busy:.3f} s")
print(f"with stages fitted to their GPUs a step takes {times[best.split] / times['even']:.0%} of that of equal ones")
