"""What every test gets: one thread per worker, repeatable random examples, GPU tests only where a GPU is."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported; workers already use all cores

settings.register_profile("default", deadline=None, max_examples=50)
settings.register_profile("ci", deadline=None, max_examples=50, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "slow" in item.keywords:  # real processes, ports and clocks: a busy machine disturbs one run, not three
            item.add_marker(pytest.mark.flaky(reruns=2, reruns_delay=2))
    if any(Path("/dev").glob("nvidia[0-9]*")):
        return
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="no GPU here"))
