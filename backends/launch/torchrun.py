"""The command that each node runs: torchrun with its c10d rendezvous, and the environment around it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pipesim.errors import PipesimError

NODE = "pipesim.backends.launch.node"
_RANGE = re.compile(r"[1-9]\d{0,5}(:[1-9]\d{0,5})?")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

DEFAULTS: Mapping[str, str] = {
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # device numbers as nvidia-smi prints them
    "NCCL_DEBUG": "WARN",
    "OMP_NUM_THREADS": "1",  # what torchrun would set, without its warning
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # a restart else finds addresses of the dead in the old store
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",  # a failed peer ends the wait
}


@dataclass(eq=False)
class BadLaunch(PipesimError):
    """Options of a launch that do not go together."""

    problem: str
    works: str

    def __str__(self) -> str:
        return f"{self.problem}; {self.works}"


@dataclass(frozen=True, kw_only=True)
class Job:
    """What all nodes of a launch have in common.

    nnodes: a number, or least:most for an elastic job. arguments: of `pipesim run`.
    endpoints: where nodes meet: the first, and those that follow when its host is lost; none where something
    else sets them.
    """

    arguments: tuple[str, ...]
    nnodes: str
    endpoints: tuple[str, ...] = ()
    name: str = "pipesim"
    max_restarts: int = 0
    python: str = "python3"
    environment: Mapping[str, str] = field(default_factory=lambda: dict(DEFAULTS))

    @property
    def elastic(self) -> bool:
        """Whether it goes on with fewer nodes."""
        return ":" in self.nnodes


def check_nnodes(text: str) -> tuple[int, int]:
    """Least and most nodes of `2` or `2:4`. Raises BadLaunch."""
    if not _RANGE.fullmatch(text):
        raise BadLaunch(f"--nnodes {text}: not a number of nodes or least:most", "e.g. 4 or 2:4")
    least, _, most = text.partition(":")
    if int(most or least) < int(least):
        raise BadLaunch(f"--nnodes {text}: counts down", f"e.g. {most}:{least}")
    return int(least), int(most or least)


def environment(given: Sequence[str]) -> dict[str, str]:
    """The defaults with `KEY=VALUE` texts over them. Raises BadLaunch."""
    found = dict(DEFAULTS)
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not _KEY.fullmatch(key) or "\n" in value or "\0" in value:
            raise BadLaunch(f"--env {text!r}: not a name and a value", "e.g. --env NCCL_SOCKET_IFNAME=eth0")
        found[key] = value
    return found


def torchrun_words(job: Job, slots: int | str) -> list[str]:
    """Options of torchrun that are the same on all nodes with so many processes, and what it runs."""
    return [
        f"--nnodes={job.nnodes}",
        f"--nproc-per-node={slots}",
        f"--max-restarts={job.max_restarts}",
        "--rdzv-backend=c10d",
        *([f"--rdzv-endpoint={','.join(job.endpoints)}"] if job.endpoints else []),
        f"--rdzv-id={job.name}",
        *(["--rdzv-conf=last_call_timeout=5,read_timeout=20"] if job.elastic else []),
        "-m", "pipesim", "run", *job.arguments,
    ]  # fmt: skip


def node_command(job: Job, slots: int, node: int, address: str) -> list[str]:
    """The command of a node with so many processes: its place among the endpoints, and its name for the others."""
    words = [f"--node={node}", f"--local-addr={address}", *torchrun_words(job, slots)]
    return [job.python, "-m", NODE, *words]
