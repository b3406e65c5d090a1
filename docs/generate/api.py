"""The reference of the Python API: the public names, then every package with the docstrings of its modules."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pipesim

_ROOT = Path(pipesim.__file__).parent
PACKAGES: dict[str, str] = {
    "pipesim": "errors, units, timelines and their figures",
    "pipesim.ir": "actions, placements, schedules, programs, checks, files",
    "pipesim.schedules": "the families, and from a name to a schedule",
    "pipesim.costs": "models, clusters, layouts; seconds and bytes",
    "pipesim.engine": "the two engines",
    "pipesim.plan": "choosing a layout, predicting many, searching for orders",
    "pipesim.serving": "inference of many requests",
    "pipesim.viz": "charts, reports, traces",
    "pipesim.backends": "running on processes",
}


def pages() -> dict[str, str]:
    """File below the documentation's folder -> its text."""
    found = {"api/index.md": _index()}
    for package, about in PACKAGES.items():
        found[f"api/{package}.md"] = _package(package, about)
    return found


def titles() -> list[tuple[str, str]]:
    return [(package, f"api/{package}.md") for package in PACKAGES]


def _index() -> str:
    rows = []
    for name in sorted(set(vars(pipesim)["__all__"]) - {"__version__"}, key=str.lower):
        value = getattr(pipesim, name)
        about = next(iter((inspect.getdoc(value) or "").splitlines()), "")
        rows.append(f"| [`pipesim.{name}`][{value.__module__}.{value.__qualname__}] | {_in_table(about)} |")
    packages = [f"| [`{package}`]({package}.md) | {about} |" for package, about in PACKAGES.items()]
    return "\n".join(
        [
            "# Python API\n",
            "`import pipesim` has the names that most programs need; it imports neither torch nor plotly until one of "
            "them is used. The rest is in packages below it.\n",
            "## Public names\n",
            "| name | |\n|---|---|",
            *rows,
            "\n## Packages\n",
            "| package | |\n|---|---|",
            *packages,
            "",
        ]
    )


def _package(package: str, about: str) -> str:
    parts = [f"# {package}\n", f"{about[0].upper()}{about[1:]}.\n"]
    for module in modules(package):
        parts += [f"::: {module}\n"]
    return "\n".join(parts)


def modules(package: str) -> list[str]:
    """The modules of a package that have something public, without those of sub-packages with a page of their own."""
    folder = _ROOT.joinpath(*package.split(".")[1:])
    paths = sorted(folder.glob("*.py") if package == "pipesim" else folder.rglob("*.py"))
    names = []
    for path in paths:
        if path.name.startswith("_") or not _has_public(path):
            continue
        inside = path.relative_to(_ROOT).with_suffix("").parts
        names.append(".".join(("pipesim", *inside)))
    return names


def _has_public(path: Path) -> bool:
    """Whether a module defines a documented public class or function."""
    return any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and ast.get_docstring(node)
        for node in ast.parse(path.read_text(encoding="utf-8")).body
    )


def _in_table(text: str) -> str:
    return text.replace("|", "\\|")
