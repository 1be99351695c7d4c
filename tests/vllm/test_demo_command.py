"""``adapter-lifecycle demo --engine vllm`` against a real server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import httpx

from tests.vllm.server import RunningServer

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-c", "from lifecycle.cli.app import main; main()", "demo")


def test_the_demo_runs_against_a_vllm_server(server: RunningServer, tmp_path: Path) -> None:
    """Its adapters come and go, the server's samples are the trainer's own policy, and nothing is left there."""
    options = ["--engine", "vllm", "--engine-url", server.url, "--model", str(server.model), "--turns", "2", "--json"]
    done = subprocess.run(
        [*COMMAND, *options, "--out", str(tmp_path / "out")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)

    assert [one["turn"] for one in told["turns"]] == [0, 1]
    assert max(one["logprob_diff"] for one in told["turns"]) < 1e-3
    assert {name for one in told["turns"] for name in one["rewards"]} == {"a", "b", "c"}
    assert len(httpx.get(f"{server.url}/v1/models").json()["data"]) == 1
    assert httpx.get(f"{server.url}/is_sleeping").json() == {"is_sleeping": False}


def test_the_demo_refuses_a_server_with_another_model(server: RunningServer, tmp_path: Path) -> None:
    """One line, and nothing is trained."""
    options = ["--engine", "vllm", "--engine-url", server.url, "--seed", "5", "--turns", "1"]
    done = subprocess.run(
        [*COMMAND, *options, "--out", str(tmp_path / "out")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert "its base is not the trainer's" in done.stderr
    assert httpx.get(f"{server.url}/is_sleeping").json() == {"is_sleeping": False}
