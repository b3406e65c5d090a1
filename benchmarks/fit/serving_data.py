"""Copies rows of measured inference into tests/data/serving/inference.jsonl, one compact object a line.

    python benchmarks/fit/serving_data.py inference.jsonl

Each row is one figure of a public document, named in `source` with its commit and place.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

OUT = Path(__file__).parents[2] / "tests" / "data" / "serving" / "inference.jsonl"
KEPT = (
    "id", "model", "arch", "layers", "hidden", "heads", "kv_heads", "ffn", "gated_mlp", "vocab", "gpu", "num_gpus",
    "tp", "pp", "precision", "engine", "kind", "batch", "input_len", "output_len", "measured",
)  # fmt: skip


def main(path: Path) -> None:
    lines = [json.dumps(compact(json.loads(line)), separators=(",", ":")) for line in path.read_text().splitlines()]
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text("\n".join(lines) + "\n")
    print(f"{OUT}: {len(lines)} rows")


def compact(row: dict[str, Any]) -> dict[str, Any]:
    found = {key: row[key] for key in KEPT if row.get(key) is not None}
    return found | {"source": source(row["source"])}


def source(origin: dict[str, str]) -> str:
    place = origin.get("repo") or origin["url"]
    parts = (place, origin.get("commit", "")[:7], origin.get("file", ""), origin.get("where", ""))
    return " ".join(part for part in parts if part)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
