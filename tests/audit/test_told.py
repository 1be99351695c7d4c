"""The quick way to a record's text gives what the plain way gives, to the letter: a hash is taken over it."""

from __future__ import annotations

import json
import sys
import typing
from collections.abc import Iterator
from dataclasses import fields
from enum import Enum
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lifecycle.audit import told as telling
from lifecycle.audit.changes import Changes, RecordedFacts
from lifecycle.audit.log import AuditLog, MemoryAudit
from lifecycle.audit.plain import compact_json, plain
from lifecycle.audit.read import read_log
from lifecycle.audit.told import RECORDS, Sure, told
from lifecycle.audit.verify import verify_chain
from lifecycle.config import LifecycleConfig
from lifecycle.transition.records import Recorder
from states import ContentFacts, Facts, LeaseFacts, Source, Step, TrainerEvent, TrainerState, Verdict, decide

TEXTS = st.text(max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS | st.floats() | st.sampled_from([*TrainerState, *Source]),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner) | st.dictionaries(TEXTS, inner, max_size=3)
    | st.builds(Sure, st.dictionaries(TEXTS, st.none() | TEXTS, max_size=2)),
    max_leaves=8,
)  # fmt: skip


def the_plain_way(keys: typing.Mapping[str, object]) -> str:
    """What the record's text is defined to be."""
    return compact_json(plain(keys))


@given(st.dictionaries(TEXTS, VALUES, max_size=5))
def test_every_value_is_told_as_its_compact_json(keys: dict[str, object]) -> None:
    """Whatever is nested in it, and in whatever order the keys come."""
    assert told(keys) == the_plain_way(keys)


@pytest.mark.parametrize("code", range(0x100))
def test_every_character_is_escaped_alike(code: int) -> None:
    """JSON leaves a choice how a character is written; a hash does not."""
    keys = {"because": f"a{chr(code)}b", "facts": Sure(holder=LeaseFacts(chr(code), "live", ()))}

    assert told(keys) == the_plain_way(keys)


@pytest.mark.parametrize(
    "value",
    [2**70, 5e-05, 1e22, -0.0, float("nan"), "\ud800", b"12", {1: 2}, {"a": {2, 1}}, Path("x"), torch.zeros(2),
     [1.5e-07], {"api_key": "x"}, {"token": ""}, "https://me:pw@host", "Bearer xyz", ("?key=1",)],
    ids=repr,
)  # fmt: skip
def test_what_the_quick_encoder_writes_otherwise_goes_the_plain_way(value: object) -> None:
    """Numbers, text, bytes, keys and secrets of every kind."""
    keys = {"sequence_of_it": 1, "value": value, "list": [value]}

    assert told(keys) == the_plain_way(keys)


def began_keys(facts: Facts) -> dict[str, object]:
    """The keys of a began record, as the recorder makes them."""
    kept: list[dict[str, object]] = []

    class Audit:
        """Keeps the keys."""

        def write(self, name: str, keys: typing.Mapping[str, object]) -> None:
            """Keep them."""
            kept.append(dict(keys))

    step = decide(TrainerState.AWAKE, TrainerEvent.BEGIN_STEP, facts)
    assert isinstance(step, Step)
    Recorder(Audit(), LifecycleConfig()).began(step, facts)
    return kept[0]


@pytest.mark.parametrize("holder", ["reader", "读者", "https://me:pw@host/x", "a\x7fb", "my token"])
def test_facts_are_told_as_their_compact_json(holder: str) -> None:
    """The biggest part of a record, with what users may put into it."""
    lease = LeaseFacts(holder, "snapshot:actor", ("frozen-base",))
    keys = began_keys(Facts(leases=(lease,), contents=(ContentFacts(), ContentFacts("adapter/A", 2, 2))))

    assert told(keys) == the_plain_way(keys)
    assert "pw" not in told(keys)


def test_facts_do_not_take_the_plain_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event's overhead is mostly its record; facts are encoded at once, where the encoder is installed."""
    keys, changes = began_keys(Facts()), Changes()
    facts = keys.pop("facts")
    assert isinstance(facts, RecordedFacts)
    monkeypatch.setattr(telling, "plain", lambda *_, **__: pytest.fail("facts went the plain way"))

    assert json.loads(told(keys))["trigger"] == "begin_step"
    assert json.loads(changes.told(facts))["shared"]["strategy"] == Facts().strategy


def kinds(annotation: object) -> Iterator[type]:
    """Every class that an annotation names."""
    if typing.get_args(annotation):
        for inner in typing.get_args(annotation):
            yield from kinds(inner)
    elif isinstance(annotation, type):
        yield annotation


@pytest.mark.parametrize("record", [*RECORDS, Facts])
def test_records_hold_only_what_the_quick_encoder_writes_alike(record: type) -> None:
    """Text, whole numbers, names and tuples of them: no float, whose digits have several spellings, and no bytes."""
    allowed = {str, int, bool, type(None), *RECORDS}
    for one, annotation in typing.get_type_hints(record).items():
        if one in {each.name for each in fields(record)}:
            found = set(kinds(annotation))
            assert found
            assert all(kind in allowed or issubclass(kind, Enum) for kind in found), (one, found)


@pytest.fixture
def no_encoder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The encoder is not installed."""
    monkeypatch.setitem(sys.modules, "msgspec", None)
    telling._encoder.cache_clear()
    yield
    telling._encoder.cache_clear()


@pytest.mark.usefixtures("no_encoder")
def test_without_the_encoder_a_log_is_the_same() -> None:
    """It makes a record quicker, not another."""
    keys = began_keys(Facts())
    assert telling._encoder() is None
    assert told(keys) == the_plain_way(keys)


def test_a_log_of_facts_has_no_problems_and_is_what_memory_keeps(tmp_path: Path) -> None:
    """The chain is checked over what is read back, by the one definition of the text."""
    path = tmp_path / "audit.jsonl"
    keys = began_keys(Facts()) | {"duration_s": 5e-05, "verdicts": [Verdict("n", True, "because")]}
    memory = MemoryAudit(run="r")
    with AuditLog(path, run="r") as log:
        log.write("lifecycle.began", keys)
        memory.write("lifecycle.began", keys)

    records = read_log(path)
    assert verify_chain(records) == []
    own = ("sequence", "time", "hash")
    assert {k: v for k, v in records[-1].items() if k not in own} == {
        k: v for k, v in memory.records[-1].items() if k not in own
    }
