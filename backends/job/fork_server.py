"""The server from which a job's processes fork, with torch loaded, so that eight start in the time of one."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from multiprocessing import forkserver

_PRELOADED = ["pipesim.backends.job.quiet", "torch", "torch.distributed", "pipesim.backends.job.preload"]

# A Unix socket's path holds 107 bytes, of which the server's own folder and file take about 35.
_LONGEST_FOLDER = 70
_SHORT_FOLDER = "/tmp"  # the one folder for temporary files that every Unix has


def start_fork_server() -> None:
    """Start it unless it runs; where the folder for temporary files has too long a path for its socket, in /tmp."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(_PRELOADED)
    usual = tempfile.gettempdir()
    short = len(os.fsencode(usual)) > _LONGEST_FOLDER and os.access(_SHORT_FOLDER, os.W_OK)
    tempfile.tempdir = _SHORT_FOLDER if short else usual
    try:
        forkserver.ensure_running()
    finally:
        tempfile.tempdir = usual
