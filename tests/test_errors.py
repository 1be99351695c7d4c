"""Every error can cross to another process: it survives pickle and copy with its kind, its words and its attributes."""

from __future__ import annotations

import copy
import importlib
import pickle
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import lifecycle
import states
from lifecycle.adapters.refusals import AdapterRefused, NoFreeSlot, RegistryFileError, SaveDirectoryTaken
from lifecycle.compat.errors import CastMismatch, FrozenChanged, StaleBackup
from lifecycle.distributed import RankFenced, RanksDisagree, RanksFailed, RanksMissing, StoreLost
from lifecycle.engines.vllm.proof import OtherBaseError
from lifecycle.errors import (
    AdapterError,
    AuditError,
    BaseFileError,
    BusyError,
    ConfigError,
    DigestMismatch,
    EngineError,
    EngineRefused,
    EngineUnanswered,
    EngineUnconfirmed,
    EventRefused,
    IncompletePush,
    LeaseError,
    LifecycleError,
    ReentrantEvent,
    SaverError,
    SaverMisuse,
    SlotWriteError,
    TrainerFaulted,
    TransitionFailed,
    UnknownTag,
    UnreadableTensor,
)
from lifecycle.outcome import EngineOutcome
from lifecycle.process_groups import ProcessGroupError
from lifecycle.ray.errors import GroupError, RankLost, RegistryLost, RemoteFailure
from lifecycle.transport.receivers import TransportBroken
from states import Refusal, StalenessError, TableError, TrainerEvent, TrainerState, Verdict
from states.adapters import AdapterEvent, AdapterRefusal, AdapterState
from states.agreement import Difference, Disagreed, Failed, Fenced, Missing
from states.errors import Portable

SLOT: Final = SlotWriteError("A", "its factor is too large")
FAILED: Final = RanksFailed(Failed({2: "SlotWriteError: A"}, (2, 3)))
VERDICT: Final = Verdict("host-has-room", False, "no room", "make some")
EXAMPLES: Final = (
    EventRefused(Refusal(TrainerState.AWAKE, "sleep", "", (VERDICT,))),
    ReentrantEvent("inside"),
    BusyError("busy"),
    LeaseError("over"),
    LifecycleError("any"),
    ConfigError("cannot work"),
    AdapterError("A", "bad"),
    SLOT,
    UnreadableTensor("up", "nowhere"),
    UnknownTag("ref", ["actor"]),
    SaverMisuse("pause(base)", "paused"),
    SaverError("base", "no room"),
    BaseFileError("base.bin", "torn"),
    DigestMismatch("frozen-base", "other bytes", ["ref"], ["up"]),
    AuditError("log.jsonl", "full", outcome="moved"),
    TransitionFailed(
        TrainerEvent.UPDATE_WEIGHTS, TrainerState.AWAKE, "push", SLOT, {"E0": EngineOutcome("E0", error="away")}
    ),
    TrainerFaulted(TrainerEvent.SLEEP, "pause", FAILED, SLOT),
    EngineError("E0", "away"),
    EngineRefused("E0", "no", status=400, answer="no"),
    EngineUnanswered("E0", "silent", status=500, reached=False),
    EngineUnconfirmed("E0", "other bytes", suspect=["adapter/A"], tensors=["up"], prompt=1, token=2),
    IncompletePush("adapter/A", 3, ["up"], ["down"]),
    OtherBaseError("E0", "another base"),
    TransportBroken("E0", "ipc", "gone", another=True),
    ProcessGroupError("tp", "gone"),
    StaleBackup("up", "old"),
    FrozenChanged("up", ["ref"]),
    CastMismatch("rebuilt", ["up"], 2, 1),
    RanksDisagree(Disagreed(4, "sleep", (Difference("config", (((0,), "1"), ((1,), "2"))),), 0)),
    RanksMissing(Missing((2,), 1, 4.0)),
    RankFenced(Fenced(1, "it was missing")),
    FAILED,
    StoreLost("127.0.0.1:1", "refused"),
    AdapterRefused("A", AdapterRefusal(AdapterState.ACTIVE, AdapterEvent.REGISTER, "it is", "deregister it")),
    NoFreeSlot("A", 3),
    SaveDirectoryTaken("A", Path("a"), "B", Path("b")),
    RegistryFileError(Path("a"), "torn"),
    GroupError("sleep", {0: FAILED, 2: RankLost(2, "its process ended", is_dead=True)}),
    RankLost(2, "it does not answer", is_dead=False),
    RegistryLost("adapters", "its actor ended"),
    RemoteFailure("torch.OutOfMemoryError", "no room", "a traceback"),
    StalenessError("adapter/A", 3, 2, "newer"),
    TableError("awake, sleep", "twice"),
)


def _all_kinds() -> Iterator[type[Portable]]:
    """Every class of error that the two packages define, whatever has to be imported for it."""
    for package in (states, lifecycle):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not module.name.startswith("lifecycle.cli") and not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    found = [Portable]
    for kind in found:
        found.extend(kind.__subclasses__())
    yield from (one for one in found[1:] if one.__module__.startswith(("lifecycle.", "states.")))


def _seen(value: object) -> object:
    """What can be compared: of errors their kind, words and attributes."""
    if isinstance(value, BaseException):
        return type(value), str(value), value.args, {name: _seen(one) for name, one in vars(value).items()}
    return {name: _seen(one) for name, one in value.items()} if isinstance(value, dict) else value


def test_every_kind_of_error_there_is_can_be_pickled() -> None:
    """Whatever its constructor takes: a new one needs nothing of its own for that."""
    kinds = list(_all_kinds())
    for kind in kinds:
        error = kind.__new__(kind, "its words")
        error.__dict__["why"] = ["told"]

        there = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
        assert (type(there), there.args, vars(there)) == (kind, error.args, vars(error))
    assert {type(one) for one in EXAMPLES} <= set(kinds)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda one: type(one).__name__)
def test_an_error_survives_pickle_and_copy(error: Exception) -> None:
    """Kind, words and every attribute, those of errors inside of it too."""
    there = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own

    assert _seen(there) == _seen(error)
    assert _seen(copy.copy(error)) == _seen(error)
    assert isinstance(there, type(error))
