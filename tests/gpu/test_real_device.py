"""The same scenarios, the same contract and one life cycle, with torch_memory_saver on a CUDA device."""

from __future__ import annotations

import subprocess
from importlib.util import find_spec

import pytest
import torch

from lifecycle.testing import SaverContract
from tests.saver.play import ENDS, calls_of
from tests.saver.proc import run_child
from tests.saver.scenarios import SCENARIOS

WHY_NOT = (
    "torch sees no CUDA device"
    if not torch.cuda.is_available()
    else "torch_memory_saver is not installed"
    if find_spec("torch_memory_saver") is None
    else ""
)
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]

# A device of a size, full host memory and a disk that takes no more are the stand-in's.
ON_A_DEVICE = [
    (name, host)
    for name, scenario in SCENARIOS.items()
    for host in scenario.hosts
    if scenario.device_bytes is None and "fill " not in scenario.lines
]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """One call of the program, in a process that may end."""
    return run_child("import runpy; runpy.run_module('tests.gpu.device', run_name='__main__')", *arguments)


@pytest.mark.parametrize(("name", "host"), ON_A_DEVICE)
def test_the_device_does_what_the_table_says(name: str, host: str) -> None:
    """The same pictures as over the stand-in and on the arena; misuse ends the process (FB-13)."""
    child = run("play", name, host)
    seen = [line.removeprefix("saw ") for line in child.stdout.splitlines() if line.startswith("saw ")]

    assert "Traceback" not in child.stderr, child.stderr
    ended = [ENDS] if child.returncode != 0 else []
    assert [*seen, *ended] == [picture for _, picture in calls_of(SCENARIOS[name])], child.stderr


@pytest.mark.parametrize("rule", SaverContract.rules())
def test_the_contract_holds_on_a_device(rule: str) -> None:
    """Through torch's allocator and the package's Python binding."""
    child = run("hold", rule)

    assert f"held {rule}" in child.stdout.splitlines(), child.stdout + child.stderr


def test_a_trainer_lives_on_a_device() -> None:
    """Sleep, offload, push, reconcile while offloaded, wake: every byte is as it was or as it was wanted."""
    child = run("live")

    assert "lived" in child.stdout.splitlines(), child.stdout + child.stderr
