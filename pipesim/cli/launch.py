"""`pipesim launch`: the arguments of `run`, on many nodes, on top of torchrun and what clusters already have."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from pipesim.backends.launch.hosts import Host, expand_nodelist, parse_hostfile, parse_hosts
from pipesim.backends.launch.slurm import Allocation, batch_script
from pipesim.backends.launch.slurm import submit as hand_in
from pipesim.backends.launch.ssh import GOES_ON_LATER, SSH, endpoints, host_command, local_command, run_hosts
from pipesim.backends.launch.torchrun import BadLaunch, Job, check_nnodes, environment
from pipesim.cli.options.groups import command_of
from pipesim.cli.run import check_run
from pipesim.files import read_text, write_atomically

_ELASTIC_RESTARTS = 3
_TP = re.compile(r"(?:^|[,\s])tp=(\d+)")


@dataclass(frozen=True)
class SlurmOptions:
    """What is asked of Slurm beside nodes."""

    panel: ClassVar[str] = "Slurm"

    slurm: Annotated[bool, typer.Option("--slurm", help="Write an sbatch script.")] = False
    script: Annotated[Path | None, typer.Option("--script", help="Where to (- for stdout).  [NAME.sbatch]")] = None
    submit: Annotated[bool, typer.Option("--submit", help="Hand the script to sbatch.")] = False
    time: Annotated[str | None, typer.Option("--time", help="Time limit.")] = None
    partition: Annotated[str | None, typer.Option("--partition", help="Partition.")] = None
    account: Annotated[str | None, typer.Option("--account", help="Account.")] = None
    warn: Annotated[int, typer.Option("--warn", min=1, help="Seconds before the time limit, for a checkpoint.")] = 120
    requeues: Annotated[int, typer.Option("--requeues", min=0, help="How often it puts itself back in line.")] = 16


@dataclass(frozen=True)
class KubernetesOptions:
    """What a manifest says."""

    panel: ClassVar[str] = "Kubernetes"

    kubernetes: Annotated[bool, typer.Option("--kubernetes", help="Print a PyTorchJob for Kubeflow.")] = False
    image: Annotated[str, typer.Option("--image", help="Container image with pipesim in it.")] = "pipesim:latest"
    namespace: Annotated[str, typer.Option("--namespace", help="Namespace.")] = "default"


@dataclass(frozen=True)
class HostOptions:
    """Machines that are reached over ssh."""

    panel: ClassVar[str] = "Hosts"

    hosts: Annotated[str | None, typer.Option("--hosts", help="a:8,b:8 — host and processes on it.")] = None
    hostfile: Annotated[Path | None, typer.Option("--hostfile", help="Lines `host slots=8`.")] = None
    node: Annotated[int | None, typer.Option("--node", min=0, help="Run this host's part here, not all over ssh.")] = (
        None
    )
    ssh: Annotated[str, typer.Option("--ssh", help="How to reach a host.")] = SSH


def launch(
    arguments: Annotated[list[str], typer.Argument(metavar="RUN_ARGUMENTS", help="As for `pipesim run`.")],
    hosts: HostOptions,
    slurm: SlurmOptions,
    kubernetes: KubernetesOptions,
    nnodes: Annotated[str | None, typer.Option(help="Nodes, or least:most of an elastic job.")] = None,
    gpus_per_node: Annotated[int, typer.Option(min=1, help="Processes a node (Slurm, Kubernetes).")] = 8,
    max_restarts: Annotated[
        int | None, typer.Option(min=0, help="Restarts before torchrun gives up; 3 of an elastic job, else 0.")
    ] = None,
    env: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="Environment of every process.")] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Of the rendezvous.")] = 29400,
    name: Annotated[str, typer.Option(help="Of the job.")] = "pipesim",
    python: Annotated[str, typer.Option(help="The Python of the hosts.")] = sys.executable,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would run, and run nothing.")] = False,
) -> None:
    """Run a schedule on many nodes: over ssh, by Slurm, or by Kubernetes.

    What is not an option of this command goes to `run`, as does all that follows `--`.

    Example: pipesim launch 1f1b --layout pp=2,tp=8 -m 16 --model llama-3-8b --hosts a:8,b:8 --dry-run
    """
    _require_one_way(hosts, slurm, kubernetes)
    found = () if slurm.slurm or kubernetes.kubernetes else _hosts(hosts.hosts, hosts.hostfile, gpus_per_node)
    nodes = nnodes or str(len(found) or 1)
    slots = found or [Host(f"node {index}", gpus_per_node) for index in range(check_nnodes(nodes)[1])]
    variables = environment(env or ())
    meet = endpoints(found, port, elastic=":" in nodes)
    job = _job(arguments, nodes, meet, name, max_restarts, python, variables)
    _check(arguments, nodes, [host.slots for host in slots], here=not kubernetes.kubernetes)
    _warn_placement(arguments, slots)
    if kubernetes.kubernetes:
        from pipesim.backends.launch.kubernetes import manifest

        print(
            manifest(job, image=kubernetes.image, gpus_per_node=gpus_per_node, namespace=kubernetes.namespace), end=""
        )
    elif slurm.slurm:
        _write_slurm(job, slurm, gpus_per_node, port, dry_run=dry_run)
    else:
        _run(job, found, hosts, dry_run=dry_run)


# Options that are not its own are those of `run`.
launch.context_settings = {"ignore_unknown_options": True}  # type: ignore[attr-defined]  # read by `command_of`


def _require_one_way(hosts: HostOptions, slurm: SlurmOptions, kubernetes: KubernetesOptions) -> None:
    ways = {
        "--hosts": hosts.hosts, "--hostfile": hosts.hostfile, "--slurm": slurm.slurm or None,
        "--kubernetes": kubernetes.kubernetes or None,
    }  # fmt: skip
    given = [way for way, value in ways.items() if value is not None]
    if len(given) > 1:
        raise BadLaunch(f"{' and '.join(given)} are different ways to launch", "give one of them")


def _run(job: Job, found: Sequence[Host], hosts: HostOptions, *, dry_run: bool) -> None:
    """On all hosts over ssh, or one host's part here. Ends with status 75 where the job goes on later."""
    reach, folder = shlex.split(hosts.ssh), os.getcwd()
    commands = [host_command(job, found, index, reach, folder) for index in range(len(found))]
    if hosts.node is not None:
        commands = [_here(job, found, hosts.node)]
    if dry_run:
        print("\n".join(map(shlex.join, commands)))
    elif hosts.node is not None:
        os.execvpe(commands[0][0], commands[0], os.environ)
    elif not run_hosts(job, found, reach, folder):
        raise typer.Exit(GOES_ON_LATER)


def _job(
    arguments: Sequence[str], nnodes: str, endpoints: tuple[str, ...], name: str, max_restarts: int | None, python: str,
    variables: dict[str, str],
) -> Job:  # fmt: skip
    check_nnodes(nnodes)
    restarts = max_restarts if max_restarts is not None else _ELASTIC_RESTARTS if ":" in nnodes else 0
    return Job(
        arguments=tuple(arguments), nnodes=nnodes, endpoints=endpoints, name=name, max_restarts=restarts,
        python=python, environment=variables,
    )  # fmt: skip


def _check(arguments: Sequence[str], nnodes: str, slots: Sequence[int], *, here: bool = True) -> None:
    """See what is wrong with a run before it is started on many machines.

    here: the files that it names are on this one, too. Raises what `run` would, and BadLaunch.
    """
    command = command_of("run", check_run if here and find_spec("torch") is not None else _parsed)
    found = command.main(list(arguments), prog_name="pipesim run", standalone_mode=False)
    if found is None:
        return
    ranks, other = found
    least, most = check_nnodes(nnodes)
    if other or least != most:
        return
    if sum(slots[:most]) != ranks:
        raise BadLaunch(
            f"a run of {ranks} processes on hosts of {sum(slots[:most])}", "make them equal, or give --checkpoint"
        )


@wraps(check_run)
def _parsed(**_: Any) -> None:
    """Nothing but that the arguments are what `run` takes."""


def _here(job: Job, hosts: Sequence[Host], node: int) -> list[str]:
    """The command of one host, to be run on it. Raises BadLaunch."""
    if node >= len(hosts):
        raise BadLaunch(f"--node {node} of {len(hosts)} hosts", f"they count from 0 to {len(hosts) - 1}")
    return local_command(job, hosts, node)


def _hosts(hosts: str | None, hostfile: Path | None, slots: int) -> tuple[Host, ...]:
    """From the options, or inside a Slurm allocation from its node list."""
    if hosts is not None:
        return parse_hosts(hosts)
    if hostfile is not None:
        return parse_hostfile(read_text(hostfile, at_most_bytes=16 << 20), str(hostfile))
    allocated = os.environ.get("SLURM_JOB_NODELIST")
    if allocated:
        return tuple(Host(node, slots) for node in expand_nodelist(allocated))
    raise BadLaunch(
        "no hosts: neither --hosts nor --hostfile, and not inside a Slurm allocation",
        "e.g. --hosts node1:8,node2:8, or --slurm --nnodes 2",
    )


def _write_slurm(job: Job, asked: SlurmOptions, gpus_per_node: int, port: int, *, dry_run: bool) -> None:
    script = asked.script or Path(f"{job.name}.sbatch")
    allocation = Allocation(
        gpus_per_node=gpus_per_node, time=asked.time, partition=asked.partition, account=asked.account, port=port,
        warn_s=asked.warn, requeues=asked.requeues,
    )  # fmt: skip
    text = batch_script(job, allocation)
    if dry_run or str(script) == "-":
        print(text, end="")
        return
    write_atomically(script, text)
    print(hand_in(str(script)) if asked.submit else f"wrote {script}: sbatch {script}")


def _warn_placement(arguments: Sequence[str], hosts: Sequence[Host]) -> None:
    """Tensor-parallel ranks are neighbours: they stay in a node where its processes are a multiple of tp."""
    found = _TP.search(" ".join(arguments))
    tp = int(found[1]) if found else 1
    odd = [host for host in hosts if host.slots % tp]
    if odd:
        print(
            f"pipesim: warning: tp={tp} does not divide the {odd[0].slots} processes of {odd[0].name}: "
            "tensor-parallel ranks will sit in different nodes, and their all-reduces cross the network",
            file=sys.stderr,
        )
