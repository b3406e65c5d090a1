"""The parts of a node's launcher: where it begins, and signals on their way to workers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from torch.distributed import TCPStore
from torch.distributed.elastic.multiprocessing import SignalException

from pipesim.backends.job import signals
from pipesim.backends.job.signals import Workers, answer, signals_to_workers
from pipesim.backends.launch import ssh
from pipesim.backends.launch.node import _where_the_others_are, main
from pipesim.backends.launch.pulse import Pulse
from tests.backends.group import free_port


def test_a_node_that_comes_back_finds_the_others() -> None:
    with socket.create_server(("127.0.0.1", 0)) as host:
        there, nowhere = host.getsockname()[1], free_port()
        endpoints = [f"127.0.0.1:{nowhere}", f"127.0.0.1:{there}", f"127.0.0.1:{nowhere}"]
        assert _where_the_others_are(endpoints, 0) == 1
        assert _where_the_others_are(endpoints, 1) == 0  # nobody else has its own
    assert _where_the_others_are(endpoints, 0) == 0


def test_launchers_agree_on_what_goes_on_later() -> None:
    """One of them does without torch."""
    assert ssh.GOES_ON_LATER == signals.GOES_ON_LATER


def test_several_endpoints_need_a_place(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--rdzv-endpoint=a:1,b:1", "-m", "pipesim"])
    assert "several endpoints and no --node" in capsys.readouterr().err


WORKER = """
import signal, sys, time
from pipesim.backends.job.signals import answer
heard = []
signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
answer("listens")
while not heard:
    time.sleep(0.01)
answer("stopped")
sys.exit(heard[0])
"""


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "heard"), [(signal.SIGUSR1, signal.SIGUSR1), (signal.SIGHUP, signal.SIGTERM)])
def test_a_signal_is_passed_on_to_workers_that_listen(
    sent: signal.Signals, heard: signal.Signals, tmp_path: Path
) -> None:
    """Also to one that starts after the signal; a second signal is not waited for."""
    with signals_to_workers(tmp_path) as workers:
        assert not workers.end_early
        started = [subprocess.Popen([sys.executable, "-c", WORKER], env=os.environ | {"LOCAL_RANK": "0"})]
        while not workers.answers():
            time.sleep(0.01)
        os.kill(os.getpid(), sent)
        started.append(subprocess.Popen([sys.executable, "-c", WORKER], env=os.environ | {"LOCAL_RANK": "1"}))
        assert [one.wait(30) for one in started] == [heard, heard]
        assert workers.stopped
        assert workers.end_early
        with pytest.raises(SignalException, match="ended by SIGTERM"):
            workers.take(signal.SIGTERM, None)


def test_a_signal_ends_workers_that_do_not_listen(tmp_path: Path) -> None:
    with pytest.raises(SignalException, match="ended by SIGUSR1"):
        Workers(tmp_path).take(signal.SIGUSR1, None)
    assert not answer("stopped")  # nobody asked


def test_a_rendezvous_that_takes_connections_and_says_nothing_is_lost() -> None:
    """As that of a process that is stopped; one that answers is not."""
    alive, lost = TCPStore("127.0.0.1", free_port(), None, True), threading.Event()
    pulse = Pulse(f"127.0.0.1:{alive.port}", lost.set, every_s=0.05, lost_s=0.5)
    assert not lost.wait(1.5)
    pulse.end()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        Pulse(f"127.0.0.1:{silent.getsockname()[1]}", lost.set, every_s=0.05, lost_s=0.5)
        assert lost.wait(30)
