"""Device memory that two processes share: the real handles."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from lifecycle.transport.memories import by_device_ipc
from lifecycle.transport.ports import Transport
from tests.transport.remote import Process, RemoteEngine
from tests.transport.test_choice import sha256

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]


@pytest.fixture
def real_process() -> Iterator[Process]:
    """A child that opens CUDA's handles."""
    shared, files = Path(tempfile.mkdtemp(dir="/dev/shm")), Path(tempfile.mkdtemp())
    child = Process(shared, files, real_ipc=True)
    yield child
    child.end()
    for folder in (shared, files):
        shutil.rmtree(folder)


def test_tensors_go_through_device_memory_byte_for_byte(real_process: Process) -> None:
    """Device and host tensors, cut over several buffers; chosen by the probe, nothing is outstanding after it."""
    tensors = {"device": torch.randn(300, 700, device="cuda"), "strided": torch.randn(90, 70).t()}
    one = RemoteEngine(real_process, "E0", [by_device_ipc(2**18, folder=real_process.shared)])
    one.begin_update()
    one.send_base("base", 1, tensors.items())
    one.commit_update()

    assert one.transport.chosen is Transport.DEVICE_IPC
    assert one.checksums("base") == {name: sha256(tensor.cpu()) for name, tensor in tensors.items()}
    assert one.outstanding_bytes() == 0
