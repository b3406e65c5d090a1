"""Why is my run slow? Traces of torch.profiler, one a rank, say which rank holds the others up, and what it costs.

The traces were recorded by `torchrun --nproc-per-node 4 examples/traces/record.py FOLDER`.

python examples/slow_run.py [FOLDER]
"""

import sys
from pathlib import Path

import numpy as np

import pipesim
from pipesim.costs.plain import PlainCosts
from pipesim.viz.sections.advice import advice

folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("traces")
timeline = pipesim.read_profiler_traces(sorted(folder.glob("rank*.json.gz")), name="run")
figures = pipesim.summarize(timeline)
schedule = timeline.program.schedule
print(f"{schedule.ranks} ranks, {schedule.microbatches} microbatches: {figures.makespan_s * 1e3:.1f} ms,", end=" ")
print(f"bubble {figures.bubble_fraction:.1%}")

# What each rank spends: a slow rank is busy while the others wait for it.
for rank, busy in enumerate(figures.per_rank.busy_s):
    waits = figures.per_rank.idle_s["producer"][rank]
    print(f"   rank {rank}: computes {busy * 1e3:6.1f} ms, waits {waits * 1e3:6.1f} ms for what others compute")
print("what pipesim says:")
for one in advice(timeline, figures)[:2]:
    print(f"   {one.text}")

# What if? The same order, simulated with the times of the trace, and with all ranks as fast as the median one.
ops, took = timeline.program.ops, timeline.end - timeline.start
stages = range(schedule.placement.stages)
measured = {
    letter: tuple(float(took[(ops.kind == pipesim.Kind[letter]) & (ops.stage == stage)].mean()) for stage in stages)
    for letter in "FB"
}
repaired = {letter: (float(np.median(times)),) * len(stages) for letter, times in measured.items()}
program = pipesim.lower(schedule)
now, then = (pipesim.simulate(program, PlainCosts(times).of(schedule)).makespan_s for times in (measured, repaired))
print(f"simulated with these times: {now * 1e3:.1f} ms")
print(f"with equal ranks:           {then * 1e3:.1f} ms, {now / then:.1f} times as fast")
