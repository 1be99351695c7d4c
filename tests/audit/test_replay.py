"""A log alone is enough to decide each of its events again, also a log of the first version."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from lifecycle.audit.facts import facts_of
from lifecycle.audit.log import AuditLog
from lifecycle.audit.plain import plain
from lifecycle.audit.read import Record, read_log
from lifecycle.audit.tail import unfinished
from lifecycle.audit.verify import verify_chain
from lifecycle.errors import AuditError
from lifecycle.transition.runner import decide_event
from states import Facts, NoChange, Refusal, TrainerEvent, TrainerState, as_one
from tests.auditing.logs import live
from tests.auditing.runs import record
from tests.docs.blocks import code_of
from tests.lifecycle.world import make_world

VERSION_1 = Path(__file__).parent / "version_1.jsonl"
DECIDED = ("lifecycle.began", "lifecycle.refused", "lifecycle.unchanged")


def decided_again(record: Record) -> Record:
    """What a record says of its decision, from its facts alone."""
    event, state = TrainerEvent(str(record["trigger"])), TrainerState(str(record["source"]))
    decision = decide_event(state, event, facts_of(record))
    if isinstance(decision, Refusal):
        return {"event": "lifecycle.refused", "edge": decision.edge, "verdicts": plain(decision.verdicts)}
    if isinstance(decision, NoChange):
        return {"event": "lifecycle.unchanged", "edge": "already", "verdicts": plain(decision.verdicts)}
    step = as_one(*decision) if isinstance(decision, tuple) else decision
    told: Record = {"event": "lifecycle.began", "edge": step.edge, "verdicts": plain(step.verdicts)}
    return {**told, "target": step.target, "decision": plain(step.reads)}


def shortened(told: Record) -> Record:
    """The same as version 2 tells it: why a guard holds, and where each group is read, follows from the facts."""
    verdicts: list[dict[str, object]] = told["verdicts"]  # type: ignore[assignment]
    short = [{"name": one["name"], "holds": True} if one["holds"] else one for one in verdicts]
    reads: list[dict[str, object]] | None = told.get("decision")  # type: ignore[assignment]
    counted = {} if reads is None else {"decision": dict(Counter(one["source"] or "none" for one in reads))}
    return {**told, "verdicts": short, **counted}


@pytest.mark.parametrize("strategy", ["lean", "duplicate"])
def test_every_decision_follows_from_the_record_alone(tmp_path: Path, strategy: str) -> None:
    """Edge, target, verdicts and reads: what the log leaves out is what the pure machine says again."""
    path = tmp_path / "audit.jsonl"
    world = make_world(strategy=strategy, offload_target="cpu")
    with AuditLog(path) as log:
        record(world, log)
        live(world)

    records = [one for one in read_log(path) if one["event"] in DECIDED]
    assert {one["event"] for one in records} == set(DECIDED)
    for one in records:
        again = shortened(decided_again(one))
        assert {key: one[key] for key in again} == again
    assert path.read_text().count('"since"') > len(records) // 2


def test_a_log_of_version_1_is_read_and_decided_again() -> None:
    """Facts stood in each record, verdicts at length, and each read."""
    records = read_log(VERSION_1)

    assert [one["schema"] for one in records] == [1] * 17
    assert verify_chain(records) == []
    assert records.torn == []
    assert unfinished(records) == []
    for one in records:
        if "facts" in one:
            again = decided_again(one)
            assert {key: one[key] for key in again} == again


def test_a_log_of_version_1_is_continued(tmp_path: Path) -> None:
    """The chain goes on; a session's first facts are whole."""
    path = tmp_path / "audit.jsonl"
    path.write_bytes(VERSION_1.read_bytes())
    world = make_world()
    with AuditLog(path) as log:
        record(world, log)
        world.trainer.sleep()

    records = read_log(path)
    assert verify_chain(records) == []
    assert [one["schema"] for one in records[16:]] == [1, 2, 2, 2]
    assert decided_again(records[18])["edge"] == records[18]["edge"]


@pytest.mark.parametrize(
    "facts",
    [None, 3, {"since": 1, "shared": {}, "local": {}}, {"shared": {}}, {"shared": {"else": 1}, "local": {}},
     {"shared": {"contents": [{"else": 1}]}, "local": {}}, {"shared": {"origin": "else"}, "local": {}}],
    ids=repr,
)  # fmt: skip
def test_facts_that_are_none_of_this_version_are_said_to_be_so(facts: object) -> None:
    """And end in no error from deep inside."""
    with pytest.raises(AuditError, match="record 7"):
        facts_of({"sequence": 7, "facts": facts})


def test_facts_come_back_as_they_were() -> None:
    """Of the very types that guards look at."""
    facts = Facts(origin=TrainerState.AWAKE)
    told = plain({"shared": facts.shared(), "local": facts.local()})

    assert facts_of({"facts": told}) == facts


def test_the_blocks_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first opens a log, the second reads it back and decides its refusals again."""
    first, second = code_of("audit-log.md")
    monkeypatch.chdir(tmp_path)
    world, names = make_world(), {}  # type: ignore[var-annotated]
    exec(compile(first, "audit-log.md", "exec"), names)  # noqa: S102 - the page of this repository
    with names["audit"]:
        record(world, names["audit"])
        live(world)
    exec(compile(second, "audit-log.md", "exec"), {})  # noqa: S102 - as above

    told = capsys.readouterr().out
    assert "in 1 files, 0 torn; whole" in told
    assert "begin_step ['not loaded: unheard of']" in told
