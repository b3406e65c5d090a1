"""`pipesim launch`: the arguments of `run`, on many nodes, on top of torchrun and what clusters already have."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from pipesim.backends.launch.hosts import Host, expand_nodelist, parse_hostfile, parse_hosts
from pipesim.backends.launch.slurm import Allocation, batch_script
from pipesim.backends.launch.slurm import submit as hand_in
from pipesim.backends.launch.ssh import GOES_ON_LATER, SSH, endpoints, host_command, local_command, run_hosts
from pipesim.backends.launch.torchrun import BadLaunch, Job, check_nnodes, environment
from pipesim.cli.groups import command_of
from pipesim.cli.run import check_run
from pipesim.files import read_text, write_atomically

_ELASTIC_RESTARTS = 3
_TP = re.compile(r"(?:^|[,\s])tp=(\d+)")


def launch(
    arguments: Annotated[list[str], typer.Argument(metavar="RUN_ARGUMENTS", help="As for `pipesim run`, after `--`.")],
    hosts: Annotated[str | None, typer.Option(help="a:8,b:8 — host and processes on it.")] = None,
    hostfile: Annotated[Path | None, typer.Option(help="Lines `host slots=8`.")] = None,
    slurm: Annotated[Path | None, typer.Option(metavar="SCRIPT", help="Write an sbatch script (- for stdout).")] = None,
    submit: Annotated[bool, typer.Option("--submit", help="Hand the script to sbatch.")] = False,
    kubernetes: Annotated[bool, typer.Option("--kubernetes", help="Print a PyTorchJob for Kubeflow.")] = False,
    nnodes: Annotated[str | None, typer.Option(help="Nodes, or least:most of an elastic job.")] = None,
    gpus_per_node: Annotated[int, typer.Option(min=1, help="Processes a node (Slurm, Kubernetes).")] = 8,
    node: Annotated[int | None, typer.Option(min=0, help="Run this host's part here, not all over ssh.")] = None,
    max_restarts: Annotated[
        int | None, typer.Option(min=0, help="Restarts before torchrun gives up; 3 of an elastic job, else 0.")
    ] = None,
    env: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="Environment of every process.")] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Of the rendezvous on the first node.")] = 29400,
    name: Annotated[str, typer.Option(help="Of the job.")] = "pipesim",
    ssh: Annotated[str, typer.Option(help="How to reach a host.")] = SSH,
    python: Annotated[str, typer.Option(help="The Python of the hosts.")] = sys.executable,
    time: Annotated[str | None, typer.Option(help="Slurm's time limit.")] = None,
    partition: Annotated[str | None, typer.Option(help="Slurm's partition.")] = None,
    account: Annotated[str | None, typer.Option(help="Slurm's account.")] = None,
    warn: Annotated[int, typer.Option(min=1, help="Slurm: seconds before the time limit to write a checkpoint.")] = 120,
    requeues: Annotated[int, typer.Option(min=0, help="Slurm: how often the job puts itself back in line.")] = 16,
    image: Annotated[str, typer.Option(help="Kubernetes: container image with pipesim in it.")] = "pipesim:latest",
    namespace: Annotated[str, typer.Option(help="Kubernetes' namespace.")] = "default",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would run, and run nothing.")] = False,
) -> None:
    """Run a schedule on many nodes: over ssh, by Slurm, or by Kubernetes.

    Example: pipesim launch --hosts node1:8,node2:8 --dry-run -- 1f1b --layout pp=2,tp=8 --microbatches 16
    """
    ways = {"--hosts": hosts, "--hostfile": hostfile, "--slurm": slurm, "--kubernetes": kubernetes or None}
    given = [way for way, value in ways.items() if value is not None]
    if len(given) > 1:
        raise BadLaunch(f"{' and '.join(given)} are different ways to launch", "give one of them")
    variables = environment(env or ())
    if slurm is not None or kubernetes:
        nodes = nnodes or "1"
        _, most = check_nnodes(nodes)
        _check(arguments, nodes, [gpus_per_node] * most, here=not kubernetes)
        _warn_placement(arguments, [Host(f"node {index}", gpus_per_node) for index in range(most)])
    if kubernetes:
        from pipesim.backends.launch.kubernetes import manifest

        job = _job(arguments, nodes, (), name, max_restarts, "python3", variables)
        print(manifest(job, image=image, gpus_per_node=gpus_per_node, namespace=namespace), end="")
        return
    if slurm is not None:
        job = _job(arguments, nodes, (), name, max_restarts, python, variables)
        allocation = Allocation(
            gpus_per_node=gpus_per_node, time=time, partition=partition, account=account, port=port, warn_s=warn,
            requeues=requeues,
        )  # fmt: skip
        _write_slurm(job, slurm, allocation, submit and not dry_run)
        return
    found = _hosts(hosts, hostfile, gpus_per_node)
    nodes = nnodes or str(len(found))
    _check(arguments, nodes, [host.slots for host in found])
    _warn_placement(arguments, found)
    meet = endpoints(found, port, elastic=":" in nodes)
    job = _job(arguments, nodes, meet, name, max_restarts, python, variables)
    commands = [host_command(job, found, index, shlex.split(ssh), os.getcwd()) for index in range(len(found))]
    if node is not None:
        commands = [_here(job, found, node)]
    if dry_run:
        print("\n".join(map(shlex.join, commands)))
    elif node is not None:
        os.execvpe(commands[0][0], commands[0], os.environ)
    elif not run_hosts(job, found, shlex.split(ssh), os.getcwd()):
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
        "e.g. --hosts node1:8,node2:8, or --slurm job.sh --nnodes 2",
    )


def _write_slurm(job: Job, script: Path, allocation: Allocation, submits: bool) -> None:
    text = batch_script(job, allocation)
    if str(script) == "-":
        print(text, end="")
        return
    write_atomically(script, text)
    print(hand_in(str(script)) if submits else f"wrote {script}: sbatch {script}")


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
