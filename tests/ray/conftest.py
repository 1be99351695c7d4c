"""One local cluster for a module: on loopback, with a small object store, no dashboard, no word to anybody outside."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
import ray

ROOT = Path(__file__).parents[2]
STORE_BYTES = 100 * 2**20
TOKEN = secrets.token_hex()
"""Of all clusters of this process: Ray reads it once. Without one it would write one to the home directory."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A cluster that ends with the module."""
    environment = {
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_TOKEN": TOKEN,
    }
    with mock.patch.dict(os.environ, environment), tempfile.TemporaryDirectory(prefix="ray-") as directory:
        ray.init(
            num_cpus=16,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="error",
            object_store_memory=STORE_BYTES,
            _node_ip_address="127.0.0.1",
            _temp_dir=directory,
        )
        yield
        ray.shutdown()
