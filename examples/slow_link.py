"""What a slow link costs: Llama-3-8B on two nodes of four H100s, with less and less network between them.

python examples/slow_link.py
"""

from itertools import pairwise

import pipesim
from pipesim.costs.clusters.cluster_catalogue import plain_cluster

model = pipesim.load_model("llama-3-8b")
layout = pipesim.Layout(pp=8, micro_batch=1, global_batch=32, seq=8192)
schedules = {
    "1f1b": pipesim.build("1f1b", ranks=8, microbatches=32),
    "interleaved": pipesim.build("interleaved", ranks=8, microbatches=32, virtual=2),
    "zb-v": pipesim.build("zb-v", ranks=8, microbatches=32),
}


def seconds(name: str, gbit_per_s: float, comm: str) -> float:
    """Step time where all of a node's GPUs share so much network."""
    nodes = {"nodes": 2, "gpus_per_node": 4, "ports": 1}
    cluster = plain_cluster("h100-sxm", network="ethernet", node_gbit_per_s=gbit_per_s, **nodes)
    costs = pipesim.estimate(model, cluster, layout, schedules[name].placement).costs
    return pipesim.simulate(pipesim.lower(schedules[name], clip=True, comm=comm), costs).step_time_s


for comm, how in (("edge", "transfers beside compute"), ("blocking", "transfers inside the compute lane")):
    print(f"{how}: seconds a step")
    print("   Gbit/s " + "".join(f"{name:>12}" for name in schedules))
    for gbit_per_s in (400, 100, 25, 10):
        times = (seconds(name, gbit_per_s, comm) for name in schedules)
        print(f"   {gbit_per_s:6} " + "".join(f"{time:12.3f}" for time in times))
print("A slow link that is hidden costs next to nothing, until it is itself the slowest stage. Then what counts is how")
print("often a microbatch's forward crosses it:", end="")
for name, schedule in schedules.items():
    nodes = [rank // 4 for rank in schedule.placement.ranks_of_stages]
    print(f" {name} {sum(one != other for one, other in pairwise(nodes))}", end="")
print()
