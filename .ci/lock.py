"""Writes constraints.txt: what pip would install today into a new environment with every extra."""

import json
import subprocess
import sys
from pathlib import Path

COMMAND = "pip install --quiet --dry-run --ignore-installed --report - -e .[run,search,app,images,docs,dev]"

report = subprocess.run([sys.executable, "-m", *COMMAND.split()], capture_output=True, text=True, check=True)
found = {
    # The local part of a version (torch 2.13.0+cpu) says which build: each machine has its own.
    item["metadata"]["name"].lower().replace("_", "-"): item["metadata"]["version"].split("+")[0]
    for item in json.loads(report.stdout)["install"]
}
found.pop("pipesim")

path = Path("constraints.txt")
comments = [line for line in path.read_text().splitlines() if line.startswith("#")]
path.write_text("\n".join([*comments, *(f"{name}=={found[name]}" for name in sorted(found))]) + "\n")
