"""What each node of a launch runs: torchrun, at the next rendezvous when the node that has it is lost.

Options are torchrun's. `--rdzv-endpoint` may be several, with commas; `--node` says which of them is this node's.
All nodes begin at the first. When its host is gone they go on at the next, where that node is the host, and so on.

Exit status: 0 done; 75 asked to end, goes on later; 1 workers failed more often than `--max-restarts` allows, or
another job has taken over; 128 + number of the signal that ended it.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
from torch.distributed import DistError
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousConnectionError, RendezvousError
from torch.distributed.launcher.api import elastic_launch
from torch.distributed.run import config_from_args, get_args_parser

from pipesim.backends.job.signals import GOES_ON_LATER, LEFT_TO_TORCH, Workers, signals_to_workers
from pipesim.backends.launch.pulse import Pulse
from pipesim.backends.launch.torchrun import NODE

_FIRST_WAIT_S = 180.0  # nodes start at different times
_NEXT_WAIT_S = 90.0  # they notice a loss at different times: a worker's timeout later at most
_PROBE_S = 2.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run this node's part; the exit status."""
    parser = get_args_parser()
    parser.add_argument("--node", type=int, help="which of the endpoints is this node's")
    parser.add_argument("--begin", type=int, help="at which endpoint, where a node that starts looks for the others")
    given = parser.parse_args(arguments)
    given.signals_to_handle = LEFT_TO_TORCH
    endpoints = given.rdzv_endpoint.split(",")
    if len(endpoints) > 1 and given.node is None:
        parser.error("several endpoints and no --node")
    with TemporaryDirectory(prefix="pipesim-node-") as folder, signals_to_workers(Path(folder)) as workers:
        try:
            status = _run(given, endpoints, workers)
        except SignalException as error:
            status = 128 + int(error.sigval)
        return GOES_ON_LATER if status and workers.end_early else status


def _run(given: Any, endpoints: Sequence[str], workers: Workers) -> int:
    """At one endpoint after the other, until the job is over."""
    first = given.begin
    if first is None:
        first = _where_the_others_are(endpoints, given.node) if len(endpoints) > 1 else 0
    for number, endpoint in list(enumerate(endpoints))[first:]:
        try:
            if given.node is not None and number != given.node:
                _wait_for(endpoint, _FIRST_WAIT_S if number == 0 else _NEXT_WAIT_S)
            with _looking_after(given, endpoint, number, workers):
                _launch(given, number, endpoint)
        except (RendezvousConnectionError, DistError) as error:
            _say(f"the rendezvous at {endpoint} is lost ({_first_line(error)})")
        except (ChildFailedError, RendezvousError) as error:
            _say(_first_line(error))
            return 1
        else:
            return GOES_ON_LATER if workers.stopped else int(workers.replaced)
    _say("there is no other rendezvous to go on at" if len(endpoints) > 1 else "give --nnodes least:most to go on")
    return 1


def _launch(given: Any, number: int, endpoint: str) -> None:
    config, command, arguments = config_from_args(given)
    if given.node is not None:
        config.rdzv_configs["is_host"] = given.node == number
    if "," in given.rdzv_endpoint:
        config = replace(config, rdzv_endpoint=endpoint, run_id=f"{config.run_id}-{number}")
    elastic_launch(config, command)(*arguments)


@contextmanager
def _looking_after(given: Any, endpoint: str, number: int, workers: Workers) -> Iterator[None]:
    """Another node's rendezvous, in an elastic job: where it answers no more, this process begins anew at the next."""
    if "," not in given.rdzv_endpoint or number == given.node:
        yield
        return
    pulse = Pulse(endpoint, lambda: _begin_anew(endpoint, number, workers))
    try:
        yield
    finally:
        pulse.end()


def _begin_anew(endpoint: str, number: int, workers: Workers) -> None:
    """The main thread waits for an answer without end, and nothing reaches it there."""
    _say(f"the rendezvous at {endpoint} is lost (it answers no more)")
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    shutil.rmtree(workers.folder, ignore_errors=True)
    if workers.asked:
        os._exit(GOES_ON_LATER)
    command = [word for word in sys.argv[1:] if not word.startswith("--begin=")]
    os.execv(sys.executable, [sys.executable, "-m", NODE, f"--begin={number + 1}", *command])


def _wait_for(endpoint: str, wait_s: float) -> None:
    """Raises RendezvousConnectionError where nobody answers in time."""
    until = time.monotonic() + wait_s
    while not _answers(endpoint):
        if time.monotonic() > until:
            raise RendezvousConnectionError(f"nobody there for {wait_s:g} s")
        time.sleep(0.2)


def _where_the_others_are(endpoints: Sequence[str], mine: int) -> int:
    """The last endpoint that has a host: a node that comes back finds those that went on. The first without any."""
    others = [number for number in range(1, len(endpoints)) if number != mine]
    with ThreadPoolExecutor(min(32, len(others) or 1)) as pool:
        found = list(pool.map(lambda number: _answers(endpoints[number]), others))
    return max((number for number, one in zip(others, found, strict=True) if one), default=0)


def _answers(endpoint: str) -> bool:
    host, _, port = endpoint.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=_PROBE_S):
            return True
    except OSError:
        return False


def _first_line(error: BaseException) -> str:
    if isinstance(error, ChildFailedError):
        rank, failure = error.get_first_failure()
        return f"rank {rank} failed (exit status {failure.exitcode}), and there are no restarts left"
    return f"{error}".partition("\n")[0]


def _say(text: str) -> None:
    print(f"pipesim: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
