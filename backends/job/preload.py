"""Imported once in the server from which the processes of a job fork."""

from pipesim.backends import pipeline
from pipesim.backends.job import worker

__all__ = ["pipeline", "worker"]
