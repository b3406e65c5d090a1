"""Pages from files outside docs/: the README as the home page, the examples, how to contribute, what changed."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def pages() -> dict[str, str]:
    """File below the documentation's folder -> its text."""
    found = {"index.md": _moved(ROOT.joinpath("README.md").read_text(encoding="utf-8"))}
    for page, source in PROJECT.items():
        if ROOT.joinpath(source).exists():
            found[page] = _moved(ROOT.joinpath(source).read_text(encoding="utf-8"))
    examples = sorted(ROOT.joinpath("examples").glob("*.py"))
    if examples:
        found["examples.md"] = _examples(examples)
    return found


def _moved(text: str) -> str:
    """Links as seen from docs/: those into docs/ stay links, those to other files become their text."""

    def moved(found: re.Match[str]) -> str:
        picture, text, target = found.groups()
        if "://" in target or target.startswith("#"):
            return found[0]
        if target.startswith("docs/"):
            return f"{picture}[{text}]({target.removeprefix('docs/')})"
        pages = {source: page for page, source in PROJECT.items()} | {"README.md": "index.md"}
        if target in pages:
            return f"[{text}]({pages[target]})"
        if target.rstrip("/") == "examples":
            return f"[{text}](examples.md)"
        return f"{text} (`{target}`)" if target.strip("/") != text.strip("`/") else text

    return _LINK.sub(moved, text).replace('src="docs/', 'src="')


def _examples(paths: list[Path]) -> str:
    """Every example with its program and what it prints."""
    parts = ["# Examples\n", "Programs of `examples/`, each run by a test that holds it to the output below it.\n"]
    for path in paths:
        if path.name.startswith("_"):
            continue
        parts += [f"## {path.stem.replace('_', ' ').capitalize()}\n", f"`examples/{path.name}`\n"]
        parts.append(f"```python\n{path.read_text(encoding='utf-8').rstrip()}\n```\n")
        printed = path.with_suffix(".txt")
        if printed.exists():
            parts.append(f"```text\n{printed.read_text(encoding='utf-8').rstrip()}\n```\n")
    return "\n".join(parts)
