"""Runs the benchmarks and writes what each claims, what was measured, and on which machine.

    python -m benchmarks.run [--quick] [--only NAME ...] [--out benchmarks/RESULTS.md]

--quick takes some ten minutes on two cores, the whole an hour. Status 1 if a claim does not hold.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import psutil

from benchmarks.claims import BENCHMARKS, Benchmark, Claim

RESULTS = Path(__file__).with_name("RESULTS.md")
LONGEST_S = 3600.0
PACKAGES = ("numpy", "numba", "simpy", "torch", "plotly")


@dataclass(frozen=True)
class Line:
    """One claim as measured; `found` is empty where it was not."""

    name: str
    text: str
    found: str
    at_most: str
    verdict: str
    seconds: float


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="small cases; some ten minutes in all")
    options.add_argument("--only", nargs="+", choices=sorted(BENCHMARKS), help="these, and nothing is written")
    options.add_argument("--out", type=Path, help=f"the table ({RESULTS.name}, unless --only)")
    given = options.parse_args()
    out = given.out or (None if given.only else RESULTS)
    begun = about_machine(given.quick)
    lines: list[Line] = []
    for name in given.only or BENCHMARKS:
        print(f"{name} …", end=" ", flush=True)
        new = measured(name, BENCHMARKS[name], quick=given.quick)
        print("; ".join(f"{line.found or 'not run'}, {line.verdict}" for line in new), flush=True)
        lines += new
    table = page(begun, lines)
    print(table)
    if out:
        out.write_text(table)
    return any(line.verdict == "no" for line in lines)


def measured(name: str, benchmark: Benchmark, *, quick: bool) -> list[Line]:
    """Run one benchmark in a process of its own and measure its claims; again where one does not hold, if it may."""
    missing = "" if not benchmark.needs or find_spec(benchmark.needs) else f"needs {benchmark.needs}"
    if why := missing or ("not in the quick run" if quick and benchmark.quick is None else ""):
        return [Line(name, claim.text, "", format(claim.at_most, claim.form), why, 0.0) for claim in benchmark.claims]
    best = [math.inf] * len(benchmark.claims)
    begun = time.monotonic()
    for _ in range(benchmark.tries):
        if text := output(benchmark.module, (benchmark.quick or ()) if quick else (), first=benchmark.waits):
            found = [claim.measure(text) for claim in benchmark.claims]
            best = [min(pair) for pair in zip(best, found, strict=True)]
        if all(value <= claim.at_most for value, claim in zip(best, benchmark.claims, strict=True)):
            break
    took = time.monotonic() - begun
    return [_line(name, claim, value, took) for claim, value in zip(benchmark.claims, best, strict=True)]


def _line(name: str, claim: Claim, value: float, took: float) -> Line:
    shown = "" if value == math.inf else format(value, claim.form)
    verdict = "yes" if value <= claim.at_most else "no"
    return Line(name, claim.text, shown, format(claim.at_most, claim.form), verdict, took)


def output(module: str, arguments: Sequence[str], *, first: bool = False) -> str:
    """What a benchmark prints; nothing where it fails, which is said on stderr. first: before other work."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    root = Path(__file__).parents[1]
    try:
        ran = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            cwd=root,
            check=False,
            preexec_fn=_before_others if first else None,
        )
    except subprocess.TimeoutExpired:
        print(f"benchmarks.{module} took more than {LONGEST_S:.0f} s", file=sys.stderr)
        return ""
    if ran.returncode:
        print(f"benchmarks.{module} failed:\n{ran.stderr}", file=sys.stderr)
        return ""
    return ran.stdout


def _before_others() -> None:
    """This process, and those it starts, with real-time priority; as root, say."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def about_machine(quick: bool) -> list[str]:
    """When, where and with what."""
    memory = psutil.virtual_memory().total / 2**30
    cores = len(psutil.Process().cpu_affinity())
    versions = [f"{name} {one}" for name in PACKAGES if (one := _version(name))]
    return [
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {'quick' if quick else 'full'} run"
        + (f" of commit {commit}" if (commit := _commit()) else ""),
        f"{_processor()}, {cores} cores, {memory:.0f} GiB; load {os.getloadavg()[0]:.1f} at the beginning",
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}, {', '.join(versions)}",
    ]


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _commit() -> str:
    ran = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent, check=False
    )
    return ran.stdout.strip()


def page(about: Sequence[str], lines: Sequence[Line]) -> str:
    """The table, as Markdown."""
    kept = [line.verdict for line in lines]
    return "\n".join(
        [
            "# Benchmarks",
            "",
            "Written by `make bench` (`python -m benchmarks.run`). Every number is an error, or a ratio to something",
            "else of the same run, so it should hold on other machines, too; the smaller, the better.",
            "",
            *(f"- {one}" for one in about),
            f"- load {os.getloadavg()[0]:.1f} at the end; {kept.count('yes')} claims hold, {kept.count('no')} do not",
            "",
            "| benchmark | claim | measured | at most | holds | seconds |",
            "|---|---|---|---|---|---|",
            *(
                f"| `{line.name}` | {line.text} | {line.found} | {line.at_most} | {line.verdict} | {line.seconds:.0f} |"
                for line in lines
            ),
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
