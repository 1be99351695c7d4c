"""What an audit does not look at again is what cannot have become wrong: unchanged objects, and nothing else."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lifecycle.audit.facts import facts_of
from lifecycle.audit.read import read_lines
from lifecycle.auditing import asked
from lifecycle.auditing.asked import Asked
from lifecycle.auditing.following import FactsReader, others
from lifecycle.auditing.kinds import Seen
from states import ContentFacts, Facts
from tests.auditing.logs import good_log


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of a good run."""
    return good_log(tmp_path_factory.mktemp("good") / "audit.jsonl")


def with_facts(log: Path) -> Iterator[dict[str, Any]]:
    """Its records that have facts, one at a time: which facts one is a change of is known until the next is read."""
    yield from (one for one in read_lines(log) if isinstance(one, dict) and "facts" in one)


def test_followed_facts_are_those_that_stand_there(log: Path) -> None:
    """Change by change the same as made of the whole record, and what did not change is the same object."""
    reader = FactsReader()

    followed = [(reader.of(one["facts"]), facts_of(one)) for one in with_facts(log)]

    assert [one for one, _ in followed] == [one for _, one in followed]
    assert sum(one.contents is other.contents for (one, _), (other, _) in pairwise(followed)) > 3


def test_facts_that_change_others_are_read_whole(log: Path) -> None:
    """Where the facts before were not read nothing of them is taken over."""
    reader = FactsReader()

    for number, record in enumerate(with_facts(log)):
        if number % 3 == 0:
            assert reader.of(record["facts"]) == facts_of(record)


def test_facts_of_another_type_are_none() -> None:
    """A number where a text belongs is refused when facts are made."""
    told = {"shared": Facts().shared() | {"active_model": 3}, "local": Facts().local()}

    with pytest.raises(ValueError, match="active_model"):
        FactsReader().of(told)


def test_others_are_those_that_did_not_stand_there() -> None:
    """By identity: an equal entry is another one."""
    one, two = ContentFacts("adapter/a"), ContentFacts("adapter/b")
    again = replace(two)

    assert list(others((one, two), (one, two))) == []
    assert list(others((one, two), (one, again))) == [again]
    assert list(others((one, two), (two,))) == []
    assert list(others((one,), (two, one))) == [two]


def test_what_entries_are_looked_at_beside_is_named() -> None:
    """An entry that did not change is looked at again where one of these did: all facts that its rule reads."""
    read = set(re.findall(r"\bfacts\.(\w+)", inspect.getsource(asked._content)))

    assert read == set(asked.BESIDE)


def test_what_is_wrong_is_told_as_long_as_it_stands() -> None:
    """At each record anew, as the same object too."""
    facts = Facts(contents=(ContentFacts("adapter/a", frozen=True),))
    check = Asked()
    seen = Seen({"trigger": "sleep", "source": "awake"}, "refused", facts)

    first, second = list(check.see(seen)), list(check.see(seen))

    assert first == second
    assert any("only the frozen base is frozen" in message for _, message in first)
