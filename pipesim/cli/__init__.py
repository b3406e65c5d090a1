"""The `pipesim` command: one file a sub-command, listed in `app.COMMANDS`."""

from pipesim.cli.app import main

__all__ = ["main"]
