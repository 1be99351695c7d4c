"""What a guard answers: whether it holds, because of what, and what to do if it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import update_wrapper
from typing import TYPE_CHECKING, Never

if TYPE_CHECKING:
    from states.facts import Facts


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer of one guard. Truthy when it holds.

    Attributes:
        name: the guard's name, as it stands in the table, the log and the docs.
        holds: whether the condition is met.
        because: the facts that decided, in words, with units.
        remedy: what the caller can do about it; empty when the guard holds.
    """

    name: str
    holds: bool
    because: str
    remedy: str = ""

    def __bool__(self) -> bool:
        return self.holds


class NotABool:
    """Base of outcomes that are one of several things; a truth value would hide which."""

    __slots__ = ()

    def __bool__(self) -> Never:
        raise TypeError(f"{type(self).__name__} has no truth value; match on its type")


Answer = tuple[bool, str, str]
"""holds, because, remedy: what the body of a guard returns."""


class Guard:
    """A named pure predicate over :class:`~states.facts.Facts`.

    Calling it never raises: a guard that fails to evaluate does not hold, and says so. A question
    ("may I?") is then as safe as an order.
    """

    def __init__(self, body: Callable[[Facts], Answer], *, name: str, scope: str) -> None:
        self.name = name
        self.scope = scope
        self.rule = " ".join((body.__doc__ or "").split())
        self.body = body  # what another guard asks that says the opposite, or passes the answer on
        self._held = Verdict(name, holds=True, because="it was not asked yet")
        self._failed = Verdict(name, holds=False, because="it was not asked yet")
        update_wrapper(self, body)

    def __call__(self, facts: Facts) -> Verdict:
        """The verdict over these facts. Never raises."""
        return self.ask(facts)

    def ask(self, facts: Facts) -> Verdict:
        """The same, for whoever asks often: calling an instance takes Python half as long again."""
        body = self.body
        try:
            holds, because, remedy = body(facts)
        except Exception as error:  # noqa: BLE001 - any failure of a guard is "does not hold"
            return Verdict(
                self.name,
                holds=False,
                because=f"the guard could not be evaluated: {type(error).__name__}: {error}",
                remedy="this is a defect of the guard or of the facts; report it with this record",
            )
        # Most guards say what they said before, and a verdict is frozen: the same one is given.
        if holds:
            last = self._held
            if last.because != because:
                last = self._held = Verdict(self.name, holds=True, because=because)
            return last
        last = self._failed
        if last.because != because or last.remedy != remedy:
            last = self._failed = Verdict(self.name, holds=False, because=because, remedy=remedy)
        return last

    def __repr__(self) -> str:
        return f"Guard({self.name})"


def guard(*, scope: str = "shared") -> Callable[[Callable[[Facts], Answer]], Guard]:
    """Make a guard of a function; its name is the function's, with dashes, its rule the docstring.

    ``scope`` says whether it reads facts that are equal on every rank (``shared``) or facts of
    this rank alone (``local``), whose verdicts are joined by *and* over the ranks.
    """

    def wrap(body: Callable[[Facts], Answer]) -> Guard:
        return Guard(body, name=body.__name__.replace("_", "-"), scope=scope)

    return wrap
