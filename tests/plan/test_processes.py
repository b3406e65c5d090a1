"""Worker processes leave Ctrl-C to the one that started them."""

import os
import signal

import pytest

from pipesim.plan.processes import pool


@pytest.mark.timeout(120)
def test_workers_do_not_hear_ctrl_c() -> None:
    """Neither while they start, when one ended with a traceback and broke the pool, nor later."""
    before = signal.getsignal(signal.SIGINT)
    with pool(1) as processes:
        first = processes.submit(os.getpid)
        (newborn,) = processes._processes
        os.kill(newborn, signal.SIGINT)
        assert first.result() == newborn
        os.kill(newborn, signal.SIGINT)
        assert processes.submit(os.getpid).result() == newborn
    assert signal.getsignal(signal.SIGINT) is before
