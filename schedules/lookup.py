"""From a name to a schedule: the catalogue, an installed plug-in, a user's function, or a file."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from pipesim.errors import PipesimError
from pipesim.ir.check import check
from pipesim.ir.formats import SUFFIXES, read_schedule
from pipesim.ir.schedule import Schedule
from pipesim.schedules.catalogue import FAMILIES
from pipesim.schedules.constraints import Unsuitable, require_counts
from pipesim.schedules.family import Family

ENTRY_POINTS = "pipesim.schedules"
MOST_ACTIONS = 50_000_000  # some 4 GB of columns and tables

_COUNTS = ("virtual", "slices", "group", "update_every")


@dataclass(eq=False)
class UnknownSchedule(PipesimError):
    """A name that is no family, plug-in, function or file."""

    name: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        close = get_close_matches(self.name.lower(), self.known, n=3)
        hint = f"did you mean {' or '.join(close)}" if close else f"there are {', '.join(self.known)}"
        return f"no schedule {self.name!r}; {hint}; your own is my_module.py:build, or a {', '.join(SUFFIXES)} file"


@dataclass(eq=False)
class MissingCount(PipesimError):
    """A family that was not told for how many ranks or microbatches."""

    family: str
    word: str

    def __str__(self) -> str:
        return f"schedule {self.family} needs a number of {self.word}, e.g. {self.word}=4"


@dataclass(eq=False)
class UnknownOption(PipesimError):
    """An option that a family does not have."""

    family: str
    option: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        has = f"it has {', '.join(self.known)}" if self.known else "it has none"
        return f"schedule {self.family} has no option {self.option!r}; {has}"


@dataclass(eq=False)
class BrokenBuilder(PipesimError):
    """A user's function that cannot be loaded, fails, or gives something else than a schedule."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


def build(name: str, *, ranks: int | None = None, microbatches: int | None = None, **options: Any) -> Schedule:
    """The schedule of that name; a user's own is checked before it is returned.

    name: a family, a plug-in, `my_module.py:build`, `package.module:build`, or a file of orders.
    ranks, microbatches: needed except for a file, where they must be the file's if given.
    options: the family's own, such as `virtual=2`.
    Raises UnknownSchedule, MissingCount, UnknownOption, Unsuitable, BrokenBuilder, BrokenSchedule, Deadlock,
    CannotRead.
    """
    if is_file(name):
        return _from_file(name, ranks, microbatches, options)
    family = find(name)
    counts = {"ranks": ranks, "microbatches": microbatches}
    for word, value in counts.items():
        if value is None:
            raise MissingCount(family.name, word)
    counts |= {word: options[word] for word in _COUNTS if options.get(word) is not None}
    require_counts(family.name, **counts)  # type: ignore[arg-type]  # none is None any more
    _require_known(family, options)
    options = {key: value for key, value in options.items() if value is not None or key not in ("virtual", "slices")}
    _require_size(family.name, counts)  # type: ignore[arg-type]
    schedule = _call(family, ranks=ranks, microbatches=microbatches, **options)
    if family.name not in FAMILIES:
        check(schedule)
    return schedule


def is_file(name: str) -> bool:
    """Whether a name means a file of orders."""
    return Path(name).suffix.lower() in SUFFIXES


def find(name: str) -> Family:
    """The family of that name, or a user's function as one. Raises UnknownSchedule, BrokenBuilder."""
    plain = name.lower().replace("_", "-")
    if plain in FAMILIES:
        return FAMILIES[plain]
    if ":" in name:
        return Family(name, _function(name), paper="your own")
    plugins = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name in plugins:
        return _plugin(name, plugins[name].load)
    raise UnknownSchedule(name, (*FAMILIES, *plugins))


def families() -> dict[str, Family]:
    """All families by name: the catalogue's, then those of installed plug-ins that load."""
    found = dict(FAMILIES)
    for point in entry_points(group=ENTRY_POINTS):
        if point.name not in found:
            with suppress(BrokenBuilder):  # a broken one is reported to whoever asks for it
                found[point.name] = _plugin(point.name, point.load)
    return found


def _plugin(name: str, load: Any) -> Family:
    try:
        made = load()
    except Exception as error:  # whatever a stranger's module does when it is imported
        raise BrokenBuilder(name, f"its plug-in cannot be loaded: {_one_line(error)}") from error
    return made if isinstance(made, Family) else Family(name, made, paper="a plug-in")


def _function(name: str) -> Any:
    place, _, attribute = name.rpartition(":")
    if not place or not attribute.isidentifier():
        raise BrokenBuilder(name, "expected a file or module and a function, as in my_module.py:build")
    try:
        module = _load_file(Path(place)) if place.endswith(".py") else _load_module(place)
    except Exception as error:
        raise BrokenBuilder(name, f"cannot be loaded: {_one_line(error)}") from error
    made = getattr(module, attribute, None)
    if not callable(made):
        public = [word for word, value in vars(module).items() if callable(value) and not word.startswith("_")]
        close = ", ".join(get_close_matches(attribute, public, cutoff=0.3)) or "no function like it"
        raise BrokenBuilder(name, f"has no function {attribute!r}; it has {close}")
    return made


def _load_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"pipesim_user_{path.stem}", path)
    assert spec is not None  # a name that ends in .py always has a loader
    assert spec.loader is not None
    _look_in(path.resolve().parent)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickle look there
    spec.loader.exec_module(module)
    return module


def _load_module(name: str) -> ModuleType:
    _look_in(Path.cwd())
    return importlib.import_module(name)


def _look_in(folder: Path) -> None:
    """Let a user's file import its neighbours, as if it were run by itself."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _require_known(family: Family, options: dict[str, Any]) -> None:
    parameters = inspect.signature(family.build).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    for option in options:
        if option not in family.options:
            raise UnknownOption(family.name, option, tuple(family.options))


def _require_size(name: str, counts: dict[str, int]) -> None:
    actions = 2 * counts["ranks"] * counts["microbatches"] * counts.get("virtual", 1) * counts.get("slices", 1)
    if actions > MOST_ACTIONS:
        raise Unsuitable(
            name, f"{actions} actions", f"more than {MOST_ACTIONS} do not fit in memory", "fewer microbatches"
        )


def _call(family: Family, **numbers: Any) -> Schedule:
    if family.name in FAMILIES:
        return family.build(**numbers)
    try:
        made: object = family.build(**numbers)
    except PipesimError:
        raise
    except Exception as error:  # a user's function may raise anything
        raise BrokenBuilder(family.name, f"failed: {_one_line(error)}") from error
    if not isinstance(made, Schedule):
        raise BrokenBuilder(family.name, f"gave a {type(made).__name__}, not a pipesim Schedule")
    return made


def _from_file(path: str, ranks: int | None, microbatches: int | None, options: dict[str, Any]) -> Schedule:
    if options:
        raise UnknownOption(path, next(iter(options)), ())
    schedule = read_schedule(path)
    for word, wanted, there in (
        ("ranks", ranks, schedule.ranks),
        ("microbatches", microbatches, schedule.microbatches),
    ):
        if wanted is not None and wanted != there:
            raise Unsuitable(path, f"{wanted} {word}", "a file has what it has", f"{there} {word}, or leave it out")
    check(schedule)
    return schedule


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
