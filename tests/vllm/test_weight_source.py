"""vLLM's own ``WeightSource`` over a lease, in the environment where vLLM is."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tests.vllm.conftest import PYTHON

ROOT = Path(__file__).parents[2]


def test_a_lease_is_a_weight_source_of_vllm() -> None:
    """From an offloaded trainer: metadata as iteration, grouped by vLLM, read again at each pass, nothing copied."""
    done = subprocess.run(
        [PYTHON, "-m", "tests.vllm.weight_source"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])

    assert told.pop("metadata") == told.pop("wanted")
    assert told == {
        "is_vllms": True,
        "state": "offloaded-cpu",
        "groups_are_vllms": True,
        "bytes_are_equal": True,
        "same_memory_each_pass": True,
        "copied_bytes": 0,
    }
