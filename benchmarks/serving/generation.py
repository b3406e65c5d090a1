"""A measured generation beside a simulated one: a small decoder on gloo, several groups in flight.

    python benchmarks/serving/generation.py [--ranks 2] [--tokens 48] [--out comparison.html]

What a step takes on each stage, and what a message takes, is measured with one group in flight, where nothing
overlaps. From that the run with as many groups as ranks is predicted, and laid beside a real one.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from pipesim.agreement import agree
from pipesim.costs.costs import Costs
from pipesim.costs.network import Network, Route
from pipesim.engine.choose import simulate
from pipesim.ir.action import Kind
from pipesim.timeline import Timeline
from pipesim.timeline_file import load_timeline


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--model", default="demo-llama")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        alone = generation(given, Path(folder) / "alone.jsonl", groups=1)
        together = generation(given, Path(folder) / "together.jsonl", groups=given.ranks)
    predicted = simulate(together.program, costs_of(alone, given.ranks))
    found = agree(predicted, together)
    print(f"one group: {alone.makespan_s * 1e3:.1f} ms; {given.ranks} groups, each as large:")
    print(f"predicted {found.predicted_s * 1e3:.1f} ms, measured {found.measured_s * 1e3:.1f} ms: ", end="")
    print(
        f"{found.step_time_error:+.1%}; bubble {found.predicted_bubble:.1%} and {found.measured_bubble:.1%}; ", end=""
    )
    print(f"{found.same_order:.1%} of pairs in the same order")
    if given.out is not None:
        from pipesim.viz.comparison import comparison
        from pipesim.viz.page import write_html

        write_html(comparison([predicted, together]), given.out)


def generation(given: argparse.Namespace, file: Path, *, groups: int) -> Timeline:
    """The timeline of one real generation, two prompts a group."""
    prompts = [
        arg for row in range(2 * groups) for arg in ("--prompt-tokens", ",".join(map(str, range(1 + row, 33 + row))))
    ]
    layout = ["--layout", f"pp={given.ranks}", "--groups", str(groups), "--max-new-tokens", str(given.tokens)]
    command = [sys.executable, "-m", "pipesim", "generate", "--model", given.model, *layout, "--timeline", str(file)]
    subprocess.run([*command, *prompts], check=True, stdout=subprocess.DEVNULL)
    return load_timeline(file)


def costs_of(alone: Timeline, ranks: int) -> Costs:
    """Of each stage and token: the mean over the decoding steps, the prompt's step as it was; one time a message."""
    ops = alone.program.ops
    steps = ops.kind == Kind.F
    took, starts, ends = (alone.end - alone.start)[steps], alone.start[steps], alone.end[steps]
    stage, token = ops.stage[steps], ops.slice[steps]
    seconds = np.empty((ranks, 1, int(token.max()) + 1))
    for index in range(ranks):
        mine = stage == index
        seconds[index, 0, :] = took[mine & (token > 0)].mean()
        seconds[index, 0, 0] = took[mine & (token == 0)][0]
    order = np.argsort(starts, kind="stable")  # with one group no two steps overlap
    gaps = starts[order][1:] - ends[order][:-1]
    return Costs(ranks, {Kind.F: seconds}, network=Network(default=Route(float(gaps.mean()))))


if __name__ == "__main__":
    main()
