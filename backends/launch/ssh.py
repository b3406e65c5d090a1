"""Start torchrun on each host over ssh, pass its output on, and end all when one fails."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pipesim.backends.launch.hosts import Host
from pipesim.backends.launch.torchrun import Job, check_nnodes, node_command
from pipesim.errors import PipesimError

_GRACE_S = 10.0


@dataclass(eq=False)
class HostFailed(PipesimError):
    """A node ended with an error, and so the whole job was ended."""

    host: str
    status: int

    def __str__(self) -> str:
        how = f"was ended by signal {-self.status}" if self.status < 0 else f"ended with status {self.status}"
        return f"host {self.host} {how}; the other hosts were ended, its output above says why"


def host_command(job: Job, host: Host, ssh: Sequence[str], folder: str) -> list[str]:
    """The command for one host; `localhost` is started directly, any other name over ssh.

    Everything is quoted for the remote shell. `-tt` ends the remote processes with the connection.
    """
    command = ["env", *(f"{key}={value}" for key, value in sorted(job.environment.items()))]
    command += node_command(job, host.slots)
    if host.name == "localhost":
        return command
    return [*ssh, "-tt", host.name, f"cd {shlex.quote(folder)} && exec {shlex.join(command)}"]


def run_hosts(job: Job, hosts: Sequence[Host], ssh: Sequence[str], folder: str) -> None:
    """Run until all hosts have ended. Raises HostFailed when too few are left; those are ended first."""
    running: dict[str, subprocess.Popen[str]] = {}
    try:
        for index, host in enumerate(hosts):
            label = host.name if host.name != "localhost" else f"localhost#{index}"
            running[label] = _start(host_command(job, host, ssh, folder), label)
        _watch(running, check_nnodes(job.nnodes)[0])
    finally:
        _end(running)


def _start(command: Sequence[str], label: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", start_new_session=True,
    )  # fmt: skip
    threading.Thread(target=_pass_on, args=(process, label), daemon=True).start()
    return process


def _pass_on(process: subprocess.Popen[str], label: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        sys.stdout.write(f"[{label}] {line.rstrip()}\n")
        sys.stdout.flush()


def _watch(running: dict[str, subprocess.Popen[str]], least: int) -> None:
    """Until all have ended; an elastic job goes on while `least` nodes are left."""
    left = dict(running)
    while left:
        for label, process in list(left.items()):
            status = process.poll()
            if status is not None:
                del left[label]
            if status and len(left) < least:
                raise HostFailed(label, status)
            if status:
                print(f"pipesim: host {label} is lost (status {status}), {len(left)} go on", file=sys.stderr)
        time.sleep(0.1)


def _end(running: dict[str, subprocess.Popen[str]]) -> None:
    """Ask all to end, and make those that do not."""
    for how, wait_s in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, _GRACE_S)):
        left = [process for process in running.values() if process.poll() is None]
        for process in left:
            os.killpg(process.pid, how)
        deadline = time.monotonic() + wait_s
        while any(process.poll() is None for process in left) and time.monotonic() < deadline:
            time.sleep(0.05)
