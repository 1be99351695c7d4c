"""A real vLLM server for the session. Without ADAPTER_LIFECYCLE_VLLM_PYTHON nothing here is collected."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

PYTHON = os.environ.get("ADAPTER_LIFECYCLE_VLLM_PYTHON", "")
"""The interpreter of a virtual environment with vLLM."""

collect_ignore_glob = [] if PYTHON else ["test_*.py"]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A running server on the demo's model. It is ended whatever happens."""
    from tests.vllm.server import RunningServer  # noqa: PLC0415 - only where there is one
    from tests.vllm.world import write_model  # noqa: PLC0415

    place = tmp_path_factory.mktemp("vllm")
    running = RunningServer(Path(PYTHON), write_model(place / "model"), place / "server.log")
    try:
        running.start()
        yield running
    finally:
        running.kill()
