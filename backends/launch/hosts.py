"""Lists of hosts: as an option, as a hostfile, and as Slurm writes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pipesim.errors import PipesimError

_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.@-]*[A-Za-z0-9_])?")
_MOST = 100_000  # hosts, and slots on one


@dataclass(eq=False)
class BadHosts(PipesimError):
    """A list of hosts that cannot be read."""

    where: str
    reason: str
    example: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}, e.g. {self.example}"


@dataclass(frozen=True)
class Host:
    """One machine and how many processes run on it."""

    name: str
    slots: int


def parse_hosts(text: str) -> tuple[Host, ...]:
    """`a:8,b:8`. Raises BadHosts."""
    hosts = []
    for part in text.split(","):
        name, colon, slots = part.strip().rpartition(":")
        if not colon:
            raise BadHosts(f"--hosts {text}", f"{part!r} has no number of slots", "a:8,b:8")
        hosts.append(_host(name, slots, f"--hosts {text}", "a:8,b:8"))
    return _each_once(hosts, f"--hosts {text}")


def parse_hostfile(text: str, source: str) -> tuple[Host, ...]:
    """Lines `host slots=8`, blank lines and `#` comments (mpirun's and DeepSpeed's format). Raises BadHosts."""
    hosts = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        where = f"{source}, line {number}"
        slots = words[1].partition("slots=") if len(words) == 2 else ("x", "", "")
        if slots[0] or not slots[1]:
            raise BadHosts(where, f"{line.strip()!r} is not a host and its slots", "node1 slots=8")
        hosts.append(_host(words[0], slots[2], where, "node1 slots=8"))
    if not hosts:
        raise BadHosts(source, "no host in it", "node1 slots=8")
    return _each_once(hosts, source)


def _host(name: str, slots: str, where: str, example: str) -> Host:
    if not _NAME.fullmatch(name):
        raise BadHosts(where, f"{name!r} is not a host name", example)
    if not slots.isascii() or not slots.isdigit() or not 1 <= int(slots[:9]) <= _MOST or len(slots) > 9:
        raise BadHosts(where, f"{slots!r} slots on {name}: at least 1", example)
    return Host(name, int(slots))


def _each_once(hosts: Sequence[Host], where: str) -> tuple[Host, ...]:
    """`localhost` may come several times, as several nodes on one machine."""
    seen: set[str] = set()
    for host in hosts:
        if host.name in seen and host.name != "localhost":
            raise BadHosts(where, f"{host.name} comes twice", "each host once")
        seen.add(host.name)
    return tuple(hosts)


def expand_nodelist(text: str) -> tuple[str, ...]:
    """Slurm's `node[01-03,7],login1` as names, leading zeros kept. Raises BadHosts."""
    names: list[str] = []
    for part in _split_outside_brackets(text):
        names += _expand(part, text)
        if len(names) > _MOST:
            raise BadHosts(f"node list {text[:60]}", f"more than {_MOST} nodes", "node[01-03,7]")
    return tuple(names)


def _split_outside_brackets(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if depth not in (0, 1):
            raise BadHosts(f"node list {text[:60]}", "brackets do not match", "node[01-03,7]")
        if letter == "," and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    if depth:
        raise BadHosts(f"node list {text[:60]}", "a bracket is not closed", "node[01-03,7]")
    return [*parts, text[start:]]


def _expand(part: str, whole: str) -> list[str]:
    head, bracket, rest = part.partition("[")
    if not bracket:
        return [_checked(part, whole)]
    inside, _, tail = rest.partition("]")
    return [
        _checked(head + number + end, whole)
        for number in _numbers(inside, whole)
        for end in (_expand(tail, whole) if "[" in tail else [tail])
    ]


def _checked(name: str, whole: str) -> str:
    if not _NAME.fullmatch(name):
        raise BadHosts(f"node list {whole[:60]}", f"{name!r} is not a host name", "node[01-03,7]")
    return name


def _numbers(text: str, whole: str) -> list[str]:
    numbers: list[str] = []
    for piece in text.split(","):
        first, dash, last = piece.partition("-")
        last = last if dash else first
        if not (first.isascii() and first.isdigit() and last.isascii() and last.isdigit()) or len(last) > 9:
            raise BadHosts(f"node list {whole[:60]}", f"{piece!r} is not a range of numbers", "node[01-03,7]")
        if not 0 <= int(last) - int(first) < _MOST:
            raise BadHosts(f"node list {whole[:60]}", f"{piece!r} does not count up", "node[01-03,7]")
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return numbers
