"""A fault at every operation of every event: the state is as before or faulted, and no byte is lost (FB-59).

Here each event runs in some of the configurations; ``make faults`` runs all of them in all.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.lifecycle.campaign import Campaign
from tests.lifecycle.faulted_events import CONFIGURATIONS, EVENTS

COUNTS: Counter[str] = Counter()
_NAMES = tuple(CONFIGURATIONS)
ONCE = [(event, _NAMES[(index + 5 * turn) % 9]) for index, event in enumerate(EVENTS) for turn in range(2)]
STUCK = [(event, _NAMES[(index * 4 + 1) % 9]) for index, event in enumerate(EVENTS)]


@pytest.mark.parametrize(("event", "configuration"), ONCE)
def test_whatever_fails_once_leaves_everything_as_before_and_the_event_can_be_sent_again(
    event: str, configuration: str, tmp_path: Path
) -> None:
    """Effects, commit, saver, disk, pages, memory for copies, engines, adapters and the log, each point in turn."""
    counts = Campaign(event, configuration, tmp_path).run()
    COUNTS.update(counts)
    print(f"{dict(counts)}; {COUNTS.total()} faults so far")

    assert counts["as before"]
    assert not counts["faulted and recovered"]


@pytest.mark.parametrize(("event", "configuration"), STUCK)
def test_what_an_undo_cannot_do_while_the_fault_lasts_recover_does_once_it_is_mended(
    event: str, configuration: str, tmp_path: Path
) -> None:
    """A full disk stays full, a broken device broken: as before, or faulted and led back with every byte."""
    counts = Campaign(event, configuration, tmp_path, sticky=True).run()
    COUNTS.update(counts)
    print(f"{dict(counts)}; {COUNTS.total()} faults so far")

    assert counts["as before"]
