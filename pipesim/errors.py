"""The root of every error that a user can cause and put right.

    PipesimError
    ├── CannotRead, CannotWrite      a file, pipesim.files
    ├── BadQuantity                  a text like 18.5ms, pipesim.units
    ├── UnknownCommand               a command nobody wrote, pipesim.cli
    └── ...                          the others are defined beside the code that raises them

The command line prints one as a line on stderr and exits with status 2. Anything else that escapes
is a mistake of ours and keeps its traceback.
"""

from dataclasses import dataclass, fields


@dataclass(eq=False)
class PipesimError(Exception):
    """Something the user gave cannot work. Raise a subclass, never this class itself.

    A subclass is a dataclass whose message says the value, the rule and a value that would work:

        @dataclass(eq=False)
        class TooFewRanks(PipesimError):
            ranks: int

            def __str__(self) -> str:
                return f"ranks={self.ranks}: a pipeline needs at least 1, e.g. ranks=4"

    `eq=False` keeps identity and hash, which traceback printing and `contextlib` rely on. Neither
    `frozen` (Python sets `__traceback__` on an exception), nor `slots`, nor `kw_only` fields.
    """

    def __post_init__(self) -> None:
        # A dataclass leaves `args` empty when built by keyword; pickle (a failed worker process) and
        # SimPy (a failed process) rebuild an exception from its `args`.
        self.args = tuple(getattr(self, field.name) for field in fields(self))
