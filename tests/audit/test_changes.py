"""Facts are told as what changed, and reading gives them back in full: exactly those that were decided on."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lifecycle.audit.changes import Changes, RecordedFacts
from lifecycle.audit.expand import Expander, Record, is_whole
from lifecycle.audit.log import AuditLog, MemoryAudit
from lifecycle.audit.plain import plain
from lifecycle.audit.read import read_log
from lifecycle.audit.rows import FEW
from lifecycle.audit.spans import positions_in, spans_of
from lifecycle.audit.verify import verify_chain
from lifecycle.errors import AuditError
from states import ContentFacts, EngineFacts, Facts, LeaseFacts

MANY = 10_000
KIB = 1024
EPOCH = 1_883_269_777_850_368


def plainly(facts: Facts) -> object:
    """The facts as a record holds them in full."""
    return plain(RecordedFacts(facts))


def told(
    told_facts: Sequence[Facts], lost: frozenset[int] = frozenset(), only: frozenset[str] | None = None
) -> list[Record]:
    """The records of these facts as a reader gets them; those numbered in *lost* were told and never written."""
    changes, expander, records = Changes(), Expander(only), []
    for number, facts in enumerate(told_facts, start=1):
        text = changes.told(RecordedFacts(facts))
        if number in lost:
            continue
        changes.kept(number)
        record: Record = {"sequence": number, "facts": json.loads(text)}
        expander.expand(record)
        records.append(record)
    return records


NAMES = st.sampled_from([f"adapter/{name}" for name in "abcd"])
VERSIONS = st.integers(1, 4)
MAYBE = st.none() | VERSIONS
LISTS = st.lists(st.sampled_from([f"name-{n}" for n in range(14)]), max_size=14).map(tuple)
CONTENTS = st.builds(
    ContentFacts,
    group=NAMES,
    version=VERSIONS,
    live=MAYBE,
    saver=MAYBE,
    file=MAYBE,
    copies=st.lists(st.tuples(st.sampled_from(["actor", "ref", "a.b"]), VERSIONS), max_size=3).map(tuple),
    borrowed=LISTS,
    unreadable=LISTS,
)
ENGINES = st.builds(EngineFacts, name=st.sampled_from("xyz"), weights_resident=st.none() | st.booleans(), stale=LISTS)
LEASES = st.builds(LeaseFacts, holder=st.sampled_from("pq"), source=st.just("live"), groups=LISTS, leaked=LISTS)
FACTS = st.builds(
    Facts,
    contents=st.lists(CONTENTS, max_size=4).map(tuple),
    engines=st.lists(ENGINES, max_size=3).map(tuple),
    leases=st.lists(LEASES, max_size=2).map(tuple),
    touched=LISTS,
    strays=LISTS,
    step_open=st.booleans(),
    device_free_bytes=MAYBE,
)


@given(st.lists(FACTS, max_size=6), st.frozensets(st.integers(1, 6), max_size=2))
def test_whatever_changes_and_whatever_is_not_written_reading_gives_the_facts(
    sequence: list[Facts], lost: frozenset[int]
) -> None:
    """Entries come, go, come back, change places and stand twice; lists come again; a record may never be written."""
    expected = [plainly(facts) for number, facts in enumerate(sequence, start=1) if number not in lost]

    assert [one["facts"] for one in told(sequence, lost)] == expected


NINE = tuple(f"adapter/{n}" for n in range(9))


@example([Facts(), Facts(touched=NINE), Facts(touched=NINE, engines=(EngineFacts("x", stale=NINE),))])
@given(st.lists(FACTS, max_size=6))
def test_who_asks_for_some_facts_gets_those_as_they_are(sequence: list[Facts]) -> None:
    """Also where a list in them is told in another fact and only pointed at."""
    records = told(sequence, only=frozenset({"engines"}))

    assert [one["facts"]["shared"]["engines"] for one in records] == [  # type: ignore[index]
        plainly(facts)["shared"]["engines"]
        for facts in sequence  # type: ignore[index]
    ]


@given(st.lists(st.lists(st.tuples(VERSIONS, MAYBE, MAYBE, MAYBE), min_size=20, max_size=20), min_size=2, max_size=4))
def test_whatever_happens_to_many_groups_at_once_reading_gives_the_facts(
    sequence: list[list[tuple[int, int | None, int | None, int | None]]],
) -> None:
    """More than are told one by one: some in one way, some in another, some each in its own."""

    def one(number: int, version: int, live: int | None, saver: int | None, copied: int | None) -> ContentFacts:
        copies = () if copied is None else (("actor", copied), ("ref", 9))
        return ContentFacts(f"adapter/{number}", version, live, saver, copies=copies)

    facts = [Facts(contents=tuple(one(number, *row) for number, row in enumerate(rows))) for rows in sequence]

    assert [record["facts"] for record in told(facts)] == [plainly(one) for one in facts]


def contents(count: int, *, paused: bool = False, copied: bool = False) -> tuple[ContentFacts, ...]:
    """So many adapters, each in a version of its own."""
    return tuple(
        ContentFacts(
            f"adapter/tenant-{number:05}",
            EPOCH + number,
            None if paused else EPOCH + number,
            EPOCH + number if paused else None,
            copies=(("actor", EPOCH + number),) if copied else (),
            frozen=False,
        )
        for number in range(count)
    )


ALL = tuple(one.group for one in contents(MANY))
HELD = contents(MANY)
ORDINARY: dict[str, Callable[[Facts], Facts]] = {
    "nothing": lambda facts: facts,
    "a pause": lambda facts: replace(facts, contents=contents(MANY, paused=True), paused_tags=3),
    "a copy of all": lambda facts: replace(facts, contents=contents(MANY, copied=True)),
    "a step of eight": lambda facts: replace(
        facts,
        touched=ALL[40:48],
        contents=(*HELD[:40], *(replace(one, version=9, live=9) for one in HELD[40:48]), *HELD[48:]),
    ),
    "a retired adapter": lambda facts: replace(facts, contents=HELD[:500] + HELD[501:]),
    "a loaded adapter": lambda facts: replace(facts, contents=(*HELD[:500], ContentFacts("adapter/n"), *HELD[500:])),
    "room": lambda facts: replace(facts, host_free_bytes=1, device_free_bytes=2),
}


@pytest.mark.parametrize("what", ORDINARY)
def test_a_change_is_small_with_ten_thousand_adapters(what: str) -> None:
    """And brings back what it was a change of: well under what a record may have, whatever else stands in it."""
    before = Facts(contents=HELD)
    after = ORDINARY[what](before)
    changes = Changes()
    sizes = []
    for number, facts in enumerate((before, after, before), start=1):
        sizes.append(len(changes.told(RecordedFacts(facts))))
        changes.kept(number)

    assert sizes[0] > MANY * 100
    assert max(sizes[1:]) < KIB
    assert [one["facts"] for one in told([before, after, before])] == [plainly(one) for one in (before, after, before)]


LISTED: dict[str, Callable[[tuple[str, ...]], Facts]] = {
    "touched": lambda names: Facts(contents=HELD, touched=names),
    "to_load": lambda names: Facts(contents=HELD, to_load=names),
    "strays": lambda names: Facts(contents=HELD, strays=names),
    "leases": lambda names: Facts(contents=HELD, leases=(LeaseFacts("sync", "live", names),)),
    "engines": lambda names: Facts(contents=HELD, engines=(EngineFacts("a", stale=names), EngineFacts("b"))),
}


@pytest.mark.parametrize("fact", LISTED)
def test_a_list_of_thousands_is_told_once(fact: str) -> None:
    """Gone and there again, it is pointed at."""
    with_it, without = LISTED[fact](ALL), Facts(contents=HELD)
    changes = Changes()
    sizes = []
    for number, facts in enumerate((without, with_it, without, with_it, without, with_it), start=1):
        sizes.append(len(changes.told(RecordedFacts(facts))))
        changes.kept(number)

    assert sizes[1] > MANY * 10
    assert max(sizes[2:]) < 300


def test_all_facts_are_told_again_once_the_changes_add_up_to_their_size() -> None:
    """So a log can be read from its middle, and is at most about twice its changes, however many adapters."""
    few, many = (
        [replace(Facts(contents=contents(count)), device_free_bytes=number) for number in range(400)]
        for count in (2, 40)
    )
    full = [[number for number, one in enumerate(told(facts)) if type(one["facts"]) is dict] for facts in (few, many)]

    assert full[0][0] == full[1][0] == 0
    assert 10 < full[0][1] < full[1][1] < 400
    changes, sizes = Changes(), []
    for number, facts in enumerate(few):
        sizes.append(len(changes.told(RecordedFacts(facts))))
        changes.kept(number)
    assert sum(sizes[number] for number in full[0]) < 0.6 * sum(sizes)


def test_what_did_not_change_is_shared_between_records() -> None:
    """Ten thousand entries are not copied for each record that is read."""
    before = Facts(contents=HELD)
    first, second, third = told([before, replace(before, step_open=True), ORDINARY["a step of eight"](before)])

    def entries(record: Record) -> list[object]:
        return record["facts"]["shared"]["contents"]  # type: ignore[index, no-any-return]

    assert entries(first) is entries(second)
    assert sum(one is other for one, other in zip(entries(second), entries(third), strict=True)) == MANY - 8


@pytest.mark.parametrize("holder", ["https://me:pw@host/x", "?token=abc"])
def test_a_secret_is_redacted_also_where_it_changes_and_is_no_key_of_a_change(holder: str) -> None:
    """Two names that differ in a secret alone cannot be told apart once it is gone: all facts are told then."""
    facts = [
        Facts(engines=(EngineFacts("a"),)),
        Facts(engines=(EngineFacts("a"), EngineFacts(holder), EngineFacts(holder + "2"))),
        Facts(engines=(EngineFacts(holder, weights_resident=False), EngineFacts(holder + "2"))),
        Facts(engines=(EngineFacts(holder + "2", weights_resident=False),)),
    ]
    records = told(facts)

    assert [one["facts"] for one in records] == [plainly(one) for one in facts]
    assert "redacted" in json.dumps(records)
    assert "pw" not in json.dumps(records)
    assert "abc" not in json.dumps(records)


def test_a_change_whose_base_is_missing_is_left_as_it_is_written() -> None:
    """Nobody guesses what the facts were; from the next full record on they are known again."""
    changes, expander = Changes(), Expander()
    texts = []
    for number in (1, 2, 3):
        texts.append(changes.told(RecordedFacts(Facts(device_free_bytes=number))))
        changes.kept(number)
    changes.forget()
    texts.append(changes.told(RecordedFacts(Facts(device_free_bytes=4))))
    records: list[Record] = [{"sequence": n, "facts": json.loads(texts[n - 1])} for n in (1, 3, 4)]
    for one in records:
        expander.expand(one)

    assert [is_whole(one["facts"]) for one in records] == [True, False, True]
    assert records[1]["facts"] == {"since": 2, "shared": {}, "local": {"device_free_bytes": 3}}


def test_facts_in_a_note_are_the_notes_own() -> None:
    """What follows is a change of what events were decided on."""
    expander = Expander()
    first = json.loads(json.dumps(plainly(Facts())))
    note: Record = {"sequence": 2, "event": "lifecycle.noted", "facts": {"anything": 1}}
    change: Record = {"sequence": 3, "facts": {"since": 1, "shared": {}, "local": {"active_tags": 7}}}
    for one in ({"sequence": 1, "facts": first}, note, change):
        expander.expand(one)

    assert note["facts"] == {"anything": 1}
    assert change["facts"] == {**first, "local": {**first["local"], "active_tags": 7}}


@pytest.mark.parametrize(
    "damage",
    [
        {"shared": {"contents": {"changed": [{"at": "7-9", "live": 1}]}}, "local": {}},
        {"shared": {"contents": {"changed": [{"at": "x", "live": 1}]}}, "local": {}},
        {"shared": {"contents": {"changed": [{"at": "0", "live": {"was": "else"}}]}}, "local": {}},
        {"shared": {"contents": {"new": [{}]}}, "local": {}},
        {"shared": {"touched": {"as": 5}}, "local": {}},
        {"shared": {"unheard_of": 1}, "local": {}},
        {"shared": {"contents": {"gone": [[]]}}, "local": {}},
        {"shared": [], "local": {}},
        {"shared": {}},
    ],
    ids=repr,
)
def test_a_change_that_somebody_has_changed_ends_no_reader(damage: dict[str, object]) -> None:
    """It stays as it is written: the chain says that the line was changed."""
    expander = Expander()
    expander.expand({"sequence": 1, "facts": json.loads(json.dumps(plainly(Facts())))})
    record: Record = {"sequence": 2, "facts": {"since": 1, **damage}}
    expander.expand(record)

    assert not is_whole(record["facts"])


def test_facts_of_a_log_are_whole_through_failures_of_the_disk_and_a_second_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not written is no base, and neither is what another process has written in between."""
    path = tmp_path / "audit.jsonl"
    sequence = [replace(Facts(), device_free_bytes=number) for number in range(6)]
    with AuditLog(path, run="r") as log, AuditLog(path, run="r") as other:

        def write(facts: Facts, to: AuditLog = log) -> None:
            to.write("lifecycle.refused", {"transition": 1, "facts": RecordedFacts(facts)})

        write(sequence[0])
        write(sequence[1])
        with monkeypatch.context() as patch:
            patch.setattr("os.write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
            with pytest.raises(AuditError):
                write(sequence[2])
        write(sequence[3])
        write(sequence[4], other)
        write(sequence[5])

    records = read_log(path)
    found = [one["facts"]["local"]["device_free_bytes"] for one in records if "facts" in one]  # type: ignore[index]
    assert found == [0, 1, 3, 4, 5]
    assert verify_chain(records) == []


def test_the_chain_is_over_the_line_as_it_is_written(tmp_path: Path) -> None:
    """Expanding does not break it, in memory and on disk; a change of what is written does."""
    path = tmp_path / "audit.jsonl"
    memory = MemoryAudit()
    with AuditLog(path) as log:
        for number in range(3):
            keys = {"transition": number, "facts": RecordedFacts(Facts(device_free_bytes=number))}
            log.write("lifecycle.refused", keys)
            memory.write("lifecycle.refused", keys)

    assert verify_chain(read_log(path)) == []
    assert verify_chain(memory.records) == []
    assert path.read_text().count('"since"') == 2
    path.write_text(path.read_text().replace('"device_free_bytes":2', '"device_free_bytes":3'))
    assert len(verify_chain(read_log(path))) == 1


@given(st.frozensets(st.integers(0, 40)))
def test_positions_are_told_as_runs(positions: frozenset[int]) -> None:
    """And read back as they were."""
    text = spans_of(sorted(positions))

    assert list(positions_in(text)) == sorted(positions)
    assert spans_of([*range(2, FEW), 40]) == f"2-{FEW - 1},40"
