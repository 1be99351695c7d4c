"""One local cluster for a module: two cores' worth of nothing, loopback, no dashboard, no word to anybody outside."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
import ray

ROOT = Path(__file__).parents[2]
STORE_BYTES = 100 * 2**20


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A cluster that ends with the module."""
    environment = {
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_TOKEN": secrets.token_hex(),
    }
    with mock.patch.dict(os.environ, environment):
        ray.init(
            num_cpus=16,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="error",
            object_store_memory=STORE_BYTES,
            _node_ip_address="127.0.0.1",
        )
        yield
        ray.shutdown()
