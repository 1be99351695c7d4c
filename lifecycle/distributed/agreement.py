"""The agreement of ranks as a trainer's transitions use it."""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import replace
from typing import Never, Protocol, TypeVar

from lifecycle.adapters.protocol import AdapterHost
from lifecycle.distributed.checks import check_by, check_ranks, check_run, why_not_told
from lifecycle.distributed.errors import RankFenced, RanksDisagree, RanksFailed, RanksMissing
from lifecycle.distributed.gloo import GlooTransport
from lifecycle.distributed.hosting import LOOPBACK
from lifecycle.distributed.sharing import SharedRegistry
from lifecycle.errors import LifecycleError
from lifecycle.transition.building import heard
from states import Decision, Facts, Step, TrainerEvent, TrainerState
from states.agreement import Agreed, Declined, Disagreed, Failed, Fenced, Missing, Moved, Phase, Proposal, Reason, Said
from states.agreement_engines import agree_on_engines
from states.agreement_requests import Asking
from states.agreement_rounds import Voter
from states.joining import Assembled
from states.seat import Seat

T = TypeVar("T")


class Transport(Protocol):
    """Carries the protocol's requests out."""

    def drive(self, asking: Asking[T]) -> T:
        """Take a part of the protocol through to its result."""

    def close(self) -> None:
        """Give the group up."""


class RankAgreement:
    """One rank's agreement with the others. Every rank has one, and calls the same methods in the same order.

    Args:
        rank: of this process.
        world: how many ranks there are; with one, pass no agreement to the trainer at all.
        transport: what carries the messages.
        timeout_s: how long a rank waits for the others in one meeting, in seconds, everything included. It must be
            longer than the effects of one rank may take more than those of another.
        registry_from: the rank whose registry of adapters is that of all: before each event the others take it over,
            and need no call of their own. None: every rank has its own, and all make the same calls.

    Attributes:
        seat: generation and sequence number, for the log.

    Raises:
        ConfigError: a rank, a world or a timeout that cannot be.
    """

    def __init__(
        self, rank: int, world: int, transport: Transport, *, timeout_s: float = 600.0, registry_from: int | None = None
    ) -> None:
        check_ranks(rank, world, timeout_s, registry_from)
        self._transport = transport
        self._registry_from = registry_from
        self._shared = SharedRegistry(self, rank)
        self.seat = Seat(rank, world, float(timeout_s), secrets.token_hex(8))
        self._voter = Voter(self.seat)

    @classmethod
    def over_gloo(
        cls,
        rank: int,
        world: int,
        store: str,
        *,
        run: str = "run",
        host: str = LOOPBACK,
        timeout_s: float = 600.0,
        registry_from: int | None = None,
    ) -> RankAgreement:
        """An agreement over a gloo group of its own.

        Args:
            rank: of this process.
            world: how many ranks there are.
            store: ``HOST:PORT`` of the store outside the ranks (``python -m lifecycle.distributed.store``).
            run: name of the run; runs that share a store have different ones.
            host: address of this machine at which other ranks reach this one.
            timeout_s: see the class.
            registry_from: see the class.

        Raises:
            ConfigError: a value that cannot be.
            StoreLost: no store answers there.
        """
        check_run(run)
        check_ranks(rank, world, timeout_s, registry_from)
        transport = GlooTransport(rank, world, store, run=run, host=host, timeout_s=timeout_s)
        return cls(rank, world, transport, timeout_s=timeout_s, registry_from=registry_from)

    def newest(self, version: int) -> int:
        """The largest version id that any rank knows, for the ids of a new trainer to begin above. When it is built.

        Raises:
            RanksFailed: a rank could not build its trainer.
            RanksDisagree, RanksMissing, RankFenced: as :meth:`decided`.
        """
        return self._assembled(version, Said.NOTHING).newest

    def assembled(self, version: int, *, joins: bool) -> Assembled:
        """The same where a new process joins ranks that hold something: who joins, and who admits it.

        Args:
            version: the newest that this process has used.
            joins: whether this is a new process, which holds nothing yet.

        Raises:
            RanksFailed: a rank could not get ready.
            RanksDisagree: some build anew instead, or all of them join.
            RanksMissing, RankFenced: as :meth:`decided`.
        """
        return self._assembled(version, Said.JOINS if joins else Said.ADMITS)

    def unbuilt(self, error: BaseException) -> None:
        """Tell the others that this rank failed before it came to :meth:`newest` or :meth:`assembled`."""
        with suppress(LifecycleError):
            self._transport.drive(self._voter.assemble(0, Said.FAILED, _reason(error)))

    def _assembled(self, version: int, said: Said) -> Assembled:
        found = self._transport.drive(self._voter.assemble(version, said))
        return found if isinstance(found, Assembled) else self._raise(found)

    def told(self, payload: bytes | None, *, by: int = 0) -> bytes:
        """What rank *by* says, on every rank. Every rank calls it, in the same order as all other meetings.

        Inside a transition, the first one that fails ends the part of it in which it was: the meeting that would end
        that part raises the same at once, on every rank. So it does when a rank fails meanwhile: it meets the others
        here, although they are being told something, and all hear why.

        Args:
            payload: what is said, on rank *by*; at most 1 GiB. It is copied on the way. None on the other ranks.
            by: who says it.

        Returns:
            What was said; up to 64 bytes take one collective of the size of a ballot. ``timeout_s`` is for all of it.

        Raises:
            ConfigError: *by* is no rank.
            RanksFailed: a rank failed meanwhile, or has nothing to say, or what it gives is none of this.
            RanksDisagree, RanksMissing, RankFenced: as :meth:`decided`.
        """
        check_by(by, self.seat.world)
        wrong = why_not_told(payload, tells=self.seat.rank == by)
        found = self._transport.drive(self._voter.tell(None if wrong else payload, by, wrong))
        return found if isinstance(found, bytes) else self._raise(found)

    def marks(self, mark: bytes, by: int) -> tuple[bytes, ...]:
        """The marks of all ranks, in the order of the ranks, for what rank *by* shares.

        Args:
            mark: this rank's, 32 bytes.
            by: whose is what they share.

        Raises:
            RanksFailed, RanksDisagree, RanksMissing, RankFenced: as :meth:`told`.
        """
        found = self._transport.drive(self._voter.marks(mark, by))
        return found if isinstance(found, tuple) else self._raise(found)

    def begins(self, host: AdapterHost | None = None) -> None:
        """An event begins: what is told until it is decided is a part of it. Where one is shared, so is the registry.

        Args:
            host: the adapters of this rank.

        Raises:
            ConfigError, RanksFailed, RanksDisagree, RanksMissing, RankFenced: as
                :meth:`lifecycle.distributed.sharing.SharedRegistry.share`, where a registry is shared.
        """
        self.seat.begin()
        if self._registry_from is not None:
            self._shared.share(host, self._registry_from)

    def begins_apart(self) -> None:
        """What all ranks do together outside of events begins: what is told until :meth:`acted` is a part of it."""
        self.seat.begin(Phase.ACTED)

    def share_registry(self, host: AdapterHost | None, *, by: int) -> None:
        """Be as the registry of rank *by* is now. Every rank calls it, outside of events.

        With ``registry_from`` every event does the same, as it begins. Here the ranks meet once more at the end, to
        hear whether all have taken it over.

        Raises:
            ConfigError: *by* is no rank, the host has no registry, or that of rank *by* cannot be taken over; see
                :meth:`lifecycle.distributed.sharing.SharedRegistry.share`.
            RanksFailed: another rank failed meanwhile. What was taken over stays.
            RanksDisagree, RanksMissing, RankFenced: as :meth:`told`.
        """
        check_by(by, self.seat.world)
        with heard(self):
            self._shared.share(host, by)

    def facts(self, event: TrainerEvent, facts: Facts) -> Facts:
        """The facts to decide on: those of this rank, but for what all ranks have to look at together.

        Of ``recover`` that is the tags, of ``update_weights`` what the engines of all ranks lack.

        Raises:
            RanksDisagree, RanksMissing, RankFenced: as :meth:`decided`.
        """
        if event is TrainerEvent.UPDATE_WEIGHTS:
            engines = self._transport.drive(agree_on_engines(self.seat, facts.engines))
            return replace(facts, engines=engines) if isinstance(engines, tuple) else self._raise(engines)
        if event is not TrainerEvent.RECOVER:
            return facts
        found = self._transport.drive(self._voter.count(facts))
        return found if isinstance(found, Facts) else self._raise(found)

    def decided(
        self, event: TrainerEvent, state: TrainerState, facts: Facts, decision: Decision | tuple[Step, Step]
    ) -> Decision | tuple[Step, Step] | None:
        """Meet before anything is done.

        Returns:
            The decision to follow: this rank's own, or the joined refusal where a rank refuses. None: the registry that
            the ranks share has changed since this event began; begin it anew.

        Raises:
            RanksDisagree: ranks have something unlike; nothing was done.
            RanksFailed: a rank failed before it could decide; nothing was done.
            RanksMissing: ranks did not come in time.
            RankFenced: this process may not take part any more.
        """
        has_moved = self._registry_from is not None and self._shared.has_moved
        moved = Said.MOVED if has_moved else Said.NOTHING
        found = self._transport.drive(self._voter.decide(Proposal(event, state, facts, decision), moved=moved))
        if isinstance(found, Agreed):
            return decision
        if isinstance(found, Moved):
            return None
        return found.refusal if isinstance(found, Declined) else self._raise(found)

    def undecided(self, error: BaseException) -> None:
        """Tell the others that this rank failed before it could decide. *error* is the one to report."""
        with suppress(LifecycleError):
            self._transport.drive(self._voter.decide(None, _reason(error)))

    def acted(self, error: BaseException | None = None, *, result: str = "") -> None:
        """Meet after the effects, before the commit.

        Args:
            error: what failed on this rank.
            result: what must be alike of what came of the effects, such as the adapters that were left out.

        Raises:
            RanksFailed: a rank failed, this one or another; undo, and meet in :meth:`undone`.
            RanksDisagree: results are unlike; undo, and meet in :meth:`undone`.
            RanksMissing, RankFenced, StoreLost: as :meth:`decided`; undo, and do not meet again about it.
        """
        self._vote(Phase.ACTED, error, result)

    def undone(self, error: BaseException | None = None) -> None:
        """Meet after the undo that :meth:`acted` asked for; where ranks are missing there is nothing to meet about.

        Args:
            error: why this rank could not go back.

        Raises:
            RanksFailed: a rank could not go back; every rank is faulted.
            RanksDisagree, RanksMissing, RankFenced, StoreLost: as :meth:`decided`.
        """
        self._vote(Phase.UNDONE, error, "")

    def close(self) -> None:
        """Leave: whoever waits for this rank finds out."""
        self._transport.close()

    def _vote(self, phase: Phase, error: BaseException | None, result: str) -> None:
        said = Said.NOTHING if error is None else Said.FAILED
        reason = "" if error is None else _reason(error)
        found = self._transport.drive(self._voter.vote(phase, said, reason, result))
        if not isinstance(found, Agreed):
            self._raise(found)

    @staticmethod
    def _raise(found: Agreed | Moved | Disagreed | Failed | Missing | Fenced) -> Never:
        if isinstance(found, Disagreed):
            raise RanksDisagree(found)
        if isinstance(found, Failed):
            raise RanksFailed(found)
        if isinstance(found, Missing):
            raise RanksMissing(found)
        assert isinstance(found, Fenced)  # who agreed raises nothing
        raise RankFenced(found)


def _reason(error: BaseException) -> Reason:
    adapter = getattr(error, "adapter", None)
    return Reason(f"{type(error).__name__}: {error}", adapter if isinstance(adapter, str) else "")
