"""Writes the pictures that stand for charts where pages are read as files: python -m docs.generate.pictures.

In the site the interactive chart takes the place of the picture below its comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from docs.generate.charts import draw

DOCS = Path(__file__).resolve().parents[1]
CHART = re.compile(r"^<!-- chart: (.+?) -->$(?:\n!\[[^\]]*\]\((?P<picture>[^)]+)\)$)?", re.MULTILINE)


def pictures() -> Iterator[tuple[Path, str]]:
    """The files of all pictures that pages ask for, and what is to be in them."""
    for page in sorted(DOCS.glob("*.md")):
        for found in CHART.finditer(page.read_text(encoding="utf-8")):
            yield DOCS / address(found[1]), draw(found[1]).picture


def address(arguments: str) -> str:
    """The picture of a chart, from the documentation's folder."""
    return f"images/charts/{re.sub('[^a-z0-9]+', '-', arguments.lower()).strip('-')}.svg"


if __name__ == "__main__":
    for path, text in pictures():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
