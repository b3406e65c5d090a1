"""The site builds without a warning, every link in it leads somewhere, and it loads nothing from elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.docs.runner import ROOT

pytestmark = pytest.mark.slow


@dataclass
class Page(HTMLParser):
    """What a page loads, where it links to, and the places that links can name."""

    loads: set[str] = field(default_factory=set)
    links: set[str] = field(default_factory=set)
    places: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        if "src" in given:
            self.loads.add(given["src"])
        if "href" in given:
            is_loaded = tag == "link" and given.get("rel") not in ("canonical", "prev", "next", "edit")
            (self.loads if is_loaded else self.links).add(given["href"])


def _build(folder: Path) -> dict[Path, Page]:
    """Every HTML page of the built site by its path."""
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {}
    for path in sorted(folder.rglob("*.html")):
        pages[path] = Page()
        pages[path].feed(path.read_text(encoding="utf-8"))
    assert len(pages) > 60
    return pages


def _targets(site: dict[Path, Page]) -> Iterator[tuple[Path, str]]:
    for path, page in site.items():
        for target in sorted(page.loads | page.links):
            yield path, target


@pytest.mark.timeout(600)
def test_the_site(tmp_path: Path) -> None:
    """One test, for building takes its time."""
    site = _build(tmp_path)
    assert _loaded_from_elsewhere(site) == set()
    assert _lost_links(site) == []
    assert _malformed_links(site) == []


def _loaded_from_elsewhere(site: dict[Path, Page]) -> set[str]:
    loaded = {target for page in site.values() for target in page.loads if urlsplit(target).scheme}
    return {target for target in loaded if not target.startswith("data:")}


def _lost_links(site: dict[Path, Page]) -> list[str]:
    """Links inside the site to files and places that are not there."""
    lost = []
    for path, target in _targets(site):
        parts = urlsplit(target)
        if parts.scheme or path.name == "404.html":  # a page that may be shown at any address: its links are absolute
            continue
        found = path if not parts.path else path.parent.joinpath(unquote(parts.path))
        found = Path(os.path.normpath(found / "index.html" if found.is_dir() else found))
        place = unquote(parts.fragment)
        if not found.exists() or (place and found in site and place not in site[found].places | {"__comments"}):
            lost.append(f"{path.parent.name}/{path.name}: {target}")
    return lost


def _malformed_links(site: dict[Path, Page]) -> list[str]:
    """Links out of the site that are not https, have no host, or have a space in them; nobody follows them here."""
    wrong = []
    for path, target in _targets(site):
        parts = urlsplit(target)
        well_formed = parts.scheme == "https" and "." in parts.netloc and " " not in target
        if parts.scheme not in ("", "data") and not well_formed:
            wrong.append(f"{path.name}: {target}")
    return wrong
