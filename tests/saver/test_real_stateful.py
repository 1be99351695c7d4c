"""No sequence of public calls ends the process, over the compiled torch_memory_saver."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.saver.proc import run_child

PROGRAM = "from tests.saver.real_stateful import main; import sys; main(*sys.argv[1:])"


def search(stub: Path, saver: str, examples: int, steps: int) -> subprocess.CompletedProcess[str]:
    """The search, in a process whose disk can be full."""
    return run_child(PROGRAM, str(stub), saver, str(examples), str(steps), LD_PRELOAD=str(stub / "libcuda.so.1"))


def test_no_sequence_of_public_calls_ends_the_process(stub: Path) -> None:
    """Pauses, resumes, releases, late frees, full devices, hosts and disks, files that are gone (FB-13, FB-25)."""
    child = search(stub, "careful", 60, 25)

    assert child.returncode == 0, child.stdout + child.stderr
    assert child.stdout.splitlines()[-1] == "survived"


def test_a_saver_that_does_not_ask_for_room_is_found_out(stub: Path) -> None:
    """The search can fail: it finds and shrinks a sequence that ends the process, and says which call it was."""
    child = search(stub, "managed", 30, 8)

    assert child.returncode != 0
    assert "ended the process" in child.stderr
    assert "state.start(" in child.stderr
    assert "state.without_room(" in child.stderr
