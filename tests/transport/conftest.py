"""Folders on shared memory and on a disk, and one engine process for all tests."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lifecycle.transport.memories import SHARED_MEMORY
from tests.transport.remote import Process


@pytest.fixture(scope="session")
def process() -> Iterator[Process]:
    """A child that serves any number of engines; what is left in its folders is removed."""
    memory = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
    shared, files = Path(tempfile.mkdtemp(dir=memory)), Path(tempfile.mkdtemp())
    child = Process(shared, files)
    yield child
    child.end()
    for folder in (shared, files):
        shutil.rmtree(folder)
