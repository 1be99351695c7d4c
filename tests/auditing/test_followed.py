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
from lifecycle.auditing import asked, asked_rules
from lifecycle.auditing.asked import Asked
from lifecycle.auditing.following import FactsReader, others
from lifecycle.auditing.kinds import Found, Seen
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
    told = {"shared": Facts().shared() | {"active_model": 3, "contents": []}, "local": Facts().local()}

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


def test_what_is_looked_at_again_when_facts_change_is_named() -> None:
    """An entry, and each rule of facts alone, where one of the facts changed that it reads: all of these are named."""
    assert fields_read(asked._content) | fields_read(asked._paused) | fields_read(asked._live) == asked.BESIDE
    for named, rule in asked_rules.RULES:
        read = fields_read(rule) | (fields_read(asked_rules.adapters_in) if "adapters_in" in source_of(rule) else set())
        read |= {*asked_rules._NAMED} if "in _NAMED" in source_of(rule) else set()
        read |= {*asked_rules._SIZES} if "in _SIZES" in source_of(rule) else set()
        assert {asked_rules.GROUPS if one == "contents" else one for one in read} == named, rule


def source_of(rule: object) -> str:
    """How it is written."""
    return inspect.getsource(rule)  # type: ignore[arg-type]  # a function


def fields_read(rule: object) -> set[str]:
    """The facts that stand in it by name."""
    return set(re.findall(r"\bfacts\.(\w+)", source_of(rule)))


def test_what_is_wrong_is_told_as_long_as_it_stands() -> None:
    """At each record anew, as the same object too, and not once it is right."""
    wrong = Facts(contents=(ContentFacts("adapter/a", frozen=True),), active_tags=-1)
    check, seen = Asked(), Seen({"trigger": "sleep", "source": "awake"}, "refused")
    told = [Found(), Found(), Found()]

    check.facts(seen, wrong, told[0])
    check.facts(seen, wrong, told[1])
    check.facts(replace(seen, changed=("contents", "active_tags")), Facts(), told[2])

    assert told[0] == told[1]
    assert any("only the frozen base is frozen" in message for _, message in told[0])
    assert any("active_tags is -1" in message for _, message in told[0])
    assert told[2] == []


def test_a_change_in_a_record_that_is_not_looked_at_is_looked_at_in_the_next() -> None:
    """The facts of a call that is no event are gathered in full: only those of events are looked at."""
    check, found = Asked(), Found()
    check.facts(Seen({"trigger": "sleep", "source": "awake"}, "refused"), Facts(), found)

    check.facts(
        Seen({"trigger": "weights", "source": "awake"}, "refused", ("active_tags",)), Facts(active_tags=-1), found
    )
    assert found == []
    check.facts(Seen({"trigger": "sleep", "source": "awake"}, "refused"), Facts(active_tags=-1), found)

    assert [message for _, message in found] == ["active_tags is -1"]
