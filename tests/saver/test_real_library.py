"""The compiled torch_memory_saver 0.0.10, on the CPU: the contract holds on it, and it dies where the guards say."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from lifecycle.saver import HostArena
from lifecycle.testing import SaverContract
from tests.gpu.life import life_cycle
from tests.saver.proc import run_child
from tests.saver.real_deaths import DEATHS
from tests.saver.stub import build_stub


def test_the_stand_ins_need_no_c_compiler_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no cc is found, the one of ziglang compiles them, and the library loads over the result."""
    monkeypatch.setenv("PATH", str(tmp_path))
    build_stub(tmp_path)
    child = run_child(
        "from tests.saver.real_port import RealLibrary; import pathlib, sys; RealLibrary(pathlib.Path(sys.argv[1]))",
        str(tmp_path),
    )

    assert child.returncode == 0, child.stderr


@pytest.fixture(scope="module")
def contract(stub: Path) -> subprocess.CompletedProcess[str]:
    """One run of all rules in one child process."""
    return run_child("from tests.saver.real_contract import main; import sys; main(sys.argv[1])", str(stub))


@pytest.mark.parametrize("rule", SaverContract.rules())
def test_the_contract_holds_on_the_real_library(rule: str, contract: subprocess.CompletedProcess[str]) -> None:
    """The books and guards are right about the library they were written for."""
    assert f"held {rule}" in contract.stdout.splitlines(), contract.stdout + contract.stderr


def test_the_real_library_frees_all_device_memory(contract: subprocess.CompletedProcess[str]) -> None:
    """Nothing is left on the stand-in device, and the process ended by itself."""
    assert contract.stdout.splitlines()[-1] == "left 0 bytes"
    assert contract.returncode == 0


@pytest.fixture(scope="module")
def endings(stub: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """How the process ended after each call, 0 when it lived on."""
    folder = tmp_path_factory.mktemp("disk")
    program = "from tests.saver.real_deaths import main; import sys; main(*sys.argv[1:])"
    child = run_child(program, str(stub), str(folder))
    assert child.returncode == 0, child.stdout + child.stderr
    lines = [line.split() for line in child.stdout.splitlines() if not line.startswith("[")]
    return {name: int(code) for name, code in lines}


@pytest.mark.parametrize("misuse", DEATHS)
def test_without_guards_the_real_library_ends_the_process(misuse: str, endings: dict[str, int]) -> None:
    """Each call that the guards refuse is one that kills: exit code 1, or SIGSEGV for an unknown address (FB-13)."""
    assert endings[misuse] == (-signal.SIGSEGV if misuse == "backup_of_an_unknown_address" else 1)


def test_an_unknown_tag_is_a_silent_success_of_the_real_library(endings: dict[str, int]) -> None:
    """Nothing happens, and nobody is told; the guards refuse it."""
    assert endings["survives"] == 0


@pytest.fixture(scope="module")
def stories(stub: Path, tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """Longer stories, each in a fork of one child process."""
    program = "from tests.saver.real_life import main; import sys; main(*sys.argv[1:])"
    return run_child(program, str(stub), str(tmp_path_factory.mktemp("disk")))


def test_a_controller_lives_on_the_real_library(stories: subprocess.CompletedProcess[str]) -> None:
    """Sleep, offload, push, reconcile while offloaded, wake: the bytes are compared at every station."""
    assert "live held" in stories.stdout.splitlines(), stories.stdout + stories.stderr


def test_the_last_reference_to_a_paused_tensor_may_go(stories: subprocess.CompletedProcess[str]) -> None:
    """The process lives, other tags keep their bytes, and the device memory is all given back (FB-25)."""
    assert "drop_the_last_reference held" in stories.stdout.splitlines(), stories.stdout + stories.stderr


def test_a_driver_that_frees_nothing_is_seen(stories: subprocess.CompletedProcess[str]) -> None:
    """The books say that all is freed; the driver's figure has not moved (FB-27)."""
    assert "free_nothing held" in stories.stdout.splitlines(), stories.stdout + stories.stderr


def test_a_controllers_life_cycle_is_the_same_on_the_arena() -> None:
    """What runs on a device in the gpu tests, and on the compiled library above, with the same comparisons."""
    life_cycle(HostArena(), "cpu")
