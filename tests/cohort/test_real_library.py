"""A cohort over the compiled torch_memory_saver 0.0.10: it takes turns, and a turn without room does not end it."""

from __future__ import annotations

from pathlib import Path

from tests.saver.proc import run_child
from tests.saver.stub import build_stub


def test_a_cohort_takes_turns_on_the_real_library_and_outlives_a_turn_without_room(tmp_path: Path) -> None:
    """Out of memory at a resume is exit(1) there: the plan refuses before the first step."""
    for name in ("stub", "disk"):
        (tmp_path / name).mkdir()
    build_stub(tmp_path / "stub")
    program = "from tests.cohort.real_turns import main; import sys; main(*sys.argv[1:])"
    child = run_child(program, str(tmp_path / "stub"), str(tmp_path / "disk"))

    told = [line for line in child.stdout.splitlines() if not line.startswith("[")]
    assert told == ["turns held", "CohortRefused", "lives"], child.stdout + child.stderr
    assert child.returncode == 0
