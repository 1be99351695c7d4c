"""Random runs of four real ranks, audited together: whatever is refused, fails or is lost on one, no finding."""

from __future__ import annotations

from pathlib import Path

import pytest

from lifecycle.auditing import Audited, audit_logs
from tests.auditing.ranked import RankedRun, Recorded
from tests.distributed.ranks import Ranks


@pytest.mark.parametrize("seed", [0, 1])
def test_logs_of_ranks_that_live_a_random_life_give_no_finding(seed: int, tmp_path: Path) -> None:
    """One seed each; ``python -m tests.auditing.ranked`` audits many. Seed 0 loses a rank, and another one joins."""
    audited = Audited()
    with Ranks(Recorded) as ranks:
        logs = RankedRun(seed, tmp_path, ranks).live()

    assert list(audit_logs(logs, audited)) == []
    assert audited.records > 4 * 10
    assert ("ranks joined" in logs[0].read_text()) is (seed == 0)
