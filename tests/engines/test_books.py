"""The books of an engine: what may be asked of it, and what is known after each way in which a call can end."""

from __future__ import annotations

from typing import Any

import pytest

from lifecycle.engines.books import EngineBooks
from lifecycle.errors import EngineError, EngineRefused, EngineUnanswered
from states.engine_memory import BASE_ONLY, EngineEvent, EngineSaid, EngineState, TagState

E = EngineEvent
RESIDENT, RELEASED, DISCARDED = TagState.RESIDENT, TagState.RELEASED, TagState.DISCARDED
TAGS = ("weights", "kv_cache")


def said(instance: str = "i1", *, is_open: bool = True, **changes: Any) -> EngineSaid:
    """What a healthy engine answers."""
    given: dict[str, Any] = {"tags": dict.fromkeys(TAGS, RESIDENT), "versions": {}}
    return EngineSaid(instance_id=instance, is_open=is_open, **(given | changes))


def asked(books: EngineBooks, *events: EngineEvent, **asks: Any) -> None:
    """Ask one thing after the other; each is acknowledged."""
    for event in events:
        with books.asking(event, **asks):
            pass


def push(books: EngineBooks, **versions: int) -> None:
    """One acknowledged update: ``base`` and adapters by name."""
    asked(books, E.PAUSE, E.BEGIN_UPDATE)
    for name, version in versions.items():
        event, group = (E.SEND_BASE, "frozen-base") if name == "base" else (E.LOAD_ADAPTER, f"adapter/{name}")
        asked(books, event, group=group, version=version)
    asked(books, E.FLUSH, E.COMMIT_UPDATE)


def fails(books: EngineBooks, event: EngineEvent, error: BaseException, **asks: Any) -> None:
    """Ask, and let the call fail with this error."""
    with pytest.raises(type(error)), books.asking(event, **asks):
        raise error


@pytest.fixture
def books() -> EngineBooks:
    """Books of an engine that has just answered for the first time."""
    made = EngineBooks("e0")
    made.probed(said())
    return made


@pytest.fixture
def serving(books: EngineBooks) -> EngineBooks:
    """It holds base 1 and adapter a 2, and admits requests."""
    push(books, base=1, a=2)
    asked(books, E.UNPAUSE)
    return books


REFUSED = EngineRefused("e0", "it answered 400", status=400, answer="no")
UNANSWERED = EngineUnanswered("e0", "timed out")


def test_books_begin_with_nothing() -> None:
    """What was never asked is not known, and only a question may be put."""
    books = EngineBooks("e0")
    with pytest.raises(EngineError, match="never asked") as caught:
        books.decided(E.PAUSE)

    assert caught.value.engine == "e0"
    assert books.report().unknown == "it was never asked"
    assert books.report().resident == books.report().released == frozenset()


def test_a_report_says_what_was_acknowledged(serving: EngineBooks) -> None:
    """Tags, versions and sizes, in the words of the protocol."""
    asked(serving, E.PAUSE)
    asked(serving, E.RELEASE, tags=TAGS)
    report = serving.report(device_bytes={"weights": 7}, mirror_bytes=7, adapter_slots=4)

    assert report.instance_id == "i1"
    assert (report.resident, report.released) == (frozenset(), frozenset(TAGS))
    assert report.discarded == frozenset({"kv_cache"})
    assert serving.memory.in_state(RELEASED, DISCARDED) == TAGS
    assert report.versions == {"frozen-base": 1}
    assert (report.device_bytes, report.mirror_bytes, report.adapter_slots) == ({"weights": 7}, 7, 4)
    assert report.unknown == ""


def test_a_refusal_names_every_reason_and_what_to_do(books: EngineBooks) -> None:
    """One message, before anything is sent."""
    asked(books, E.PAUSE)
    asked(books, E.RELEASE, tags=["weights"])

    with pytest.raises(EngineError, match=r"not resident: weights .*frozen-base not pushed.*resume\(weights\) first"):
        books.decided(E.UNPAUSE)


# theme B: who may touch what when


def test_nothing_is_pushed_into_released_weights(serving: EngineBooks) -> None:
    """FB-04: refused while they are released; in the right order everything is done, the cache as the last."""
    asked(serving, E.PAUSE)
    asked(serving, E.RELEASE, tags=TAGS)
    with pytest.raises(EngineError, match=r"weights is released.*resume\(weights\) first"):
        serving.decided(E.BEGIN_UPDATE)
    asked(serving, E.RESUME, tags=["weights"])
    push(serving, a=3)
    asked(serving, E.RESUME, tags=["kv_cache"])
    asked(serving, E.UNPAUSE)

    assert serving.report().versions == {"frozen-base": 1, "adapter/a": 3}


def test_a_resume_of_what_is_held_never_reaches_the_engine(serving: EngineBooks) -> None:
    """FB-08: what is resumed is what was asked for and is released, from the record and not from a mode."""
    fresh = serving.decided(E.RESUME, tags=TAGS)
    asked(serving, E.PAUSE)
    asked(serving, E.RELEASE, tags=["kv_cache"])
    after_a_release = serving.decided(E.RESUME, tags=TAGS)

    assert (fresh.settled, fresh.tags) == (True, ())
    assert (after_a_release.settled, after_a_release.tags) == (False, ("kv_cache",))


def test_discarded_weights_hold_no_version_until_every_group_was_pushed() -> None:
    """FB-12: waking is not enough, parameters without buffers are not enough, and no adapter comes before them."""
    books = EngineBooks("e0", base_groups=("buffers", "frozen-base"))
    books.probed(said(versions={"frozen-base": 1, "buffers": 1, "adapter/a": 2}))
    asked(books, E.PAUSE)
    asked(books, E.DISCARD, tags=TAGS)
    asked(books, E.RESUME, tags=TAGS)
    asked(books, E.BEGIN_UPDATE)
    asked(books, E.SEND_BASE, group="frozen-base", version=1)
    with pytest.raises(EngineError, match="undefined: buffers"):
        books.decided(E.LOAD_ADAPTER, group="adapter/a", version=2)
    asked(books, E.FLUSH, E.COMMIT_UPDATE)

    assert books.report().versions == {"frozen-base": 1}
    with pytest.raises(EngineError, match="content undefined: buffers not pushed"):
        books.decided(E.UNPAUSE)


def test_a_second_release_never_reaches_the_engine(serving: EngineBooks) -> None:
    """FB-13: what was released ahead of time is left out, and all of it is resumed exactly once."""
    asked(serving, E.PAUSE)
    asked(serving, E.RELEASE, tags=["kv_cache"])
    rest = serving.decided(E.RELEASE, tags=TAGS)
    asked(serving, E.RELEASE, tags=TAGS)
    again = serving.decided(E.RELEASE, tags=TAGS)

    assert rest.tags == ("weights",)
    assert again.settled
    assert serving.decided(E.RESUME, tags=TAGS).tags == TAGS


def test_memory_is_not_released_under_requests(serving: EngineBooks) -> None:
    """FB-15: pause, which drains, comes first; while memory is released a request is turned away at once."""
    with pytest.raises(EngineError, match=r"is asked while it is paused .*; pause it first"):
        serving.decided(E.RELEASE, tags=TAGS)
    asked(serving, E.PAUSE)
    asked(serving, E.RELEASE, tags=TAGS)

    with pytest.raises(EngineError, match="while it is paused"):
        serving.decided(E.GENERATE, adapter="a")


def test_a_drain_that_took_too_long_is_not_taken_for_one(serving: EngineBooks) -> None:
    """FB-15: an engine that may still be answering is open, so it drains again before its memory goes."""
    fails(serving, E.PAUSE, UNANSWERED)
    serving.probed(said(is_open=True))

    with pytest.raises(EngineError, match="while it is open"):
        serving.decided(E.RELEASE, tags=TAGS)


def test_a_request_that_ends_after_a_pause_does_not_open_the_engine_again(serving: EngineBooks) -> None:
    """FB-15: requests run beside the client's other calls, and their end moves nothing."""
    with serving.asking(E.GENERATE, adapter="a"):
        asked(serving, E.PAUSE)
        asked(serving, E.RELEASE, tags=TAGS)

    assert serving.memory.state is EngineState.PAUSED
    assert serving.report().released == frozenset(TAGS)


def test_a_request_that_fails_beside_an_update_breaks_nothing(serving: EngineBooks) -> None:
    """FB-15: its failure says nothing about the weights."""

    def request() -> None:
        with serving.asking(E.GENERATE, adapter="a"):
            asked(serving, E.PAUSE, E.BEGIN_UPDATE)
            raise UNANSWERED

    with pytest.raises(EngineUnanswered):
        request()

    assert serving.memory.state is EngineState.UPDATING
    assert not serving.memory.broken


# theme E: what the engine holds


def test_an_adapter_is_never_put_on_top_of_nothing(books: EngineBooks) -> None:
    """FB-28: of a new engine the base comes first; afterwards the adapter alone is enough."""
    asked(books, E.PAUSE, E.BEGIN_UPDATE)
    with pytest.raises(EngineError, match="base under it is undefined"):
        books.decided(E.LOAD_ADAPTER, group="adapter/a", version=2)
    asked(books, E.ABORT_UPDATE)
    push(books, base=1, a=2)
    asked(books, E.RELEASE, tags=["kv_cache"])
    push(books, a=3)

    assert books.report().versions == {"frozen-base": 1, "adapter/a": 3}


def test_a_base_is_not_sent_under_an_adapter_of_the_same_update(serving: EngineBooks) -> None:
    """FB-28: the adapter would be void, and the commit would say that it is served."""
    asked(serving, E.PAUSE, E.BEGIN_UPDATE)
    asked(serving, E.LOAD_ADAPTER, group="adapter/a", version=3)

    with pytest.raises(EngineError, match="already loaded: adapter/a"):
        serving.decided(E.SEND_BASE, group="frozen-base", version=4)


def test_adapters_do_not_survive_a_release_unless_the_engine_keeps_them(serving: EngineBooks) -> None:
    """FB-29: after a wake an adapter is served once it was pushed again, or once the engine says that it has it."""
    asked(serving, E.PAUSE)
    asked(serving, E.RELEASE, tags=TAGS)
    asked(serving, E.RESUME, tags=TAGS)
    asked(serving, E.UNPAUSE)
    with pytest.raises(EngineError, match="adapter 'a' has no valid version here, loaded are: none"):
        serving.decided(E.GENERATE, adapter="a")
    serving.probed(said(versions={"adapter/a": 2}, tells_adapters=True))

    assert serving.report().versions == {"frozen-base": 1, "adapter/a": 2}


def test_a_new_base_voids_adapters_unless_the_engine_keeps_them_apart() -> None:
    """FB-29: what was stacked over the old base is not valid over the new one."""
    held = {}
    for keeps in (False, True):
        books = EngineBooks("e0", keeps_adapters=keeps)
        books.probed(said(versions={"frozen-base": 1, "adapter/a": 2}))
        push(books, base=3)
        held[keeps] = books.report().versions

    assert held == {False: {"frozen-base": 3}, True: {"frozen-base": 3, "adapter/a": 2}}


def test_an_update_is_not_committed_before_the_caches_are_flushed(serving: EngineBooks) -> None:
    """FB-32: a flush that fails leaves an update that can only be aborted, and the next one succeeds."""
    asked(serving, E.PAUSE, E.BEGIN_UPDATE)
    asked(serving, E.LOAD_ADAPTER, group="adapter/a", version=3)
    with pytest.raises(EngineError, match="flush the prefix cache"):
        serving.decided(E.COMMIT_UPDATE)
    fails(serving, E.FLUSH, REFUSED)
    with pytest.raises(EngineError, match=r"it answered 400.*abort it"):
        serving.decided(E.COMMIT_UPDATE)
    asked(serving, E.ABORT_UPDATE)
    with pytest.raises(EngineError, match="flush"):
        serving.decided(E.UNPAUSE)
    push(serving, a=4)
    asked(serving, E.UNPAUSE)

    assert serving.report().versions["adapter/a"] == 4


def test_a_refused_adapter_leaves_the_old_one_serving(serving: EngineBooks) -> None:
    """FB-54: a 4xx changed nothing there; the update is given up and the old version answers."""
    asked(serving, E.PAUSE, E.BEGIN_UPDATE)
    fails(serving, E.LOAD_ADAPTER, REFUSED, group="adapter/a", version=3)
    asked(serving, E.ABORT_UPDATE, E.UNPAUSE)

    assert serving.decided(E.GENERATE, adapter="a", expected=(("adapter/a", 2),)).ask.adapter == "a"


def test_a_base_that_was_refused_half_way_holds_no_version(serving: EngineBooks) -> None:
    """FB-54: buckets before the refused one are in the live parameters already."""
    asked(serving, E.PAUSE, E.BEGIN_UPDATE)
    fails(serving, E.SEND_BASE, REFUSED, group="frozen-base", version=3)
    asked(serving, E.ABORT_UPDATE, E.FLUSH)

    assert serving.report().versions == {}
    with pytest.raises(EngineError, match="frozen-base not pushed"):
        serving.decided(E.UNPAUSE)


# theme J: engines that come and go


def test_another_instance_holds_nothing(serving: EngineBooks) -> None:
    """FB-51: alive is not current. It is known and is not served before it was pushed to."""
    serving.probed(said("i2"))
    with pytest.raises(EngineError, match="frozen-base not pushed"):
        serving.decided(E.GENERATE, adapter=BASE_ONLY)
    stale = serving.report().versions
    push(serving, base=5, a=6)
    asked(serving, E.UNPAUSE)

    assert stale == {}
    assert serving.report().instance_id == "i2"
    assert serving.decided(E.GENERATE, adapter="a", expected=(("adapter/a", 6),)).settled is False


def test_a_confirmation_by_another_instance_does_not_count(serving: EngineBooks) -> None:
    """FB-51: it restarts during the push; what the old one was sent is not what the new one holds."""
    asked(serving, E.PAUSE, E.BEGIN_UPDATE)
    asked(serving, E.LOAD_ADAPTER, group="adapter/a", version=3)
    asked(serving, E.FLUSH)
    with pytest.raises(EngineError, match="does not count"), serving.asking(E.COMMIT_UPDATE):
        serving.probed(said("i2"))

    assert serving.report().versions == {}
    assert serving.memory.state is EngineState.OPEN


def test_a_probe_of_another_instance_is_refused_until_its_restart_is_noted(serving: EngineBooks) -> None:
    """FB-51: the pure machine does not take another's word either."""
    with pytest.raises(EngineError, match="known is instance i1, asked was i2"):
        serving.decided(E.PROBE, said=said("i2"))


def test_nothing_serves_again_just_because_a_call_ended(serving: EngineBooks) -> None:
    """FB-54: after an update that failed in the middle of the base, the engine stays shut and says why."""
    asked(serving, E.PAUSE, E.BEGIN_UPDATE)
    fails(serving, E.SEND_BASE, UNANSWERED, group="frozen-base", version=3)
    asked(serving, E.ABORT_UPDATE)
    with pytest.raises(EngineError, match=r"send-base: EngineUnanswered: .*timed out.*probes it"):
        serving.decided(E.UNPAUSE)
    serving.probed(said(is_open=False))

    with pytest.raises(EngineError, match="frozen-base not pushed"):
        serving.decided(E.UNPAUSE)


def test_a_wake_changes_where_memory_is_and_never_what_it_holds(serving: EngineBooks) -> None:
    """FB-56: an engine that loads its checkpoint again is found at the next look, and is not served."""
    serving.probed(said(versions={"frozen-base": 0}))
    with pytest.raises(EngineError, match="frozen-base is 0, wanted is 1"):
        serving.decided(E.GENERATE, adapter=BASE_ONLY, expected=(("frozen-base", 1),))
    with pytest.raises(EngineError, match="flush"):
        serving.decided(E.GENERATE, adapter=BASE_ONLY)
    push(serving, base=1)
    asked(serving, E.UNPAUSE)

    assert serving.decided(E.GENERATE, adapter=BASE_ONLY, expected=(("frozen-base", 1),)).verdicts


def test_a_sleep_of_somebody_else_is_found(serving: EngineBooks) -> None:
    """FB-56: weights that another owner discarded hold nothing, whatever the engine lists."""
    tags = {"weights": DISCARDED, "kv_cache": DISCARDED}
    serving.probed(said(is_open=False, tags=tags, versions={"adapter/a": 2}))
    with pytest.raises(EngineError, match="were discarded"):
        serving.declared({"frozen-base": 1})

    assert serving.report().versions == {}
    assert serving.report().discarded == frozenset(TAGS)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"tags": {"weights": RELEASED}}, "released meanwhile"),
        ({"tells_adapters": True}, "does not hold what was sent: adapter/a"),
        ({"versions": {"adapter/a": 2}}, "does not hold what was sent: adapter/a"),
    ],
)
def test_an_update_that_somebody_else_undid_cannot_be_committed(
    serving: EngineBooks, answer: dict[str, Any], why: str
) -> None:
    """FB-56: one look in the middle of the push shows that the bytes are not there any more."""
    asked(serving, E.PAUSE, E.BEGIN_UPDATE)
    asked(serving, E.LOAD_ADAPTER, group="adapter/a", version=3)
    asked(serving, E.FLUSH)
    serving.probed(said(is_open=False, **answer))

    with pytest.raises(EngineError, match=why):
        serving.decided(E.COMMIT_UPDATE)


def test_an_update_ends_when_somebody_lets_requests_in(serving: EngineBooks) -> None:
    """FB-56: what it had sent is not served under any version, and nothing of it can be committed."""
    asked(serving, E.PAUSE, E.BEGIN_UPDATE)
    asked(serving, E.LOAD_ADAPTER, group="adapter/a", version=3)
    asked(serving, E.FLUSH)
    serving.probed(said(is_open=True))
    with pytest.raises(EngineError, match="while it is open"):
        serving.decided(E.COMMIT_UPDATE)
    asked(serving, E.ABORT_UPDATE)

    assert serving.report().versions == {"frozen-base": 1}


# how a call can end


@pytest.mark.parametrize(
    ("event", "asks", "left"),
    [
        (E.RELEASE, {"tags": TAGS}, {"frozen-base": 1}),
        (E.DISCARD, {"tags": TAGS}, {}),
        (E.DISCARD, {"tags": ["kv_cache"]}, {"frozen-base": 1, "adapter/a": 2}),
        (E.BEGIN_UPDATE, {}, {"frozen-base": 1, "adapter/a": 2}),
    ],
)
def test_after_a_failure_in_an_unknown_place_no_more_is_known_than_holds_either_way(
    serving: EngineBooks, event: EngineEvent, asks: dict[str, Any], left: dict[str, int]
) -> None:
    """It is lost and reports nothing; once probed it has what it has whether the call was carried out or not."""
    asked(serving, E.PAUSE)
    fails(serving, event, UNANSWERED, **asks)
    lost = serving.report()
    serving.probed(said(is_open=False))

    assert (lost.versions, lost.unknown) == ({}, f"{event}: EngineUnanswered: {UNANSWERED}")
    assert serving.report().versions == left


def test_an_interrupt_is_a_failure_in_an_unknown_place(serving: EngineBooks) -> None:
    """Whoever stops the client in the middle of a call has not been told how the call ended."""
    fails(serving, E.PAUSE, KeyboardInterrupt())

    assert serving.memory.state is EngineState.LOST


def test_a_call_that_was_refused_changed_nothing(serving: EngineBooks) -> None:
    """A 4xx to a pause or a release leaves the record as it was."""
    before = serving.memory
    fails(serving, E.PAUSE, REFUSED)

    assert serving.memory == before


def test_what_fails_inside_a_settled_question_was_not_sent(serving: EngineBooks) -> None:
    """Nothing was asked of the engine, so nothing about it is in doubt."""
    fails(serving, E.RESUME, UNANSWERED, tags=TAGS)

    assert serving.memory.state is EngineState.OPEN


def test_an_engine_that_is_lost_by_itself_is_probed_before_anything_else(serving: EngineBooks) -> None:
    """Nothing may be declared of it either, and the same instance still holds what it acknowledged."""
    serving.lost("the watchdog barked")
    with pytest.raises(EngineError, match="watchdog"):
        serving.declared({"frozen-base": 1})
    serving.probed(said(is_open=False))
    asked(serving, E.FLUSH, E.UNPAUSE)

    assert serving.report().versions == {"frozen-base": 1, "adapter/a": 2}


def test_a_base_that_nobody_pushed_may_be_declared(books: EngineBooks) -> None:
    """A server that read its base from the model's own directory, as its user says, needs no push of it."""
    books.declared({"frozen-base": 1})
    push(books, a=2)

    assert books.report().versions == {"frozen-base": 1, "adapter/a": 2}


def test_an_unloaded_adapter_has_no_version_whatever_it_was_asked_with(serving: EngineBooks) -> None:
    """The version of a call that drops is not the version of something that is held."""
    asked(serving, E.PAUSE, E.BEGIN_UPDATE)
    asked(serving, E.UNLOAD_ADAPTER, group="adapter/a", version=2)
    asked(serving, E.FLUSH, E.COMMIT_UPDATE)

    assert serving.report().versions == {"frozen-base": 1}
    assert serving.memory.adapters() == ()


def test_what_answers_is_named_by_group(serving: EngineBooks) -> None:
    """The base and the adapter that is asked for, no other adapter."""
    asked(serving, E.PAUSE)
    push(serving, b=7)

    assert serving.memory.served("a") == {"frozen-base": 1, "adapter/a": 2}
    assert serving.memory.served(BASE_ONLY) == {"frozen-base": 1}
