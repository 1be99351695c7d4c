"""A Chromium for the session. Without ADAPTER_LIFECYCLE_CHROMIUM nothing here is collected."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.chromium import Chromium

PROGRAM = os.environ.get("ADAPTER_LIFECYCLE_CHROMIUM", "")
"""The browser's program."""

collect_ignore_glob = [] if PROGRAM else ["test_*.py"]


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """A running browser. It is ended whatever happens."""
    running = Chromium(PROGRAM, tmp_path_factory.mktemp("chromium"))
    try:
        yield running
    finally:
        running.close()


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pictures go, which somebody is to look at: ADAPTER_LIFECYCLE_SCREENSHOTS, else a folder of the run."""
    told = os.environ.get("ADAPTER_LIFECYCLE_SCREENSHOTS")
    folder = Path(told) if told else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
