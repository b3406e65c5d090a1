"""The notebook of the examples as a page: its text, its cells, and what they gave when they were run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def page(path: Path, name: str) -> dict[str, str]:
    """The page `NAME.md` of a notebook, and its pictures as files beside it."""
    files: dict[str, str] = {}
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(f"{source}\n")
            continue
        parts.append(f"```python\n{source}\n```\n")
        for output in cell["outputs"]:
            picture = f"{name}-{len(files)}.svg"
            parts.append(_shown(output, picture))
            if "image/svg+xml" in output.get("data", {}):
                files[picture] = "".join(output["data"]["image/svg+xml"])
    return {f"{name}.md": "\n".join(parts)} | files


def _shown(output: dict[str, Any], picture: str) -> str:
    """One output as Markdown: a picture, else what a browser would show, else text."""
    data = output.get("data", {})
    if "image/svg+xml" in data:
        return f"![What the cell above draws]({picture})\n"
    if "text/html" in data:
        return f"{''.join(data['text/html'])}\n"
    text = "".join(output.get("text", data.get("text/plain", ""))).rstrip()
    return f"```text\n{text}\n```\n" if text else ""
