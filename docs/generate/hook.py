"""mkdocs' hook: adds the pages that are made from the code, and puts charts where a page asks for one.

A page asks with a comment: `<!-- chart: 1f1b -p 4 -m 8 --costs F=1,B=2 -->`, the arguments of `pipesim simulate`. The
picture on the line below it is for who reads the page as a file.
"""

from __future__ import annotations

import re
import sys
from html import escape
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # mkdocs loads this file by its path

from mkdocs.structure.files import File, Files
from mkdocs.utils import get_relative_url

from docs.generate import api, charts, commands, families, pictures, repository

_FOLDER = "assets/charts"


def on_config(config: Any) -> Any:
    """Fill in the parts of the navigation that are made: an entry whose value ends in `/`."""
    filled = {
        "families/": ["families/index.md", *_sections(families.titles())],
        "commands/": ["commands/index.md", *({title: path} for title, path in commands.titles())],
        "api/": ["api/index.md", *_sections(api.titles())],
    }

    def fill(entry: Any) -> Any:
        if isinstance(entry, list):
            return [fill(one) for one in entry]
        if isinstance(entry, dict):
            return {title: fill(value) for title, value in entry.items()}
        return filled.get(entry, entry)

    config["nav"] = fill(config["nav"])
    return config


def _sections(titles: list[tuple[str, list[tuple[str, str]]]]) -> list[dict[str, Any]]:
    """As entries of the navigation: a section for each group, a page where a group has only itself."""
    return [
        {group: members[0][1]} if len(members) == 1 else {group: [{title: path} for title, path in members]}
        for group, members in titles
    ]


def on_files(files: Files, config: Any) -> Files:
    """Add what is made."""
    made = families.pages() | commands.pages() | api.pages() | repository.pages()
    made |= {f"{_FOLDER}/{name}": text for name, text in charts.shared_files().items()}
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Put a frame with the chart in the place of each comment that asks for one."""

    def frame(found: re.Match[str]) -> str:
        drawing = charts.draw(found[1])
        _drawn[drawing.page] = drawing.html
        address = get_relative_url(f"{_FOLDER}/{drawing.page}", page.url)
        title = escape(f"Chart of {found[1]}", quote=True)
        return f'<iframe src="{address}" title="{title}" height="{drawing.height}" loading="lazy"></iframe>'

    return pictures.CHART.sub(frame, markdown)


def on_post_build(config: Any) -> None:
    """Write the charts that pages have asked for."""
    folder = Path(config["site_dir"]) / _FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, html in _drawn.items():
        folder.joinpath(name).write_text(html, encoding="utf-8")


_drawn: dict[str, str] = {}
