"""The `pipesim` command: one file a sub-command, listed in `app.COMMANDS`."""

from collections.abc import Sequence
from importlib import import_module


def main(args: Sequence[str] | None = None) -> int:
    """Run one command line; the exit status. Imports all it needs here, where Ctrl-C meets someone."""
    try:
        status: int = import_module("pipesim.cli.app").main(args)
    except KeyboardInterrupt:
        return 130
    return status


__all__ = ["main"]
