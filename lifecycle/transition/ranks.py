"""What a transition asks of the other ranks, and the answer where there are none."""

from __future__ import annotations

from typing import Final, Protocol

from lifecycle.adapters.protocol import AdapterHost
from lifecycle.errors import ConfigError
from states import Decision, Facts, Step, TrainerEvent, TrainerState
from states.joining import Assembled


class Ranks(Protocol):
    """The other ranks, such as a :class:`lifecycle.distributed.RankAgreement`.

    Every rank calls the same methods in the same order: ``begins``, ``facts`` and ``decided`` (or ``undecided``) once
    an event; once it has begun to act, ``acted``, and after an undo that ``acted`` asked for, ``undone``. ``told`` may
    come anywhere.
    """

    def newest(self, version: int) -> int:
        """The version id above which a new trainer's begin, given the newest that this process has used."""

    def assembled(self, version: int, *, joins: bool) -> Assembled:
        """The same where ranks join and others admit them: who does which, too."""

    def unbuilt(self, error: BaseException) -> None:
        """This rank failed on its way to ``newest`` or ``assembled``."""

    def told(self, payload: bytes | None, *, by: int = 0) -> bytes:
        """What rank *by* says. Raises where a rank is missing, or has failed."""

    def begins(self, host: AdapterHost | None = None) -> None:
        """An event begins: its facts are gathered next. Where the ranks share a registry, it is taken over now."""

    def begins_apart(self) -> None:
        """What all ranks do together outside of events begins. It ends with ``acted``."""

    def facts(self, event: TrainerEvent, facts: Facts) -> Facts:
        """The facts to decide on."""

    def decided(
        self, event: TrainerEvent, state: TrainerState, facts: Facts, decision: Decision | tuple[Step, Step]
    ) -> Decision | tuple[Step, Step] | None:
        """The decision to follow; None: begin anew. Raises where ranks do not agree: nothing was done."""

    def undecided(self, error: BaseException) -> None:
        """This rank failed before it could decide."""

    def acted(self, error: BaseException | None = None, *, result: str = "") -> None:
        """This rank's effects are done, or failed. Raises where any rank's failed."""

    def undone(self, error: BaseException | None = None) -> None:
        """This rank has gone back, or could not. Raises where any rank could not."""


class Alone:
    """No other ranks: nothing is asked, and what this rank says holds."""

    def newest(self, version: int) -> int:
        """This process's."""
        return version

    def assembled(self, _version: int, *, joins: bool) -> Assembled:
        """Nobody to join.

        Raises:
            ConfigError: always.
        """
        what = "joins=True" if joins else "admit()"
        raise ConfigError(f"{what} needs other ranks and this trainer has none; build it with ranks=")

    def unbuilt(self, error: BaseException) -> None:
        """Nobody to tell."""

    def told(self, payload: bytes | None, *, by: int = 0) -> bytes:  # noqa: ARG002 - it is this process
        """What this process says."""
        return b"" if payload is None else payload

    def begins(self, host: AdapterHost | None = None) -> None:
        """Nobody to wait for."""

    def begins_apart(self) -> None:
        """Nobody to wait for."""

    def facts(self, _event: TrainerEvent, facts: Facts) -> Facts:
        """The facts as they are."""
        return facts

    def decided(
        self,
        _event: TrainerEvent,
        _state: TrainerState,
        _facts: Facts,
        decision: Decision | tuple[Step, Step],
    ) -> Decision | tuple[Step, Step]:
        """The decision as it is."""
        return decision

    def undecided(self, error: BaseException) -> None:
        """Nobody to tell."""

    def acted(self, error: BaseException | None = None, *, result: str = "") -> None:
        """Nobody to tell."""

    def undone(self, error: BaseException | None = None) -> None:
        """Nobody to tell."""


ALONE: Final = Alone()
