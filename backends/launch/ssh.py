"""Start a node's command on each host over ssh, pass its output on, and end all when the job cannot go on."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

from pipesim.backends.launch.hosts import Host
from pipesim.backends.launch.torchrun import Job, check_nnodes, node_command
from pipesim.errors import PipesimError

GOES_ON_LATER = 75  # as in `pipesim.backends.job.signals`, which needs torch
SSH = "ssh -o BatchMode=yes -o ConnectTimeout=30 -o ServerAliveInterval=15 -o ServerAliveCountMax=4"
_GRACE_S = 10.0
_LOST = 128  # from here on a status is of a signal, or (255) of ssh itself
_INTERRUPT = b"\x03"  # what a terminal takes for Ctrl-C


@dataclass(eq=False)
class HostFailed(PipesimError):
    """A node ended with an error, and so the whole job was ended."""

    host: str
    status: int

    def __str__(self) -> str:
        how = f"was ended by signal {-self.status}" if self.status < 0 else f"ended with status {self.status}"
        return f"host {self.host} {how}; the other hosts were ended, its output above says why"


def endpoints(hosts: Sequence[Host], port: int, *, elastic: bool) -> tuple[str, ...]:
    """Where nodes meet: at the first host, or, where the job goes on without it, at the next."""
    found: list[str] = []
    for index, host in enumerate(hosts if elastic else hosts[:1]):
        again = sum(one.name == host.name for one in hosts[:index])  # `localhost` may come several times
        found.append(f"{_address(host)}:{port + again}")
    return tuple(found)


def host_command(job: Job, hosts: Sequence[Host], index: int, ssh: Sequence[str], folder: str) -> list[str]:
    """The command for one host; `localhost` is started directly, any other name over ssh.

    Everything is quoted for the remote shell. `-tt` ends the remote processes with the connection.
    """
    command = local_command(job, hosts, index)
    if hosts[index].name == "localhost":
        return command
    return [*ssh, "-tt", hosts[index].name, f"cd {shlex.quote(folder)} && exec {shlex.join(command)}"]


def local_command(job: Job, hosts: Sequence[Host], index: int) -> list[str]:
    """The same, as it is run on the host itself."""
    variables = [f"{key}={value}" for key, value in sorted(job.environment.items())]
    return ["env", *variables, *node_command(job, hosts[index].slots, index, _address(hosts[index]))]


def _address(host: Host) -> str:
    """Without the user."""
    return host.name.rpartition("@")[2]


def run_hosts(job: Job, hosts: Sequence[Host], ssh: Sequence[str], folder: str) -> bool:
    """Run until all hosts have ended; False where they were asked to end, and the job goes on later.

    SIGTERM and SIGUSR1 are passed on. Raises HostFailed when too few hosts are left; those are ended first.
    """
    running: dict[str, subprocess.Popen[bytes]] = {}
    with _passing_on(running):
        try:
            for index, host in enumerate(hosts):
                label = host.name if host.name != "localhost" else f"localhost#{index}"
                running[label] = _start(host_command(job, hosts, index, ssh, folder), label)
            return _watch(running, check_nnodes(job.nnodes)[0])
        finally:
            _end(running)


def _start(command: Sequence[str], label: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    threading.Thread(target=_pass_output_on, args=(process, label), daemon=True).start()
    return process


def _pass_output_on(process: subprocess.Popen[bytes], label: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        sys.stdout.write(f"[{label}] {line.decode(errors='replace').rstrip()}\n")
        sys.stdout.flush()


def _watch(running: dict[str, subprocess.Popen[bytes]], least: int) -> bool:
    """Until all have ended. Those that are lost, not those that give up, may be missing in an elastic job."""
    left, later = dict(running), False
    while left:
        for label, process in list(left.items()):
            status = process.poll()
            if status is None:
                continue
            del left[label]
            if status == GOES_ON_LATER:
                later = True
            elif status:
                if not (status < 0 or status >= _LOST) or len(left) < least:
                    raise HostFailed(label, status)
                print(f"pipesim: host {label} is lost (status {status}), {len(left)} go on", file=sys.stderr)
        time.sleep(0.1)
    return not later


@contextmanager
def _passing_on(running: dict[str, subprocess.Popen[bytes]]) -> Iterator[None]:
    """Ask all hosts to end, once we are asked."""

    def ask(number: int, frame: FrameType | None) -> None:
        for label, process in running.items():
            with suppress(OSError):  # it has ended
                if label.startswith("localhost#"):
                    process.send_signal(number)
                else:  # ssh passes no signals on, but what is typed
                    assert process.stdin is not None
                    process.stdin.write(_INTERRUPT)
                    process.stdin.flush()

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGUSR1)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(running: dict[str, subprocess.Popen[bytes]]) -> None:
    """Ask all to end, and make those that do not."""
    for how, wait_s in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, _GRACE_S)):
        left = [process for process in running.values() if process.poll() is None]
        for process in left:
            os.killpg(process.pid, how)
        deadline = time.monotonic() + wait_s
        while any(process.poll() is None for process in left) and time.monotonic() < deadline:
            time.sleep(0.05)
