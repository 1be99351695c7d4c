"""Random runs of a real trainer: whatever is called and whatever fails, a log that is whole gives no finding."""

from __future__ import annotations

from pathlib import Path

import pytest

from lifecycle.auditing import Audited
from tests.auditing import good

VERSION_1 = Path(__file__).parents[1] / "audit" / "version_1.jsonl"


@pytest.mark.parametrize("tens", range(8))
def test_a_good_run_gives_no_finding(tens: int, tmp_path: Path) -> None:
    """Ten seeds; ``python -m tests.auditing.good`` audits a thousand."""
    audited = Audited()
    found = {}
    for seed in range(10 * tens, 10 * tens + 10):
        folder = tmp_path / str(seed)
        folder.mkdir()
        found[seed] = good.audit_run(seed, folder, audited)

    assert {seed: one for seed, one in found.items() if one} == {}
    assert audited.records > 150


def test_a_log_of_version_1_is_audited() -> None:
    """Its reads and verdicts stand at length."""
    audited = Audited()

    assert list(good.audit_logs([VERSION_1], audited)) == []
    assert audited.records == 17
