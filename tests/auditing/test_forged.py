"""Every leaf of every record, forged one at a time in a log whose numbers and chain are right: found, or unknowable."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import pytest

from lifecycle.auditing.asked import Asked
from lifecycle.auditing.ends import Ends
from lifecycle.auditing.engines import Engines
from lifecycle.auditing.kept import Kept
from lifecycle.auditing.memory import Bytes
from lifecycle.auditing.standing import Standing
from tests.auditing.forger import Forger
from tests.auditing.logs import good_log, records_of

UNKNOWABLE: Final = {
    # What is measured or answered in the moment, and that nobody can measure again. Where a guard has looked at it,
    # the verdict tells.
    "*.time": "the clock of a machine may be set",
    "moved.duration_s": "how long something took",
    "opened.pid": "any process may have written it",
    "*.facts.local.device_free_bytes": "measured",
    "*.facts.local.saver_enabled": "the user's to switch",
    "*.facts.local.transport_holders": "who answers, and who does not",
    "*.facts.shared.unaccounted": "the registry's",
    "*.facts.shared.reference_open": "a block of the user's, which is no record",
    "moved.details.residue*": "measured",
    "*.facts.shared.contents[[]].retained": "whether the saver kept a backup at a resume",
    "*.facts.shared.contents[[]].borrowed[[]]": "whose bytes a copy shares after a switch",
    # Engines: what they say, and which of them were asked.
    "unchanged.facts.shared.engines": "which engines were asked",
    "unchanged.facts.shared.engines[[]]": "which engines were asked",
    "*.facts.shared.engines[[]].adapter_slots": "an engine's word",
    "*.facts.shared.engines[[]].discarded": "an engine's word",
    "*.facts.shared.engines[[]].extra": "an engine's word",
    "*.facts.shared.engines[[]].fenced": "an engine's word, or why the trainer doubts it",
    "*.facts.shared.engines[[]].unknown": "an engine's word",
    "*.facts.shared.engines[[]].weights_resident": "an engine's word",
    "moved.details.engines.[*].verified.[*]": "how an engine answered",
    "failed.engines.[*].sent*": "how far a push that failed came",
    # Leases come and go without a record.
    "*.facts.local.leases[[]]": "who reads",
    "*.facts.local.leases[[]].groups*": "what somebody reads",
    "*.facts.local.leases[[]].holder": "who reads",
    "*.facts.local.leases[[]].leaked*": "which tensors outlived a lease",
    "*.facts.local.leases[[]].source": "where somebody reads",
    # How much an event that was refused would have needed.
    "refused.facts.local.*_need_bytes": "nothing was moved that it could be compared with",
    # Words, and the order of what has none.
    "failed.error": "words",
    "failed.engines.[*].error": "words",
    "moved.details": "an end may say more",
    "moved.details.resumed": "tags have no order",
    "*.facts.shared.contents": "groups have no order",
    "noted.bytes": "a copy may replace another",
    "noted.versions": "a copy may hold groups that the trainer no longer has",
}
"""Leaves of which some forgeries are not found, and why a log cannot tell them. docs/audit.md says the same."""


def silent(path: Path, folder: Path, each: int) -> dict[str, list[str]]:
    """Leaves with forgeries that no audit finds, and those.

    Args:
        path: a good log in one file.
        folder: where forgeries are written.
        each: of how many records of an event each leaf is forged.
    """
    forger = Forger(records_of(path), folder / "forged.jsonl", each=each)
    found: dict[str, list[str]] = {}
    for one in forger.forgeries():
        if not forger.is_found(one):
            found.setdefault(one.leaf, []).append(f"record {one.at + 1}: {one.how}")
    return found


def is_unknowable(leaf: str) -> bool:
    """Whether it stands in the list above."""
    return any(fnmatchcase(leaf, pattern) for pattern in UNKNOWABLE)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A good log."""
    return good_log(tmp_path_factory.mktemp("good") / "audit.jsonl")


def test_a_forged_leaf_is_found_unless_no_log_can_tell_it(good: Path, tmp_path: Path) -> None:
    """Flipped, changed, dropped, doubled, put elsewhere: 2,000 forgeries. The list is as short as can be."""
    found = silent(good, tmp_path, each=2)

    assert {leaf: ways for leaf, ways in found.items() if not is_unknowable(leaf)} == {}
    assert [one for one in UNKNOWABLE if not any(fnmatchcase(leaf, one) for leaf in found)] == []


@pytest.mark.parametrize(
    ("check", "leaf"),
    [
        (Asked, "began.facts.shared.touched[]"),
        (Bytes, "moved.held.device.*"),
        (Ends, "moved.details.loaded[]"),
        (Engines, "moved.details.engines.*.moved_bytes"),
        (Kept, "noted.versions.*"),
        (Standing, "began.facts.shared.with_teacher"),
    ],
)
def test_without_a_check_forgeries_are_silent(
    check: type[object], leaf: str, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The forger finds what an audit leaves out: each of these is looked at nowhere else."""
    monkeypatch.setattr(check, "looks", lambda _: {})
    monkeypatch.setattr(check, "facts", lambda *_: None)
    forger = Forger(records_of(good), tmp_path / "forged.jsonl", each=3)

    of_leaf = [one for one in forger.forgeries() if one.leaf == leaf]

    assert not is_unknowable(leaf)
    assert any(not forger.is_found(one) for one in of_leaf), len(of_leaf)
