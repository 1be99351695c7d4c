"""A short soak: the same code as ``make soak``, with few cycles in some of its configurations."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.soak import cycles
from tests.soak.cycles import soak

SOAK = "import sys, torch; from tests.soak.cycles import soak; torch.set_num_threads(1); print(soak(60, sys.argv[1:]))"


@pytest.mark.parametrize("configuration", ["lean-disk-always", "reference-cpu-saver-off-trainable"])
def test_sixty_cycles_with_everything_in_between_leave_nothing_behind(configuration: str) -> None:
    """Memory, descriptors, mappings, files, records, digests and copies are what they were after the first forty.

    In a process of its own: pages that this one shares with a child are counted as its own once the child has ended.
    """
    done = subprocess.run([sys.executable, "-c", SOAK, configuration], capture_output=True, text=True, check=False)

    assert (done.stdout.splitlines()[-1:], done.returncode) == (["[]"], 0), done.stdout + done.stderr


def test_what_grows_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A digest a cycle that nobody forgets is found."""
    done = cycles.Run.cycle

    def leaking(run: cycles.Run) -> None:
        done(run)
        run.world.trainer._parts.versions.digests[-run.cycles] = "kept"
        run.world.trainer._parts.versions.forget_digests = lambda kept: None  # type: ignore[method-assign]

    monkeypatch.setattr(cycles.Run, "cycle", leaking)
    found = soak(40, ["lean-cpu-saver-always"])

    assert any("digests grew from" in one for one in found), found
