"""Each refused row of the table: a clear error before anything was moved."""

from __future__ import annotations

import pytest

from lifecycle.errors import AdapterError, ConfigError
from lifecycle.memory import attachable
from lifecycle.memory.attachable import REFUSED, attach_page
from tests.attach.refused import CASES
from tests.attach.world import places

# Raised where the row's matter is known first; they have words of their own.
ELSEWHERE = (attachable.PREFIX_TAKEN, attachable.SLOT_MODULES, attachable.WRAPPED_BY_PEFT)


def test_every_refused_row_has_a_case_and_every_case_a_row() -> None:
    """A row that nobody tries is no promise."""
    assert list(CASES) == [row.kind for row in REFUSED]


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row.kind)
def test_what_is_refused_is_named_with_a_remedy_and_nothing_moves(row: attachable.Attachable) -> None:
    """Storages, addresses and the saver's books are as before."""
    with CASES[row.kind]() as refusal:
        before = (places(refusal.model), refusal.saver.tags(), refusal.saver.usage())
        with pytest.raises((ConfigError, AdapterError)) as caught:
            refusal.run()
        after = (places(refusal.model), refusal.saver.tags(), refusal.saver.usage())

    assert after == before
    assert [name for name in refusal.names if name not in str(caught.value)] == []
    if row.kind not in ELSEWHERE:
        assert [word for word in (row.kind, row.why, row.remedy) if word not in str(caught.value)] == []


def test_the_page_shows_every_row() -> None:
    """With why and remedy, and every refused row says what to do."""
    page = attach_page()

    for row in attachable.ATTACHABLE:
        assert f"| {row.kind} | {row.why} | {row.remedy or '-'} |" in page
        assert row.supported or row.remedy
    assert len({row.kind for row in attachable.ATTACHABLE}) == len(attachable.ATTACHABLE)
