"""Runs a function on a few gloo processes; torch is imported once, in a server that the processes fork from."""

from __future__ import annotations

import multiprocessing
import socket
import traceback
from collections.abc import Callable
from datetime import timedelta
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
    results = _CONTEXT.SimpleQueue()
    processes = [
        _CONTEXT.Process(target=_member, args=(rank, ranks, port, results, function, args, leave_together), daemon=True)
        for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout_s)
    found: dict[int, Any] = {}
    failures: list[str] = []
    while not results.empty():
        rank, value, failure = results.get()
        found[rank] = value
        if failure:
            failures.append(f"rank {rank}: {failure}")
    for process in processes:
        if process.is_alive():
            process.kill()
            failures.append(f"{process.name} did not end within {timeout_s} s")
    assert not failures, "\n".join(failures)
    return [found[rank] for rank in range(ranks)]


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
    results.put((rank, value, failure))
