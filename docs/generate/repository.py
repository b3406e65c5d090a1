"""Pages from files outside docs/: the README as the home page, the examples, how to contribute, what changed."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from docs.generate import notebook

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/RESULTS.md": "benchmarks.md",
}
_EXAMPLES = "examples.md"
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def pages() -> dict[str, str]:
    """File below the documentation's folder -> its text."""
    found = {page: _moved(ROOT.joinpath(source).read_text(encoding="utf-8"), source) for source, page in PAGES.items()}
    found[_EXAMPLES] = _examples(sorted(ROOT.joinpath("examples").glob("*.py")))
    for name, text in notebook.page(ROOT / "examples" / "tour.ipynb", "tour").items():
        found[name] = _moved(text, "examples/tour.ipynb") if name.endswith(".md") else text
    return found


def _moved(text: str, source: str) -> str:
    """Links as seen from docs/; those to files that have no page become their text."""

    def moved(found: re.Match[str]) -> str:
        picture, text, target = found.groups()
        if "://" in target or target.startswith("#"):
            return found[0]
        if target.startswith("tour-"):  # a picture of the notebook's page
            return found[0]
        path, _, place = target.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        page = PAGES.get(path) or {"examples": _EXAMPLES}.get(path)
        if path.startswith("docs/"):
            page = path.removeprefix("docs/")
        if page is None:
            return text if path == text.strip("`/") else f"{text} (`{path}`)"
        return f"{picture}[{text}]({page}{'#' if place else ''}{place})"

    return _LINK.sub(moved, text)


def _examples(paths: list[Path]) -> str:
    """Every example with its program and what it prints."""
    parts = ["# Examples\n", "Programs of `examples/`, each run by a test that holds it to the output below it.\n"]
    for path in paths:
        if path.name.startswith("_"):
            continue
        parts += [f"## {path.stem.replace('_', ' ').capitalize()}\n", f"`examples/{path.name}`\n"]
        parts.append(f"```python\n{path.read_text(encoding='utf-8').rstrip()}\n```\n")
        printed = path.with_suffix(".txt").read_text(encoding="utf-8").rstrip()
        parts.append(f"```text\n{printed}\n```\n")
    return "\n".join(parts)
