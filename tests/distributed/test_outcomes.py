"""What one rank tells the others of a call: values and errors arrive as they were, and nothing else does."""

from __future__ import annotations

import msgspec
import pytest

from lifecycle.distributed.outcomes import Malformed, crosses, read_outcome, told_error, told_value
from lifecycle.engines import EngineReport
from lifecycle.engines.vllm.proof import OtherBaseError
from lifecycle.errors import (
    ConfigError,
    EngineError,
    EngineRefused,
    EngineUnanswered,
    EngineUnconfirmed,
    IncompletePush,
    LeaseError,
    LifecycleError,
)
from lifecycle.transport import TransportBroken

ERRORS = (
    EngineError("E0", "away"),
    EngineRefused("E0", "no", status=400, answer="no room"),
    EngineUnanswered("E0", "silent", reached=False),
    EngineUnanswered("E0", "broken", status=500),
    EngineUnconfirmed("E0", "other bytes", suspect=["adapter/A"], tensors=["up"], prompt=1, token=2),
    EngineUnconfirmed("E0", "restarted"),
    TransportBroken("E0", "ipc", "gone", another=True),
    IncompletePush("frozen-base", 3, ["up"], ["down"]),
    ConfigError("cannot work"),
)
REPORT = EngineReport(
    "E0-1", frozenset({"weights"}), frozenset({"kv_cache"}), {"adapter/A": 3}, {"weights": 7}, 5, ("tag",), 4,
    frozenset({"kv_cache"}), "lost", releases_apart=False, discards=True,
)  # fmt: skip


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_an_error_is_the_same_on_every_rank(error: LifecycleError) -> None:
    """Kind, words, attributes and notes."""
    error.add_note("and: another")
    call, value, found = read_outcome(told_error("commit_update()", error), type(None))

    assert (call, value, type(found), str(found)) == ("commit_update()", None, type(error), str(error))
    assert vars(found) == vars(error)


def test_an_answer_that_is_no_text_arrives_too() -> None:
    """An engine may cut an answer in the middle of a character; the others wait to hear of it."""
    error = EngineRefused("E0", "no \ud83d", status=400, answer="full \udcff")
    error.add_note("and \ud83d")
    _, _, found = read_outcome(told_error("load_adapter(A, 3)", error), type(None))

    assert isinstance(found, EngineRefused)
    assert (str(found), found.answer, found.__notes__) == ("engine E0: no ?", "full ?", ["and ?"])


def test_an_error_of_one_engine_alone_arrives_as_the_nearest_kind() -> None:
    """With what that one carries, and its words."""
    _, _, found = read_outcome(told_error("report()", OtherBaseError("E0", "another base")), EngineReport)

    assert type(found) is EngineError
    assert (found.why, str(found)) == ("another base", "engine E0: another base")
    assert crosses(OtherBaseError("E0", "another base"))
    assert not crosses(LeaseError("over"))


def test_what_an_engine_says_arrives_as_it_was() -> None:
    """Every field of its report, each of its own type."""
    call, found, error = read_outcome(told_value("report()", REPORT), EngineReport)

    assert (call, found, error) == ("report()", REPORT, None)
    assert isinstance(found.resident, frozenset)


@pytest.mark.parametrize(
    "held",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"call":"report()","value":{"instance_id":1}}',
        b'{"call":"report()","more":1}',
        b'{"call":"report()","error":{"kind":"SystemExit","words":"","attributes":{}}}',
        b'{"call":"report()","error":{"kind":"EngineError","words":"","attributes":{"engine":"E0"}}}',
        b'{"call":"report()","error":{"kind":"ConfigError","words":"","attributes":{"args":[]}}}',
    ],
)
def test_anything_else_is_refused(held: bytes) -> None:
    """No other error is raised of it, and no class is made by its name."""
    with pytest.raises(Malformed):
        read_outcome(held, EngineReport)


def test_an_outcome_is_plain_json() -> None:
    """Anybody can read it."""
    assert msgspec.json.decode(told_value("report()", None)) == {"call": "report()", "value": None, "error": None}
