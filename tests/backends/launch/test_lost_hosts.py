"""Launches over (a stand-in of) ssh that lose a host: the first, which has the rendezvous, or another."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psutil
import pytest

from tests.backends.group import free_port
from tests.backends.launch.losses import STEPS, end, job, losses_of, node_of, quiet, start, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]
HOSTS = "127.0.0.1:2,127.0.0.2:2"


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    return quiet(tmp_path_factory.mktemp("quiet"))


@pytest.fixture
def ssh(tmp_path: Path) -> str:
    """What runs a host's command here."""
    script = tmp_path / "ssh"
    script.write_text('#!/bin/sh\nfor command; do :; done\nexec sh -c "$command"\n')
    script.chmod(0o755)
    return str(script)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_lost_host(lost: int, ssh: str, tmp_path: Path, expected: list[float]) -> None:
    """The others go on by themselves, at another layout (given in one case, else the fastest in simulation).

    The curve is that of a job that nobody disturbed.
    """
    log, losses, port = tmp_path / "log", tmp_path / "losses", free_port()
    launched = start(
        "pipesim", "launch", "--hosts", HOSTS, "--ssh", ssh, "--port", str(port), "--nnodes", "1:2", "--",
        *job(tmp_path, fallback=lost == 1), log=log,
    )  # fmt: skip
    try:
        wait_for(lambda: len(losses_of(losses)) >= 5 or launched.poll() is not None)
        node_of(port, lost).kill()
        status = launched.wait(200)
    finally:
        end([launched])
    said = log.read_text()
    assert status == 0, said[-4000:]
    assert f"host 127.0.0.{lost + 1} is lost (status -9), 1 go on" in said
    assert ("the rendezvous at 127.0.0.1" in said) == (lost == 0)
    assert "going on from step-" in said
    assert ("at pp=1,tp=2,dp=1" if lost == 1 else "at pp=1,tp=1,dp=2") in said
    simulated = "2 processes: of 3 layouts that fit, pp=1,tp=1,dp=2 takes least time in simulation"
    assert (simulated in said) == (lost == 0)
    assert losses_of(losses) == pytest.approx(expected, rel=1e-9)
    assert len(expected) == STEPS


def by_hand(number: int, port: int, folder: Path, *run: str) -> subprocess.Popen[bytes]:
    """One host's launcher, without ssh."""
    return start(
        "pipesim", "launch", "--hosts", "localhost:2,localhost:2", "--node", str(number), "--nnodes", "1:2",
        "--port", str(port), "--", *job(folder), *run, log=folder / f"node{number}",
    )  # fmt: skip


def test_launchers_started_by_hand(tmp_path: Path, expected: list[float]) -> None:
    """One on each node; the one with the rendezvous is killed."""
    losses, port = tmp_path / "losses", free_port()
    nodes = [by_hand(number, port, tmp_path) for number in range(2)]
    try:
        wait_for(lambda: len(losses_of(losses)) >= 5 or nodes[1].poll() is not None)
        nodes[0].kill()
        status = nodes[1].wait(200)
    finally:
        end(nodes)
    said = (tmp_path / "node1").read_text()
    assert status == 0, said[-4000:]
    assert f"the rendezvous at localhost:{port} is lost" in said
    assert losses_of(losses) == pytest.approx(expected, rel=1e-9)


def test_a_host_that_answers_no_more_and_comes_back(tmp_path: Path, expected: list[float]) -> None:
    """Its connections stay open, as those of a host whose network is gone: only timeouts tell the others."""
    losses, port = tmp_path / "losses", free_port()
    nodes = [by_hand(number, port, tmp_path, "--timeout", "8") for number in range(2)]
    try:
        wait_for(lambda: len(losses_of(losses)) >= 5 or nodes[1].poll() is not None)
        away = [psutil.Process(nodes[0].pid), *psutil.Process(nodes[0].pid).children(recursive=True)]
        for process in away:
            process.suspend()
        status = nodes[1].wait(250)
        for process in away:
            process.resume()
        back = nodes[0].wait(150)
    finally:
        end(nodes)
    said = (tmp_path / "node1").read_text()
    assert status == 0, said[-4000:]
    assert back == 0, (tmp_path / "node0").read_text()[-4000:]  # it finds that all is done
    assert f"the rendezvous at localhost:{port} is lost" in said
    assert losses_of(losses) == pytest.approx(expected, rel=1e-9)
