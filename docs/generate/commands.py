"""A page for each `pipesim` command, made from what its `--help` is made of."""

from __future__ import annotations

import sys
from typing import Any

from pipesim.cli.app import COMMANDS, _load


def pages() -> dict[str, str]:
    """File below the documentation's folder -> its text."""
    loaded = {name: _load(name) for name in COMMANDS}
    rows = [f"| [`pipesim {name}`]({name}.md) | {_first_line(command)} |" for name, command in loaded.items()]
    index = [
        "# Command line\n",
        "Every command has `--help`. Exit status: 0 done; 2 what was asked for cannot work, with one line on stderr "
        "that says what and what would; 1 the answer is no (`validate`), or the reader of the output went away; 130 "
        "Ctrl-C; 75 a run that was asked to stop and can go on from its checkpoint.\n",
        "| command | what it does |\n|---|---|",
        *rows,
        "",
    ]
    return {"commands/index.md": "\n".join(index)} | {
        f"commands/{name}.md": page(name, command) for name, command in loaded.items()
    }


def titles() -> list[tuple[str, str]]:
    return [(name, f"commands/{name}.md") for name in COMMANDS]


def page(name: str, command: Any) -> str:
    """One command, or a group of them."""
    parts = [f"# pipesim {name}\n", _about(command)]
    subcommands = getattr(command, "commands", {})
    parts += _parameters(command)
    for word, inner in subcommands.items():
        parts += [f"## pipesim {name} {word}\n", _about(inner), *_parameters(inner)]
    return "\n".join(parts)


def _about(command: Any) -> str:
    """The help text; its examples as blocks."""
    parts = []
    for paragraph in (command.help or "").split("\n\n"):
        for text in _split_examples(paragraph):
            example = text.removeprefix("Example: ")
            parts.append(f"```sh\n{example}\n```\n" if example != text else f"{_escaped(text)}\n")
    return "\n".join(parts)


def _split_examples(paragraph: str) -> list[str]:
    """A paragraph's lines joined, a new text at each example."""
    texts: list[str] = []
    for line in paragraph.replace("\b", "").splitlines():
        if not texts or line.startswith("Example: "):
            texts.append(line.strip())
        else:
            texts[-1] += f" {line.strip()}"
    return texts


def _parameters(command: Any) -> list[str]:
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    parts = []
    if arguments:
        rows = [f"| `{one.metavar or one.name}` | {_escaped(one.help or '')} |" for one in arguments]
        parts += ["| argument | |\n|---|---|", *rows, ""]
    panels: dict[str, list[str]] = {}
    for option in sorted(options, key=lambda one: one.rich_help_panel is not None):  # as --help has them
        panels.setdefault(option.rich_help_panel or "Options", []).append(_row(option))
    for panel, rows in panels.items():
        heading = f"**{panel}**\n\n" if len(panels) > 1 else ""
        parts += [f"{heading}| option | value | | default |\n|---|---|---|---|", *rows, ""]
    return parts


def _row(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    value = "" if option.is_flag else f"`{option.metavar or _type_name(option)}`"
    shown = option.default if not callable(option.default) else None
    default = "" if shown in (None, False, [], ()) else f"`{shown}`"
    if shown == sys.executable:  # another one for every reader
        default = "the Python that runs it"
    return f"| {names} | {value} | {_escaped(option.help or '')} | {default} |"


def _type_name(option: Any) -> str:
    kind = getattr(option.type_descriptor, "annotation", str)
    return str(getattr(kind, "__name__", kind)).lower()


def _first_line(command: Any) -> str:
    return _escaped((command.help or "").split("\n\n")[0].replace("\n", " "))


def _escaped(text: str) -> str:
    """Help text as Markdown: what stands in backquotes stays, the rest cannot be markup."""
    pieces = text.replace("\n", " ").split("`")
    for at in range(0, len(pieces), 2):
        for sign in "\\*_[]<>|":
            pieces[at] = pieces[at].replace(sign, f"\\{sign}")
    return "`".join(pieces)
