"""Ways in which a log may be wrong, each with the kind that names it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lifecycle.auditing import Kind
from tests.auditing.logs import Record, Spoil, nth, renumber

SPOILS: Final[dict[str, tuple[Kind, Spoil]]] = {}


def spoils(kind: Kind) -> Callable[[Spoil], Spoil]:
    """Name a way after its function."""

    def wrap(spoil: Spoil) -> Spoil:
        SPOILS[spoil.__name__] = kind, spoil
        return spoil

    return wrap


def setting(kind: Kind, name: str, event: str, trigger: str, *path: str | int, to: Any, n: int = 0) -> None:
    """A way that sets one value, which it is then found at."""

    def spoil(records: list[Record]) -> int:
        at = nth(records, event, trigger, n)
        held: Any = records[at]
        for key in path[:-1]:
            held = held[key]
        held[path[-1]] = to
        return at

    SPOILS[name] = kind, spoil


def removing(kind: Kind, name: str, event: str, trigger: str = "", *, n: int = 0, later: int = 0) -> None:
    """A way that removes a record, and numbers the others anew."""

    def spoil(records: list[Record]) -> int:
        at = nth(records, event, trigger, n)
        del records[at]
        renumber(records)
        return min(at + later, len(records) - 1)

    SPOILS[name] = kind, spoil


# An event that cannot have been taken, or a state that nobody has left the trainer in.
setting(Kind.TRANSITION, "an edge of another event", "unchanged", "wake_up", "target", to="sleeping")
setting(Kind.TRANSITION, "a refusal that moves", "refused", "offload", "target", to="offloaded-cpu")
setting(Kind.TRANSITION, "a failure into a third state", "failed", "update_weights", "target", to="offloaded-cpu")
setting(
    Kind.TRANSITION, "a failure of an effect that is none", "failed", "update_weights", "effect", to="pause-weights"
)


def _both(kind: Kind, name: str, trigger: str, key: str, to: str, n: int = 0) -> None:
    def spoil(records: list[Record]) -> int:
        at = nth(records, "began", trigger, n)
        records[at][key] = records[at + 1][key] = to
        return at

    SPOILS[name] = kind, spoil


_both(Kind.TRANSITION, "an edge that is none", "sleep", "edge", "falls-asleep")
_both(Kind.TRANSITION, "a target that the edge does not reach", "offload", "target", "offloaded-disk")
_both(Kind.TRANSITION, "a state that nobody left it in", "wake_up", "source", "offloaded-disk")

# A decision that the facts do not give.
setting(Kind.VERDICT, "a guard that holds by the facts", "refused", "begin_step", "verdicts", 0, "holds", to=False)
setting(Kind.VERDICT, "another reason", "refused", "offload", "verdicts", 4, "because", to="somebody reads")
setting(Kind.VERDICT, "another remedy", "refused", "offload", "verdicts", 4, "remedy", to="wait")
setting(Kind.VERDICT, "another guard", "began", "trained", "verdicts", 0, "name", to="makes-actor-copy")
setting(Kind.VERDICT, "no verdicts", "began", "sleep", "verdicts", to=[])
setting(Kind.VERDICT, "a step that was open", "began", "sleep", "facts", "shared", "step_open", to=True)
setting(Kind.VERDICT, "no room on the device", "began", "wake_up", "facts", "local", "device_free_bytes", to=0)
setting(Kind.VERDICT, "reads of another source", "began", "update_weights", "decision", to={"live": 4}, n=1)
setting(Kind.VERDICT, "fewer reads", "began", "offload", "decision", to={"live": 1})
setting(Kind.VERDICT, "another refused edge", "refused", "offload", "edge", to="offloads-to-disk")
setting(Kind.VERDICT, "a no-op that was none", "unchanged", "update_weights", "facts", "shared", "engines", 0, "stale",
        to=["adapter/A"])  # fmt: skip

# Versions that the trainer never had.
setting(Kind.VERSION, "a backup of the future", "unchanged", "wake_up", "facts", "shared", "contents", 0, "saver",
        to=1 << 52)  # fmt: skip
setting(Kind.VERSION, "a sleep that gives versions", "moved", "sleep", "versions", to={"adapter/A": 1 << 52})
setting(Kind.VERSION, "a version that was given out before", "moved", "trained", "versions", "adapter/A", to=3)
setting(Kind.VERSION, "a group that the step does not touch", "moved", "trained", "versions", "adapter/B", to=1 << 52)
setting(Kind.VERSION, "another checkpoint", "moved", "reconcile_adapters", "checkpoint", "adapter/A", to=3)
setting(Kind.VERSION, "details of another version", "moved", "trained", "details", "versions", "adapter/A", to=3)


@spoils(Kind.VERSION)
def facts_of_another_version(records: list[Record]) -> int:
    """The facts of a sleep name a version that the trainer did not have then, and say that it is live."""
    at = nth(records, "began", "sleep")
    content = records[at]["facts"]["shared"]["contents"][2]
    content["version"] = content["live"] = 7
    return at


@spoils(Kind.VERSION)
def facts_without_a_group(records: list[Record]) -> int:
    """An adapter that nobody has retired is not there any more."""
    at = nth(records, "began", "sleep")
    contents = records[at]["facts"]["shared"]["contents"]
    contents.pop()
    records[at]["decision"] = {"live": len(contents)}
    return at


@spoils(Kind.READ)
def live_bytes_of_what_was_given_back(records: list[Record]) -> int:
    """A push while offloaded that would read the device, by its facts and by what it says."""
    at = nth(records, "began", "update_weights", 1)
    for one in records[at]["facts"]["shared"]["contents"]:
        one["live"] = one["version"]
    records[at]["decision"] = {"live": len(records[at]["facts"]["shared"]["contents"])}
    return at


# Engines.
setting(Kind.ENGINE, "an engine that lacks less than it was sent", "moved", "update_weights", "details", "engines",
        "E0", "sent", to=["frozen-base"])  # fmt: skip
setting(Kind.ENGINE, "a group that the trainer has not", "moved", "update_weights", "details", "engines", "E0", "sent",
        to=["adapter/Z"])  # fmt: skip
setting(Kind.ENGINE, "an engine that was not asked", "moved", "update_weights", "details", "engines", "E1", to={})
setting(Kind.ENGINE, "nothing is told of an engine", "moved", "update_weights", "details", "engines", to={})
setting(Kind.ENGINE, "more than it lacked", "failed", "update_weights", "engines", "E0", "sent",
        to=["frozen-base"])  # fmt: skip


@spoils(Kind.ENGINE)
def served_and_never_sent(records: list[Record]) -> int:
    """Before the second push the engine is said to have one of the groups that it was not sent."""
    at = nth(records, "began", "update_weights", 1)
    engine = records[at]["facts"]["shared"]["engines"][0]
    sent = records[at + 1]["details"]["engines"]["E0"]["sent"]
    engine["stale"].remove("adapter/A")
    sent.remove("adapter/A")
    return at


# Bytes.
def _held(name: str, event: str, trigger: str, place: str, tag: str, delta: int | None, n: int = 0) -> None:
    def spoil(records: list[Record]) -> int:
        at = nth(records, event, trigger, n)
        held = records[at]["held"].setdefault(place, {})
        before = held.pop(tag, 0)
        if delta is not None:
            held[tag] = before + delta
        records[at]["bytes"][place] = sum(held.values())
        return at

    SPOILS[name] = Kind.BYTES, spoil


setting(Kind.BYTES, "a total that is not the sum", "moved", "offload", "bytes", "saver_host", to=1)
setting(Kind.BYTES, "moved bytes that are not the sum", "moved", "offload", "bytes", "moved", to=1)
_held("a tag that grows", "moved", "begin_step", "device", "actor/base", 512)
_held("a tag that stays on the device", "moved", "offload", "device", "actor/base", 10240)
_held("a tag that leaves by itself", "moved", "trained", "device", "actor/optimizer", None)
_held("a backup that nobody wrote", "moved", "begin_step", "saver_host", "actor/base", 10240)
_held("a backup that vanishes", "moved", "update_weights", "saver_host", "actor/base", None, n=1)
_held("a copy that nobody made", "moved", "begin_step", "snapshots", "ref", 4096)
_held("gradients that nobody kept", "moved", "trained", "kept_gradients", "gradients", 64)
_held("a file that nobody wrote", "moved", "trained", "base_file", "frozen-base", 64)
_held("transport that nobody uses", "moved", "trained", "transport", "E0", 64)
_held("a failure that frees memory", "failed", "update_weights", "device", "actor/base", None)


# A second copy.
@spoils(Kind.COPY)
def copied_bytes_on_an_edge_without_copies(records: list[Record]) -> int:
    """A step's commit that says it has moved bytes of a copy."""
    at = nth(records, "moved", "trained")
    records[at]["moved"] = {"snapshot": 640}
    records[at]["bytes"]["moved"] = 640
    return at


@spoils(Kind.COPY)
def a_copy_in_the_facts(records: list[Record]) -> int:
    """An ``actor`` copy stands in the facts, and nothing has made it."""
    at = nth(records, "began", "offload")
    content = records[at]["facts"]["shared"]["contents"][0]
    content["copies"] = [["actor", content["version"]]]
    return at


# Leases.
_LEASE = {"holder": "eval", "source": "live", "groups": ["frozen-base"], "leaked": []}


@spoils(Kind.LEASE)
def a_lease_that_is_never_closed(records: list[Record]) -> int:
    """The last facts name it."""
    records[nth(records, "began", "sleep", -1)]["facts"]["local"]["leases"] = [_LEASE]
    return len(records) - 1


@spoils(Kind.LEASE)
def a_tensor_that_outlives_its_lease(records: list[Record]) -> int:
    """The last facts name the tensor."""
    leaked = {**_LEASE, "source": "saver-backup", "leaked": ["up"]}
    records[nth(records, "began", "sleep", -1)]["facts"]["local"]["leases"] = [leaked]
    return len(records) - 1


setting(Kind.LEASE, "a lease over memory that is gone", "unchanged", "update_weights", "facts", "local", "leases",
        to=[_LEASE])  # fmt: skip

# Records that are missing, or too many.
removing(Kind.UNFINISHED, "an end is missing", "moved", "trained")
removing(Kind.UNFINISHED, "an end is missing before a no-op", "moved", "wake_up")
removing(Kind.UNFINISHED, "the last end is missing", "moved", "sleep", n=-1, later=0)
removing(Kind.UNPAIRED, "a beginning is missing", "began", "trained")
removing(Kind.UNPAIRED, "the beginning of a failure is missing", "began", "update_weights", n=-1)
removing(Kind.NUMBERING, "a no-op is missing", "unchanged", "update_weights")
removing(Kind.NUMBERING, "a refusal is missing", "refused", "offload")
setting(Kind.NUMBERING, "another number", "unchanged", "wake_up", "transition", to=99)
setting(Kind.NUMBERING, "a note of another transition", "noted", "", "transition", to=99)
setting(Kind.UNPAIRED, "an end of another transition", "moved", "trained", "transition", to=99)
setting(Kind.UNPAIRED, "an end of another edge", "moved", "trained", "edge", to="commits-and-backs-up-actor")
setting(Kind.UNPAIRED, "an end of another event", "moved", "wake_up", "trigger", to="sleep")

# Numbers of records.
setting(Kind.SEQUENCE, "a gap", "began", "offload", "sequence", to=99)
setting(Kind.SEQUENCE, "a repeat", "began", "offload", "sequence", to=3)

# Sessions.
setting(Kind.SESSION, "a session that says something began before it", "opened", "", "unfinished",
        to=[{"sequence": 4, "trigger": "sleep", "edge": "quiesces", "source": "awake"}])  # fmt: skip
setting(Kind.SESSION, "another rank", "began", "offload", "rank", to=3)
setting(Kind.SESSION, "another run", "began", "offload", "run", to="another")

# What is no record at all.
setting(Kind.MALFORMED, "an event that is none", "began", "offload", "trigger", to="hibernate")
setting(Kind.MALFORMED, "a name that is none", "began", "offload", "event", to="lifecycle.wondered")
setting(Kind.MALFORMED, "a state that is none", "moved", "offload", "target", to="asleep")
setting(Kind.MALFORMED, "bytes that are no number", "moved", "offload", "bytes", "device", to="many")
setting(Kind.MALFORMED, "a fact that is none", "began", "offload", "facts", "shared", "mood", to="good")
setting(Kind.MALFORMED, "contents that are none", "began", "offload", "facts", "shared", "contents", to=[3])
setting(Kind.MALFORMED, "facts of a record that is not there", "began", "offload", "facts", "since", to=3)
setting(Kind.MALFORMED, "engines that are none", "moved", "update_weights", "details", "engines", to={"E0": 3})
