"""A launch over ssh to a server on this machine, started for the test where one is installed."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.backends.group import free_port
from tests.backends.launch.losses import end, job, losses_of, node_of, quiet, start, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")


@dataclass(frozen=True)
class Server:
    """What reaches it."""

    ssh: str


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    if SSHD is None or shutil.which("ssh") is None or shutil.which("ssh-keygen") is None:
        pytest.skip("no sshd, ssh and ssh-keygen here (Debian: apt-get install openssh-server)")
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)], check=True)
    (tmp_path / "user.pub").rename(tmp_path / "authorized")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where a server of root's shuts unprivileged parts in
    port = free_port()
    config = {
        "Port": port, "ListenAddress": "0.0.0.0", "HostKey": tmp_path / "host", "PidFile": "none",
        "AuthorizedKeysFile": tmp_path / "authorized", "StrictModes": "no", "UsePAM": "no",
        "PasswordAuthentication": "no", "PermitRootLogin": "prohibit-password",
    }  # fmt: skip
    (tmp_path / "config").write_text("".join(f"{key} {value}\n" for key, value in config.items()))
    with (tmp_path / "sshd.log").open("wb") as log:
        running = subprocess.Popen([SSHD, "-D", "-e", "-f", str(tmp_path / "config")], stderr=log)
    until = time.monotonic() + 10
    while not _answers(port) and time.monotonic() < until:
        time.sleep(0.05)
    reach = (
        f"ssh -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR "
        f"-F none -p {port} -i {tmp_path / 'user'} -l {getpass.getuser()}"
    )
    try:
        tried = subprocess.run([*reach.split(), "127.0.0.1", "true"], capture_output=True, text=True, check=False)
        if tried.returncode:
            pytest.skip(f"the server lets nobody in here: {tried.stderr.strip()} {(tmp_path / 'sshd.log').read_text()}")
        yield Server(reach)
    finally:
        running.terminate()
        running.wait(10)


def _answers(port: int) -> bool:
    with socket.socket() as found:
        return found.connect_ex(("127.0.0.1", port)) == 0


def launch(server: Server, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pipesim", "launch", "--hosts", "127.0.0.1:2", "--ssh", server.ssh]
    command += ["--port", str(free_port()), "--", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


def test_over_ssh(server: Server, tmp_path: Path) -> None:
    losses = tmp_path / 'it\'s a "file" $HOME; here.jsonl'
    done = launch(
        server, "1f1b", "--layout", "pp=2", "--microbatches", "2", "--model", "tiny-llama", "--seq", "8",
        "--steps", "2", "--metrics", str(losses), "--checkpoint", str(tmp_path / "run"),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[127.0.0.1] step 2/2  loss " in done.stdout
    assert [json.loads(line)["step"] for line in losses.read_text().splitlines()] == [1, 2]


def test_a_failure_over_ssh(server: Server) -> None:
    """What a worker says of it reaches the terminal."""
    done = launch(
        server, "1f1b", "--ranks", "2", "--microbatches", "2", "--model", "tiny-llama", "--steps", "1", "--seq", "8",
        "--checkpoint", "/proc/run",
    )  # fmt: skip
    assert done.returncode == 2
    assert "host 127.0.0.1 ended with status 1" in done.stderr
    assert "cannot write /proc/run" in done.stdout


def elastic(server: Server, port: int, folder: Path) -> subprocess.Popen[bytes]:
    """Two hosts, of which one is enough."""
    return start(
        "pipesim", "launch", "--hosts", "127.0.0.1:2,127.0.0.2:2", "--ssh", server.ssh, "--port", str(port),
        "--nnodes", "1:2", "--", *job(folder), log=folder / "log",
    )  # fmt: skip


def test_the_first_host_dies(server: Server, tmp_path: Path) -> None:
    port, losses = free_port(), tmp_path / "losses"
    launched = elastic(server, port, tmp_path)
    try:
        wait_for(lambda: len(losses_of(losses)) >= 5 or launched.poll() is not None)
        node_of(port, 0).kill()
        status = launched.wait(200)
    finally:
        end([launched])
    said = (tmp_path / "log").read_text()
    assert status == 0, said[-4000:]
    assert "host 127.0.0.1 is lost (status 255), 1 go on" in said
    assert losses_of(losses) == pytest.approx(quiet(tmp_path), rel=1e-9)


def test_a_signal_reaches_all_hosts(server: Server, tmp_path: Path) -> None:
    """The launcher is asked to end: the job writes a checkpoint, and the status says that it goes on later."""
    port, losses = free_port(), tmp_path / "losses"
    launched = elastic(server, port, tmp_path)
    try:
        wait_for(lambda: len(losses_of(losses)) >= 3 or launched.poll() is not None)
        launched.terminate()
        status = launched.wait(100)
    finally:
        end([launched])
    said = (tmp_path / "log").read_text()
    assert status == 75, said[-4000:]
    done = len(losses_of(losses))
    assert (tmp_path / "run" / f"step-{done:08}").is_dir()
    assert f"SIGTERM after {done} steps: a checkpoint has them" in said
