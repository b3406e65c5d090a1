"""Which layout for Llama-3-70B on 64 H100s? The three best, and why the first is the best.

python examples/plan_70b.py
"""

import pipesim
from pipesim.plan.evaluate import priced
from pipesim.plan.planner import search
from pipesim.plan.request import Request

request = Request(
    model=pipesim.load_model("llama-3-70b"),
    cluster=pipesim.load_cluster("dgx-h100:8"),
    global_batch=128,
    seq=8192,
    tp=(4, 8),
    cp=(1,),
    zero=(0, 1),
    micro_batch=(1,),
    max_memory_bytes=76e9,  # what a framework can really have of 80 GB
    schedules=("1f1b", "interleaved", "zb-v"),
)
found = search(request, top=3)
counts = found.counts
print(f"{counts.enumerated:,} choices: {counts.too_large:,} too large, {counts.bounded:,} cannot be among the best,")
print(f"{counts.simulated} simulated")
for place, outcome in enumerate(found.best, 1):
    choice, core = outcome.choice, outcome.choice.core
    stages = f"{choice.virtual or 1} stages a rank, {choice.split} split"
    layout = f"tp {core.tp}, pp {choice.pp}, dp {choice.dp}, recompute {core.recompute}"
    print(f"{place}. {choice.schedule}, {stages}, {layout}:", end=" ")
    print(f"{outcome.step_time_s:.2f} s a step, {outcome.peak_bytes / 1e9:.1f} GB")

# The best one once more in full, with transfers that share links: its bubble, and where idle time comes from.
schedule, made = priced(request, found.best[0].choice, contention=True)
timeline = pipesim.simulate(pipesim.lower(schedule, clip=True), made.costs)
figures = pipesim.summarize(timeline, made.costs)
assert figures.mfu is not None
print(f"the first: MFU {figures.mfu:.1%}, bubble {figures.bubble_fraction:.1%}; idle time by cause:")
idle = sum(figures.idle_s.values())
for cause, seconds in sorted(figures.idle_s.items(), key=lambda item: -item[1])[:3]:
    print(f"   {cause:10} {seconds / idle:5.1%}")
