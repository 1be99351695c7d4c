"""The example of docs/ray.md runs as it stands."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path

from tests.docs.blocks import code_of

ROOT = Path(__file__).parents[2]


def test_the_example_of_the_page_runs_as_it_stands(tmp_path: Path) -> None:
    """Copied into a file of its own, on a cluster of its own; nothing is printed but what it prints."""
    (program,) = code_of("ray.md")
    (tmp_path / "example.py").write_text(program)
    told = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_TOKEN": secrets.token_hex(), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "example.py"],
        cwd=tmp_path,
        env=os.environ | told | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("offload (offloads-to-cpu): sleeping to offloaded-cpu on 2 ranks") == 2
    assert "EventRefused 0" in done.stdout
