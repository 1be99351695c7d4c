"""What the tests over the real library share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.saver.stub import build_stub


@pytest.fixture(scope="session")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the stand-ins for the CUDA libraries."""
    folder = tmp_path_factory.mktemp("stub")
    build_stub(folder)
    return folder
