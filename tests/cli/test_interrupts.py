"""Ctrl-C at several moments, as a terminal sends it: to a command and to all that it has started."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROW = {
    "layers": 32, "hidden": 4096, "heads": 32, "ffn": 11008, "vocab": 32000, "seq": 4096, "gpu": "H100",
    "num_gpus": 64, "tp": 2, "pp": 4, "micro_batch": 1, "global_batch": 256,
}  # fmt: skip
COMMANDS = (
    "simulate 1f1b -p 64 -m 4000 --costs F=1ms,I=1ms,W=1ms,C=0.1ms --engine event --out out.html --timeline out.npz",
    "plan --model llama-3-70b --cluster dgx-h100:128 --global-batch 2048 --seq 8192 --out out.html --save plan",
    "sweep --vary microbatches=64:2048:64 --vary ranks=4:16:4 zb-auto --costs F=1,I=1,W=1 --csv out.csv",
    "predict many.jsonl --out out.jsonl --workers 2",
    "run 1f1b -p 2 -m 4 --emulate F=5ms,B=5ms --steps 2000 --out out.html --metrics out.jsonl",
)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seconds", [1.0, 3.0, 6.0])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.split()[0])
def test_ctrl_c_is_quiet_and_leaves_nothing_half_done(command: str, seconds: float, tmp_path: Path) -> None:
    """Workers that were still importing once wrote tracebacks, and the pool of others one more."""
    rows = (json.dumps(ROW | {"hidden": 1024 + 128 * (number % 300)}) for number in range(3000))
    (tmp_path / "many.jsonl").write_text("\n".join(rows))
    process = subprocess.Popen(
        [sys.executable, "-m", "pipesim", *command.split()], cwd=tmp_path, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    time.sleep(seconds)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=200)
    assert "Traceback" not in errors
    assert process.returncode in (0, 130)  # 0: it was done, or the plan had a best choice
    assert not [path for path in tmp_path.rglob("*") if ".part" in path.name]
