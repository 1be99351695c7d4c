"""Commands that read logs run where torch is not: on a laptop, in CI, on the machine that keeps the logs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.report.logs import write_run

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of some turns of one rank."""
    (path,) = write_run(tmp_path_factory.mktemp("logs"), ranks=1, records=200)
    return path


@pytest.mark.parametrize(
    "command", [("audit",), ("report", "--out", "report.html"), ("diagram", "--out", "run.svg"), ("watch", "--once")]
)
def test_a_command_that_reads_a_log_imports_no_torch(tmp_path: Path, log: Path, command: tuple[str, ...]) -> None:
    """It is also two seconds of a processor, before anything is read."""
    (tmp_path / "torch.py").write_text("raise RuntimeError('torch was imported')")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}

    done = subprocess.run(
        [sys.executable, "-c", "from lifecycle.cli.start import main; main()", *command, str(log)],
        capture_output=True, text=True, check=False, env=env, cwd=tmp_path,
    )  # fmt: skip

    assert "torch" not in done.stderr
    assert done.stdout
