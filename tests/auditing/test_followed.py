"""What an audit does not look at again is what cannot have become wrong: unchanged objects, and nothing else."""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import asdict, replace
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
from tests.auditing.logs import found_in, good_log, nth, records_of, write_chained


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of a good run."""
    return good_log(tmp_path_factory.mktemp("good") / "audit.jsonl")


def with_facts(log: Path) -> list[tuple[dict[str, Any], Facts]]:
    """Its records that have facts, as they are written, and the facts that the log's reader makes of each."""
    written = map(json.loads, log.read_bytes().splitlines())
    whole = (facts_of(one) if "facts" in one else None for one in read_lines(log) if isinstance(one, dict))
    return [(one, facts) for one, facts in zip(written, whole, strict=True) if facts is not None]


def test_followed_facts_are_those_that_stand_there(log: Path) -> None:
    """Change by change the same as made of the whole record, and what did not change is the same object."""
    reader = FactsReader()

    followed = [(reader.of(one), facts) for one, facts in with_facts(log)]

    assert [one for one, _ in followed] == [facts for _, facts in followed]
    assert sum(one.contents is other.contents for (one, _), (other, _) in pairwise(followed) if one and other) > 3


def test_facts_that_change_others_are_not_known_where_those_were_not_read(log: Path) -> None:
    """Until a record tells all of them again."""
    reader, known = FactsReader(), 0

    for number, (record, facts) in enumerate(with_facts(log)):
        if number % 3 != 0:
            continue
        is_full = "since" not in record["facts"]
        assert reader.of(record) == (facts if is_full else None)
        known += is_full

    assert 0 < known < number // 3


def test_facts_that_are_told_in_full_again_are_the_same_objects(log: Path) -> None:
    """As far as they are the same: of JSON, in which a number is no truth value."""
    (record, facts), *_ = with_facts(log)
    reader = FactsReader()
    first = reader.of(record)
    assert first == facts
    assert first is not None

    again = json.loads(json.dumps(record))
    again["facts"]["local"]["scratch_paused"] = not facts.scratch_paused
    second = reader.of(again)

    assert second == replace(facts, scratch_paused=not facts.scratch_paused)
    assert second is not None
    assert second.contents is first.contents
    assert [*reader.changed] == ["scratch_paused"]
    again = json.loads(json.dumps(again))
    again["facts"]["shared"]["contents"][0]["frozen"] = 1
    with pytest.raises(ValueError, match="Expected `bool`"):
        reader.of(again)


def test_facts_that_could_not_be_read_are_read_once_they_are_right(log: Path) -> None:
    """What is wrong stands in the records that follow as well, until one of them changes it."""
    records = [one for one, _ in with_facts(log)]
    told = [at for at, one in enumerate(records) if "active_tags" in one["facts"]["local"]]
    at, right = next(pair for pair in pairwise(told) if "since" in records[pair[0]]["facts"])
    records[at]["facts"]["local"]["active_tags"] = "x"
    reader, wrong = FactsReader(), []

    for number, record in enumerate(records):
        try:
            assert reader.of(record) is not None
        except ValueError:
            wrong.append(number)

    assert wrong == [*range(at, right)]


def test_facts_of_another_type_are_none() -> None:
    """A number where a text belongs is refused when facts are made."""
    told = {
        "shared": Facts().shared() | {"active_model": 3, "contents": [], "engines": []},
        "local": Facts().local() | {"leases": []},
    }

    with pytest.raises(ValueError, match="active_model"):
        FactsReader().of({"sequence": 1, "facts": told})


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
        read |= {*asked_rules._SIZES} if "_SIZES" in source_of(rule) else set()
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


@pytest.mark.parametrize("value", [{}, "", None])
@pytest.mark.parametrize("name", ["contents", "engines", "leases"])
def test_entries_that_are_no_list_are_none(name: str, value: object, log: Path) -> None:
    """Not even where the list before was as empty: told in full again, or as a change."""
    (record, _), *_ = with_facts(log)
    scope = "shared" if name in record["facts"]["shared"] else "local"
    record["facts"][scope][name] = []
    full, change = json.loads(json.dumps(record)), {**record, "sequence": record["sequence"] + 1}
    full["facts"][scope][name] = value
    change["facts"] = {"since": record["sequence"], "shared": {}, "local": {}, scope: {name: value}}

    for other in (full, change):
        reader = FactsReader()
        assert reader.of(record) is not None
        if other is change and name != "leases" and value == {}:
            assert reader.of(other) is not None  # a change of no entry
            continue
        with pytest.raises(ValueError, match="no list"):
            reader.of(other)


@pytest.mark.parametrize(
    ("scope", "told"),
    [
        ("shared", {"contents": {"changed": [{"at": "1000", "live": None}]}}),
        ("local", {"active_tags": 7, "unheard_of": 1}),
        ("local", None),
    ],
)
def test_nothing_is_known_after_changes_that_cannot_be_read(scope: str, told: object, log: Path) -> None:
    """Neither in that record nor in those that change something else, until a record tells all of them again."""
    (first, facts), *_ = with_facts(log)
    full = {**first, "sequence": 3}
    reader = FactsReader()
    assert reader.of({**first, "sequence": 1}) == facts

    damaged = {"since": 1, "shared": {}, "local": {}, scope: told}
    assert reader.of({"sequence": 2, "facts": damaged}) is None
    assert reader.of({"sequence": 3, "facts": {"since": 2, "shared": {}, "local": {"active_tags": 1}}}) is None
    assert reader.in_full({"facts": damaged}) == {"facts": damaged}

    assert reader.of(full) == facts
    followed = reader.of({"sequence": 4, "facts": {"since": 3, "shared": {}, "local": {"active_tags": 5}}})
    assert followed == replace(facts, active_tags=5)


def test_a_record_that_tells_changes_is_told_in_full_to_whoever_compares_it(log: Path) -> None:
    """As it would have been written with all of its facts; one without any is itself."""
    reader = FactsReader()

    for record, facts in with_facts(log):
        assert reader.of(record) is not None
        told = json.loads(json.dumps({"shared": facts.shared(), "local": facts.local()}, default=asdict))
        assert reader.in_full(record) == {**record, "facts": told}
    ended = {"event": "lifecycle.moved"}
    assert reader.in_full(ended) is ended


def test_what_stood_there_before_a_gap_is_looked_at_after_it() -> None:
    """Which of the facts changed in it is not known: none of them is taken for what was found right before."""
    right = Facts(contents=(ContentFacts("adapter/a", frozen=False),))
    wrong = replace(right, contents=(replace(right.contents[0], frozen=True),), active_tags=-1)
    check, seen = Asked(), Seen({"trigger": "sleep", "source": "awake"}, "refused")
    told = [Found(), Found(), Found()]

    check.facts(seen, right, told[0])
    check.facts(seen, wrong, told[1])  # none of them is said to have changed
    check.forget()
    check.facts(seen, wrong, told[2])

    assert told[0] == told[1] == []
    assert [message for _, message in told[2]] == [
        "adapter/a: only the frozen base is frozen, and nothing else",
        "active_tags is -1",
    ]


def test_facts_of_a_record_that_no_check_looks_at_are_looked_at_in_the_next(log: Path, tmp_path: Path) -> None:
    """Its time is none, so nobody looks at it; what it has changed still stands there."""
    records = records_of(log)
    at = nth(records, "began", "offload")
    for one in records[at:]:
        if "facts" in one:
            one["facts"]["shared"]["models"] = ["ref", "ref"]
    records[at]["time"] = "yesterday"

    found = found_in(write_chained(tmp_path / "audit.jsonl", records))

    after = next(number for number, one in enumerate(records, start=1) if number > at + 1 and "facts" in one)
    assert next(one.line for one in found if one.message == "models name one twice") == after


def asked_in_turn(*told: tuple[Facts, tuple[str, ...]]) -> list[list[str]]:
    """What is said of facts one after another, each with the names of those that have changed."""
    check, said = Asked(), []
    for facts, changed in told:
        found = Found()
        check.facts(Seen({"trigger": "sleep", "source": "awake"}, "refused", changed), facts, found)
        said.append([message for _, message in found])
    return said


@pytest.mark.parametrize(
    "wrong",
    [
        Facts(contents=(ContentFacts("adapter/a", frozen=True),)),
        Facts(contents=(), active_tags=-1),
        Facts(contents=(), models=("ref", "ref")),
    ],
)
def test_each_thing_that_is_wrong_is_told_again(wrong: Facts) -> None:
    """An entry, and what each rule finds: whether or not something else is wrong beside it."""
    first, again, last = asked_in_turn((wrong, ()), (wrong, ()), (wrong, ()))

    assert len(first) == 1
    assert first == again == last


def test_an_entry_that_stays_is_looked_at_when_what_it_is_looked_at_with_changes() -> None:
    """Also where another entry is the one that is named as changed."""
    paused = ContentFacts("frozen-base", live=None, saver=1, retained=True)
    one, two = ContentFacts("adapter/a", frozen=False), ContentFacts("adapter/a", version=2, live=2, frozen=False)
    told = "frozen-base: its backup is retained, and it is paused"

    assert asked_in_turn(
        (Facts(contents=(paused, one)), ()),
        (Facts(contents=(paused, two), active_tags=0), ("contents", "active_tags")),
    ) == [[], [told]]
    assert asked_in_turn(
        (Facts(contents=(paused, one)), ()), (Facts(contents=(paused, one), active_tags=0), ("active_tags",))
    ) == [[], [told]]


@pytest.mark.parametrize("left", [(), (ContentFacts(),)])
def test_what_is_said_of_groups_is_looked_at_when_they_change(left: tuple[ContentFacts, ...]) -> None:
    """One is gone that was to be retired: contents have changed, and the plan has not."""
    plan = Facts(to_retire=("a",), plan_digest="0" * 64, contents=(*left, ContentFacts("adapter/a", frozen=False)))

    assert asked_in_turn((plan, ()), (replace(plan, contents=left), ("contents",))) == [
        [],
        ["a is to be retired, and is not there"],
    ]


def test_changes_point_at_nothing_before_a_record_that_tells_all(log: Path) -> None:
    """A writer begins anew there: an audit that remembers more would take what nobody wrote for good."""
    (first, facts), *_ = with_facts(log)
    named = {"since": 1, "shared": {"touched": {"id": 77, "is": ["adapter/x"]}}, "local": {}}
    pointed = {"shared": {"touched": {"as": 77}}, "local": {}}

    reader = FactsReader()
    assert reader.of({**first, "sequence": 1}) == facts
    assert reader.of({"sequence": 2, "facts": named}) == replace(facts, touched=("adapter/x",))
    assert reader.of({"sequence": 3, "facts": {**pointed, "since": 2}}) == replace(facts, touched=("adapter/x",))
    assert reader.of({**first, "sequence": 4}) == facts
    assert reader.of({"sequence": 5, "facts": {**pointed, "since": 4}}) is None


def test_entries_of_facts_that_are_told_in_full_again_are_the_same_objects(log: Path) -> None:
    """All but the one that is another; and so they stay with the changes that follow."""
    record, facts = next((one, facts) for one, facts in with_facts(log) if len(facts.contents) > 2)
    record = {"sequence": 1, "facts": json.loads(json.dumps({"shared": facts.shared(), "local": facts.local()},
                                                            default=asdict))}  # fmt: skip
    reader = FactsReader()
    first = reader.of(record)
    again = json.loads(json.dumps({**record, "sequence": 2}))
    again["facts"]["shared"]["contents"][1]["retained"] ^= True
    second = reader.of(again)
    third = reader.of(json.loads(json.dumps({**again, "sequence": 3})))
    row = {"since": 3, "shared": {"contents": {"changed": [{"at": "0", "version": 99}]}}, "local": {}}
    fourth = reader.of({"sequence": 4, "facts": row})

    assert first is not None
    assert second is not None
    assert third is not None
    assert fourth is not None
    assert [one.group for one in others(first.contents, second.contents)] == [first.contents[1].group]
    assert third.contents is second.contents
    assert [one.version for one in others(third.contents, fourth.contents)] == [99]


@pytest.mark.parametrize("name", ["scratch_paused", "disk_problem", "resume_need_bytes"])
def test_nothing_of_another_type_is_what_stood_there(name: str, log: Path) -> None:
    """An empty text, a zero and ``false`` are all nothing, and each of them is another nothing."""
    (record, facts), *_ = with_facts(log)
    nothing = {"scratch_paused": 0, "disk_problem": False, "resume_need_bytes": False}[name]
    assert not getattr(facts, name)
    reader = FactsReader()
    reader.of(record)
    again = json.loads(json.dumps(record))
    again["facts"]["local"][name] = nothing

    with pytest.raises(ValueError, match=name):
        reader.of(again)


def test_changes_of_another_record_than_the_last_are_of_none_that_is_there(log: Path) -> None:
    """They may change the same facts, and could be read: what the record between them told is missing."""
    (first, facts), *_ = with_facts(log)
    reader = FactsReader()
    assert reader.of({**first, "sequence": 1}) == facts

    assert reader.of({"sequence": 3, "facts": {"since": 2, "shared": {}, "local": {"active_tags": 5}}}) is None
    assert reader.of({"sequence": 4, "facts": {"since": 3, "shared": {}, "local": {"active_tags": 5}}}) is None
