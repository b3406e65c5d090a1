"""How long simulating takes, by size: `python benchmarks/engine/run.py [--quick]`; writes results.txt beside it.

Each case runs in a process of its own, so that its peak memory is its own. Times are the best of three in
a process that has compiled before (the first use on a machine, which compiles, is measured by itself); all are
CPU time, as other work may share the machine.
Compare the figures of other tools, generate and simulate: PP-Schedule-Visualization 9.3 s, Primus 4.8 s at
1F1B 64 x 1024 (131k actions); 52 s and 8.7 s at interleaved v = 2 (262k).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from pipesim.costs.plain import parse_costs
from pipesim.engine import direct, event, fast
from pipesim.engine.durations import durations
from pipesim.ir.lower import lower
from pipesim.schedules.lookup import build

COSTS = parse_costs("F=18ms,I=18ms,W=9ms,C=0.6ms")
RESULTS = Path(__file__).with_name("results.txt")
# Family, ranks, microbatches, options.
EVENT_CASES = [("1f1b", 8, 64), ("1f1b", 16, 320), ("1f1b", 32, 1600)]
FAST_CASES = [
    ("1f1b", 8, 640), ("1f1b", 64, 800), ("1f1b", 64, 1024), ("1f1b", 64, 8192), ("1f1b", 64, 32768),
    ("interleaved", 64, 1024), ("interleaved", 64, 4096), ("gpipe", 64, 8192), ("seq1f1b", 64, 2048),
    ("zb-h1", 64, 5461), ("zb-v", 64, 1024),
]  # fmt: skip


def best(work: Callable[[], Any], times: int = 3) -> tuple[float, Any]:
    """Seconds of the fastest of some tries, and what the last one gave."""
    spent = []
    for _ in range(times):
        begun = time.process_time()
        made = work()
        spent.append(time.process_time() - begun)
    return min(spent), made


def measure(kind: str, name: str, ranks: int, microbatches: int) -> dict[str, Any]:
    """One row: seconds and MiB."""
    small = build(name, ranks=2, microbatches=4)
    direct.step(small, COSTS.of(small))  # load what was compiled
    whole, step = best(lambda: _whole(name, ranks, microbatches), 1 if kind == "event" else 3)
    row: dict[str, Any] = {"case": f"{name} {ranks}x{microbatches}", "makespan_s": step.makespan_s, "whole_s": whole}
    row["whole_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    schedule = build(name, ranks=ranks, microbatches=microbatches)
    row["actions"] = len(schedule)
    costs = COSTS.of(schedule)
    row["walk_s"] = _walk_seconds(schedule, costs)
    if kind == "event":
        program = lower(schedule)
        row["event_s"] = best(lambda: event.simulate(program, costs), 1)[0]
    row |= _program_seconds(schedule, costs)
    row["program_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return row


def _whole(name: str, ranks: int, microbatches: int) -> direct.Step:
    schedule = build(name, ranks=ranks, microbatches=microbatches)
    return direct.step(schedule, COSTS.of(schedule))


def _walk_seconds(schedule: Any, costs: Any) -> float:
    seconds, messages = direct.action_seconds(schedule.atoms, costs), direct.messages_of(schedule, costs)
    return best(lambda: direct.walked(schedule, seconds, messages))[0]


def _program_seconds(schedule: Any, costs: Any) -> dict[str, float]:
    """Of a timeline with every operation: lowering, and the sweep, along rows and along lanes."""
    lowering, program = best(lambda: lower(schedule), 2)
    parts = fast.holds(program, durations(program, costs), costs)
    rows, (start, end) = best(lambda: fast.along_rows(program, *parts))
    sweeper = fast.Sweeper(program)
    lanes, (same_start, same_end) = best(lambda: sweeper.run(*parts))
    assert (start == same_start).all()
    assert (end == same_end).all()
    return {"lower_s": lowering, "rows_s": rows, "lanes_s": lanes, "operations": len(program)}


def first_use() -> float:
    """CPU seconds of a first simulation with nothing compiled, the interpreter's start included."""
    code = (
        "from pipesim.schedules.lookup import build; from pipesim.ir.lower import lower;"
        "from pipesim.costs.plain import parse_costs; from pipesim.engine import fast;"
        "s = build('1f1b', ranks=2, microbatches=4); fast.simulate(lower(s), parse_costs('F=1,B=2').of(s))"
    )
    with tempfile.TemporaryDirectory() as folder:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "NUMBA_CACHE_DIR": folder})
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def machine() -> str:
    cpu = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), platform.processor())  # fmt: skip
    memory = psutil.virtual_memory().total / 2**30
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "numba", "simpy"))
    load = os.getloadavg()[0]
    return (
        f"{cpu}, {os.cpu_count()} cores, {memory:.0f} GiB; Python {platform.python_version()}, {packages}; "
        f"load {load:.1f} when measured"
    )


def table(rows: list[dict[str, Any]]) -> str:
    head = (
        "case",
        "actions",
        "name to makespan s",
        "peak MiB",
        "walk ns",
        "event ns",
        "lower ns",
        "rows ns",
        "lanes ns",
        "peak MiB",
    )
    lines = [head]
    for row in rows:
        each = 1e9 / row["actions"]
        lines.append((
            row["case"], f"{row['actions']:,}", f"{row['whole_s']:.3f}", f"{row['whole_mib']:.0f}",
            f"{row['walk_s'] * each:.0f}", f"{row['event_s'] * each:,.0f}" if "event_s" in row else "",
            f"{row['lower_s'] * each:.0f}", f"{row['rows_s'] * each:.0f}", f"{row['lanes_s'] * each:.0f}",
            f"{row['program_mib']:.0f}",
        ))  # fmt: skip
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--quick", action="store_true", help="only up to 200,000 actions")
    options.add_argument("--case", nargs=4)
    given = options.parse_args()
    if given.case:
        kind, name, ranks, microbatches = given.case
        print(json.dumps(measure(kind, name, int(ranks), int(microbatches))))
        return
    rows = []
    for kind, name, ranks, microbatches in [
        *(("event", *case) for case in EVENT_CASES), *(("fast", *case) for case in FAST_CASES)
    ]:  # fmt: skip
        if not (given.quick and ranks * microbatches > 70_000):
            case = [kind, name, str(ranks), str(microbatches)]
            done = subprocess.run(
                [sys.executable, __file__, "--case", *case], check=True, capture_output=True, text=True
            )
            rows.append(json.loads(done.stdout))
            print(rows[-1], file=sys.stderr)
    text = report(rows)
    print(text)
    if not given.quick:
        RESULTS.write_text(text + "\n")


def report(rows: list[dict[str, Any]]) -> str:
    return "\n".join([
        machine(),
        f"first use of the fast engine, compiling: {first_use():.1f} s",
        "Times are per action. To the left a step time straight from the schedule; then the event engine; to the right",
        "a timeline of all operations (sends and receives too): lowering, and sweeping along rows or along lanes.",
        "",
        table(rows),
    ])  # fmt: skip


if __name__ == "__main__":
    main()
