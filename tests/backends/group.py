"""Runs a function on a few gloo processes; torch is imported once, in a server that the processes fork from."""

from __future__ import annotations

import multiprocessing
import socket
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import Any

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch", "torch.distributed", "pipesim.backends.pipeline", "tests.backends.group"])


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def run_group(
    ranks: int, function: Callable[..., Any], *args: Any, timeout_s: float = 100, leave_together: bool = True
) -> list[Any]:
    """`function(*args)` in `ranks` processes of one gloo group; what each returned, by rank.

    leave_together: whether all ends well, so that the processes can wait for each other at the end.
    """
    port = free_port()
    pipes = [_CONTEXT.Pipe(duplex=False) for _ in range(ranks)]
    processes = [
        _CONTEXT.Process(target=_member, args=(rank, ranks, port, writer, function, args, leave_together), daemon=True)
        for rank, (_, writer) in enumerate(pipes)
    ]
    for process, (_, writer) in zip(processes, pipes, strict=True):
        process.start()
        writer.close()
    found, failures = _read([reader for reader, _ in pipes], time.monotonic() + timeout_s)
    for process in processes:
        process.join(5)
    for process in processes:
        if process.is_alive():
            process.kill()
            failures.append(f"{process.name} did not end within {timeout_s} s")
    assert not failures, "\n".join(failures)
    return [found[rank] for rank in range(ranks)]


def _read(readers: list[Connection], deadline: float) -> tuple[dict[int, Any], list[str]]:
    """Values and failures of the processes, read before they are joined: a pipe holds only 64 KiB."""
    found: dict[int, Any] = {}
    failures: list[str] = []
    left = dict(zip(readers, range(len(readers)), strict=True))
    while left and (ready := wait(list(left), max(0.0, deadline - time.monotonic()))):
        for reader in ready:
            assert isinstance(reader, Connection)
            rank = left.pop(reader)
            try:
                found[rank], failure = reader.recv()
            except EOFError:
                failure = "its process ended"
            if failure:
                failures.append(f"rank {rank}: {failure}")
    return found, failures


def _member(
    rank: int, ranks: int, port: int, results: Any, function: Callable[..., Any], args: Any, together: bool
) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    value, failure = None, ""
    try:
        dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", timedelta(seconds=30), rank=rank, world_size=ranks)
        value = function(*args)
        if together:
            dist.barrier()
            dist.destroy_process_group()
    except BaseException:
        failure = traceback.format_exc()
    results.send((value, failure))
