"""`pipesim launch`: what would run, exactly, on every kind of cluster."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from pipesim.backends.launch.kubernetes import PyTorchJob
from pipesim.cli import main

RUN = ["--", "1f1b", "--layout", "pp=2,tp=8", "--microbatches", "16", "--model", "llama-3-8b", "--checkpoint", "run"]
TINY = ["--", "1f1b", "--microbatches", "32", "--model", "tiny-llama", "--ranks", "4"]
ODD = [*TINY, "--checkpoint", 'my folder\'s "name" $HOME;x']


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    status = main(["launch", *args])
    out, err = capsys.readouterr()
    return status, out, err


def test_dry_run_over_ssh(capsys: pytest.CaptureFixture[str]) -> None:
    hosts = ",".join(f"node{index:02}:8" for index in range(16))
    status, out, err = run(capsys, "--hosts", hosts, "--dry-run", "--python", "python3", *RUN)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) == 16
    words = shlex.split(lines[15])
    assert words[:3] == ["ssh", "-o", "BatchMode=yes"]
    assert words[-3:-1] == ["-tt", "node15"]
    remote = shlex.split(words[-1])
    assert remote[:4] == ["cd", str(Path.cwd()), "&&", "exec"]
    assert remote[5:10] == [
        "CUDA_DEVICE_ORDER=PCI_BUS_ID", "NCCL_DEBUG=WARN", "OMP_NUM_THREADS=1",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1", "TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
    ]  # fmt: skip
    assert remote[10:] == [
        "python3", "-m", "pipesim.backends.launch.node", "--node=15", "--local-addr=node15",
        "--nnodes=16", "--nproc-per-node=8", "--max-restarts=0",
        "--rdzv-backend=c10d", "--rdzv-endpoint=node00:29400", "--rdzv-id=pipesim", "-m", "pipesim", "run",
        *RUN[1:],
    ]  # fmt: skip


def test_arguments_survive_both_shells(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--hosts", "a:1", "--dry-run", *ODD)
    assert shlex.split(shlex.split(out)[-1])[-1] == ODD[-1]


def test_elastic_and_environment(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--hosts", "localhost:2,localhost:2", "--nnodes", "1:2", "--max-restarts", "3",
                    "--env", "NCCL_SOCKET_IFNAME=eth0", "--env", "NCCL_DEBUG=INFO", "--dry-run", *RUN)  # fmt: skip
    words = shlex.split(out.splitlines()[0])
    assert words[0] == "env"  # localhost needs no ssh
    assert {"NCCL_SOCKET_IFNAME=eth0", "NCCL_DEBUG=INFO", "--nnodes=1:2", "--max-restarts=3"} <= set(words)


def test_where_an_elastic_job_meets(capsys: pytest.CaptureFixture[str]) -> None:
    """At the next host when the first is lost; a host's own command may be started by hand."""
    _, out, _ = run(capsys, "--hosts", "me@a:1,me@b:1", "--nnodes", "1:2", "--node", "1", "--dry-run", *RUN)
    words = shlex.split(out)
    assert words[0] == "env"
    assert {"--rdzv-endpoint=a:29400,b:29400", "--node=1", "--local-addr=b", "--max-restarts=3"} <= set(words)
    _, out, _ = run(capsys, "--hosts", "localhost:1,localhost:1", "--nnodes", "1:2", "--dry-run", *RUN)
    assert "--rdzv-endpoint=localhost:29400,localhost:29401" in out


def test_slurm_script(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    asked = ["--slurm", "--script", str(script), "--nnodes", "4", "--time", "8:00:00", "--partition", "gpu"]
    status, out, _ = run(capsys, *asked, *ODD)
    assert (status, out) == (0, f"wrote {script}: sbatch {script}\n")
    text = script.read_text()
    assert "#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\n#SBATCH --time=8:00:00\n" in text
    assert "#SBATCH --signal=B:USR1@120\n#SBATCH --requeue\n#SBATCH --open-mode=append\n" in text
    (command,) = [line for line in text.splitlines() if "--nproc-per-node" in line]
    assert '"--rdzv-endpoint=$meet" --nnodes=4' in command
    assert '"--rdzv-id=$SLURM_JOB_ID"' in command
    assert shlex.split(command)[-2] == ODD[-1]
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0


def test_slurm_scripts_go_by_the_job_and_a_dry_run_writes_none(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _, script, _ = run(capsys, "--slurm", "--nnodes", "4", "--name", "mine", "--dry-run", *RUN)
    assert script.startswith("#!/bin/bash\n#SBATCH --job-name=mine\n")
    assert list(tmp_path.iterdir()) == []
    run(capsys, "--slurm", "--nnodes", "4", "--name", "mine", *RUN)
    assert (tmp_path / "mine.sbatch").read_text() == script


def test_arguments_of_run_need_no_dashes_before_them(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["1f1b", "--layout", "pp=2,tp=2", "-m", "4", "--model", "tiny-llama"]
    _, apart, _ = run(capsys, "--hosts", "a:2,b:2", "--dry-run", "--", *arguments)
    status, mixed, _ = run(capsys, *arguments[:3], "--hosts", "a:2,b:2", *arguments[3:], "--dry-run")
    assert status == 0
    assert mixed == apart
    assert "1f1b --layout pp=2,tp=2 -m 4 --model tiny-llama" in mixed
    status, _, err = run(capsys, *arguments, "--hosts", "a:2,b:2", "--dry-rum")
    assert (status, err) == (2, "pipesim: error: No such option: --dry-rum\n")


def test_inside_an_allocation(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_NODELIST", "gpu[07-09]")
    _, out, _ = run(capsys, "--gpus-per-node", "4", "--dry-run", *RUN)
    assert [shlex.split(line)[-2] for line in out.splitlines()] == ["gpu07", "gpu08", "gpu09"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([*TINY, "--layuot", "pp=4"], "No such option: --layuot"),
        (["--", "1f1c", *TINY[2:]], "no schedule '1f1c'"),
        ([*TINY, "--layout", "pp=4,xp=1"], "'xp=1'; degrees of pp, tp, dp, cp, ep"),
        ([*TINY[:-4], "--layout", "pp=2,tp=8"], "--layout without --model"),
        ([*TINY, "--model", "no-such-model", "--layout", "pp=4"], "unknown model 'no-such-model'"),
        ([*TINY, "--model", "no-such-model"], "no such model"),
        ([*TINY, "--layout", "pp=4", "--data", "/no/text"], "cannot read /no/text"),
        (
            [*TINY, "--checkpoint", "run", "--fallback", "tp=3"],
            "4 attention heads of tiny-llama cannot be split over 3",
        ),
        ([*TINY, "--checkpoint", "run", "--checkpoint-every", "soon"], "'soon'"),
        ([*TINY, "--fallback", "tp=2"], "--fallback without --checkpoint"),
        ([*TINY, "--metrics", "/no/such/folder/losses"], "cannot write /no/such/folder/losses"),
        ([*TINY[:-1], "3"], "a run of 3 processes on hosts of 4"),
    ],
)
@pytest.mark.parametrize("dry", [["--dry-run"], []])
def test_a_bad_run_is_seen_before_anything_starts(
    dry: list[str], arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capsys, "--hosts", "a:2,b:2", "--ssh", "/no/such/ssh", *dry, *arguments)
    assert (status, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


def test_what_kubernetes_runs_is_read_only_as_far_as_it_is_here(capsys: pytest.CaptureFixture[str]) -> None:
    """A model's folder may be in the image alone; an option has to be one."""
    assert run(capsys, "--kubernetes", *TINY, "--layout", "pp=4", "--data", "/in/the/image")[0] == 0
    status, _, err = run(capsys, "--kubernetes", *TINY, "--layuot", "pp=4")
    assert status == 2
    assert "No such option: --layuot" in err


def test_kubernetes_manifest(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "--kubernetes", "--nnodes", "2:4", "--image", "registry/pipesim:1", *ODD)
    assert status == 0
    made = yaml.safe_load(out)
    assert PyTorchJob.model_validate(made)
    worker = made["spec"]["pytorchReplicaSpecs"]["Worker"]
    assert worker["replicas"] == 4
    assert made["spec"]["elasticPolicy"] == {
        "rdzvBackend": "c10d", "minReplicas": 2, "maxReplicas": 4, "maxRestarts": 3,
    }  # fmt: skip
    container = worker["template"]["spec"]["containers"][0]
    assert container["command"][-1] == ODD[-1]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 8}}


def test_a_layout_that_crosses_nodes_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "--hosts", "a:4,b:4", "--dry-run", *RUN)
    assert status == 0
    assert "tp=8 does not divide the 4 processes of a" in err


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--dry-run"], "neither --hosts nor --hostfile"),
        (["--hosts", "a:8", "--kubernetes"], "different ways to launch"),
        (["--hosts", "a:8", "--nnodes", "4:2"], "counts down"),
        (["--hosts", "a:8", "--node", "1"], "--node 1 of 1 hosts"),
        (["--hosts", "a:8", "--nnodes", "x"], "not a number of nodes"),
        (["--hosts", "a:8", "--env", "1X=2"], "not a name and a value"),
        (["--hostfile", "/no/such/file"], "/no/such/file"),
        (["--slurm", "--script", "/no/such/folder/job.sh"], "does not exist"),
        (["--slurm", "--partition", "a b"], "one word without spaces"),
        (["--hosts", "$(x):8"], "not a host name"),
        (["--kubernetes", "--name", "Bad Name"], "name='Bad Name' cannot stand in a manifest"),
    ],
)
def test_bad_launches(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, args: list[str], says: str
) -> None:
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    status, _, err = run(capsys, *args, *RUN)
    assert status == 2
    assert says in err
    assert err.count("\n") == 1
