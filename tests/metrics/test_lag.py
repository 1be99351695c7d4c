"""How far engines are behind, from what pushes and looks at them said."""

from __future__ import annotations

from collections.abc import Mapping

from lifecycle.lag import ENGINES_MAX, Lag, LagBook
from lifecycle.outcome import EngineOutcome
from lifecycle.standing import Serves, Standing
from states import staleness

WANTED = {"frozen-base": 1, "adapter/A": 5}
KNOWN = {"frozen-base": (1,), "adapter/A": (3, 4, 5)}


def _lags(book: LagBook, wanted: Mapping[str, int] = WANTED) -> dict[str, Lag]:
    return book.lags(wanted, lambda sample: staleness(sample, KNOWN))


def _said(versions: Mapping[str, int], serves: Serves = Serves.CURRENT) -> dict[str, Standing]:
    return {"E": Standing("E", serves, versions=versions)}


def test_who_was_never_heard_of_is_not_listed() -> None:
    """Nothing is known of it."""
    assert _lags(LagBook()) == {}


def test_what_an_engine_lacks_or_should_not_hold_is_pending() -> None:
    """An old version, none at all, and a group that is gone: one push each."""
    book = LagBook()
    book.saw(_said({"adapter/A": 3, "adapter/gone": 2}))

    assert _lags(book) == {"E": Lag(versions_behind=2, pending_pushes=3, is_in_doubt=False)}


def test_a_version_that_the_trainer_never_gave_is_no_number() -> None:
    """Two trainers serve one engine, or a counter went backwards: what it holds is in doubt."""
    book = LagBook()
    book.saw(_said({"frozen-base": 1, "adapter/A": 9}))

    assert _lags(book) == {"E": Lag(versions_behind=None, pending_pushes=1, is_in_doubt=True)}


def test_an_engine_that_is_fenced_or_unknown_is_in_doubt() -> None:
    """And one that is merely behind is not."""
    for serves in Serves:
        book = LagBook()
        book.saw(_said(WANTED, serves))

        assert _lags(book)["E"].is_in_doubt is (serves in {Serves.FENCED, Serves.UNKNOWN})


def test_a_push_that_failed_before_a_byte_was_sent_leaves_everything_as_it_was() -> None:
    """Up to date engines stay so, and doubt stays doubt."""
    book = LagBook()
    book.pushed({"E": EngineOutcome("E", committed=True)}, WANTED)
    book.pushed({"E": EngineOutcome("E", error="it does not answer")}, WANTED)

    assert _lags(book) == {"E": Lag(0, 0, is_in_doubt=False)}

    book.saw(_said(WANTED, Serves.FENCED))
    book.pushed({"E": EngineOutcome("E", error="it does not answer")}, WANTED)

    assert _lags(book)["E"].is_in_doubt


def test_what_was_sent_and_not_acknowledged_is_pending() -> None:
    """Of the rest it holds what it held; an adapter that was unloaded is in doubt too."""
    book = LagBook()
    book.pushed({"E": EngineOutcome("E", committed=True)}, WANTED)
    book.pushed({"E": EngineOutcome("E", sent=("adapter/A",), error="gone")}, WANTED)

    assert _lags(book) == {"E": Lag(0, 1, is_in_doubt=True)}

    book.pushed({"E": EngineOutcome("E", committed=True)}, WANTED)
    book.pushed({"E": EngineOutcome("E", unloaded=("B",), error="gone")}, WANTED)

    assert _lags(book) == {"E": Lag(0, 0, is_in_doubt=True)}


def test_engines_that_come_and_go_do_not_pile_up() -> None:
    """Those that were heard of first are forgotten."""
    book = LagBook()
    for number in range(ENGINES_MAX + 2):
        book.pushed({f"E{number}": EngineOutcome("", committed=False, sent=("adapter/A",))}, WANTED)

    assert list(_lags(book)) == [f"E{number}" for number in range(2, ENGINES_MAX + 2)]
    assert len(book._in_doubt) == ENGINES_MAX


def test_engines_that_hold_the_same_are_compared_once() -> None:
    """So that an event of ten thousand adapters and a hundred engines costs one comparison."""
    book, asked = LagBook(), list[Mapping[str, int]]()

    def count(sample: Mapping[str, int]) -> int:
        asked.append(sample)
        return len(sample)

    book.pushed({f"E{number}": EngineOutcome("", committed=True) for number in range(100)}, WANTED)
    book.pushed({"E7": EngineOutcome("E7", sent=("adapter/A",), error="gone")}, WANTED)

    found = book.lags(WANTED | {"adapter/A": 6}, count)

    assert len(asked) == 2
    assert found["E0"] == found["E99"] == Lag(1, 1, is_in_doubt=False)
    assert found["E7"] == Lag(0, 1, is_in_doubt=True)


def test_what_an_engine_said_is_kept_as_it_was_said() -> None:
    """A mapping that its owner goes on with changes nothing here."""
    said = {"adapter/A": 5}
    book = LagBook()
    book.saw(_said(said))
    said["adapter/A"] = 3

    assert _lags(book)["E"].versions_behind == 0
