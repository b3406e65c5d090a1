"""Llama-3-70B on 1,024 H100s, all dimensions: `python benchmarks/planner/llama_1024.py`; writes llama_1024.txt.

How many choices there are, what became of them, how long it took; the aim is 60 s on two cores.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

COMMAND = "plan --model llama-3-70b --cluster dgx-h100:128 --global-batch 2048 --seq 8192"
RESULTS = Path(__file__).with_name("llama_1024.txt")


def main() -> None:
    begun = time.perf_counter()
    run = [sys.executable, "-m", "pipesim", *COMMAND.split(), "--workers", "2"]
    done = subprocess.run(run, check=True, capture_output=True, text=True)
    took = time.perf_counter() - begun
    load = os.getloadavg()[0]
    head = f"{took:.1f} s with 2 workers on {os.cpu_count()} cores, load {load:.1f}, start of Python included"
    text = f"{head}\n{done.stdout.partition('see it:')[0].rstrip()}\n"
    print(text, end="")
    RESULTS.write_text(text)


if __name__ == "__main__":
    main()
