"""What the compiled torch_memory_saver answers, and what is made of it here. Runs in a child process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from lifecycle.compat import StaleBackup, TensorBackuper, named_params_and_buffers
from lifecycle.errors import UnreadableTensor
from lifecycle.saver.protocol import Backup
from lifecycle.saver.room import CarefulSaver
from lifecycle.saver.views import bytes_at
from tests.saver.real_port import RealLibrary, RealPort


def main(stub: str) -> None:
    """One line each: what the library does when it is asked directly, and that it is not asked here."""
    library = RealLibrary(Path(stub))
    port = RealPort(library)
    saver = CarefulSaver(port, retain_host_backup=True)
    lost, kept = torch.zeros(4, dtype=torch.uint8), torch.zeros(4, dtype=torch.uint8)
    saver.place({"lost": lost}, "scratch", Backup.NONE)
    saver.place({"kept": kept}, "default", Backup.CPU)
    for tag in ("scratch", "default"):
        saver.pause(tag)
    child = os.fork()
    if child == 0:
        port.backup_pointer(lost.data_ptr(), 4)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print("asked directly, paused without backup: exit", status)
    saver.resume("default")
    kept.fill_(7)
    pointer = port.backup_pointer(kept.data_ptr(), 4)
    assert pointer is not None
    print("asked directly, retained while awake:", bytes_at(pointer, 4).tolist())
    ask_here(saver, {"kept": kept, "lost": lost})
    back_up_and_restore(saver, kept)


def ask_here(saver: CarefulSaver, named: dict[str, torch.Tensor]) -> None:
    """Both are errors that name the tensor; paused with a backup the bytes are those of the pause."""
    for name, error in (("lost", UnreadableTensor), ("kept", StaleBackup)):
        with pytest.raises(UnreadableTensor) as caught:
            named_params_and_buffers({name: named[name]}, translate_gpu_to_cpu=True, saver=saver)
        assert (caught.type, caught.value.tensor) == (error, name)
    saver.pause("default")
    pairs = dict(named_params_and_buffers({"kept": named["kept"]}, translate_gpu_to_cpu=True, saver=saver))
    assert pairs["kept"].tolist() == [7] * 4
    print("asked here: held")


def back_up_and_restore(saver: CarefulSaver, kept: torch.Tensor) -> None:
    """Paused, in the saver's own backup: what a restore writes there is on the device after the resume."""
    backuper = TensorBackuper.create({"kept": kept}.items, saver=saver)
    backuper.backup("actor")
    saver.resume("default")
    kept.fill_(9)
    saver.pause("default")
    assert backuper.backup("other") == 4
    backuper.restore("actor")
    saver.resume("default")
    assert kept.tolist() == [7] * 4
    assert backuper.get("other")["kept"].tolist() == [9] * 4
    print("copies: held")
