"""The fenced blocks of a Markdown page, with what the comments before them say.

A block of sh, bash or console is commands; of python, a program; with a title, a file (and then not run by itself).
`<!-- not run: REASON -->` before a block leaves it out; `<!-- output varies: REASON -->` compares its words, not its
numbers; `<!-- tolerance: 5% -->` allows numbers to be that far off (0.2 % if not given); `<!-- exit status: N -->`
expects that status of its last command.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from textwrap import dedent

RUNNABLE = ("sh", "bash", "console", "python")
PRINTS = "prints"  # the title of a text block that shows what the Python block before it prints
_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^`\n]*)\n(?P<text>.*?)^(?P=indent)```[ ]*$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"^\s*<!-- ([^:]+?): (.*?) -->\s*$")
_TITLE = re.compile(r'title="([^"]*)"')


@dataclass(frozen=True)
class Block:
    """One fenced block. line: of its fence, from 1; title: empty without one; notes: its comments by their word."""

    line: int
    language: str
    title: str
    text: str
    notes: dict[str, str]

    @property
    def is_file(self) -> bool:
        return bool(self.title) and self.title != PRINTS

    @property
    def is_run(self) -> bool:
        return self.language in RUNNABLE and not self.is_file and "not run" not in self.notes


@dataclass(frozen=True)
class Command:
    """One command line and the output shown below it, None where none is shown."""

    text: str
    shown: list[str] | None


def blocks(page: str) -> list[Block]:
    """All fenced blocks, in order."""
    found = []
    for fence in _FENCE.finditer(page):
        language, _, rest = fence["info"].strip().partition(" ")
        title = _TITLE.search(rest)
        text = dedent(fence["text"])
        line = page.count("\n", 0, fence.start()) + 1
        found.append(Block(line, language, title[1] if title else "", text, _notes(page[: fence.start()])))
    return found


def _notes(before: str) -> dict[str, str]:
    """The comments directly above a fence."""
    notes = {}
    for line in reversed(before.splitlines()):
        comment = _COMMENT.match(line)
        if comment is None:
            break
        notes[comment[1]] = comment[2]
    return notes


def commands(block: Block) -> list[Command]:
    """The commands of a block; lines that end in a backslash go on, and comments are left out."""
    found: list[Command] = []
    lines = iter(block.text.splitlines())
    for line in lines:
        prompt = line.startswith("$ ")
        if block.language == "console" and not prompt:
            assert found, f"line {block.line}: output without a command"
            shown = found[-1].shown or []
            found[-1] = Command(found[-1].text, [*shown, line])
            continue
        command = line.removeprefix("$ ")
        while command.rstrip().endswith("\\"):
            command = command.rstrip()[:-1] + next(lines).strip()
        command = re.sub(r"(^|\s)#.*", "", command).strip()
        if command:
            found.append(Command(command, None))
    return found
