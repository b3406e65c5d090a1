"""Imported once in the server from which the processes of a job fork, and nowhere else."""

from pipesim.backends import pipeline
from pipesim.backends.job import worker

__all__ = ["pipeline", "worker"]

worker.end_with_parent()  # the server; each process of a job says it for itself
