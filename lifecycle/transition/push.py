"""One push to one engine: begin, what it lacks, commit, and the question whether it holds it; or abort and fence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from lifecycle.engines.protocol import AdapterPayload, RolloutEngine
from lifecycle.errors import EngineError, EngineRefused
from lifecycle.outcome import EngineOutcome
from lifecycle.transition.confirming import Verifier, check_report, in_doubt
from lifecycle.transition.fences import EVERYTHING
from lifecycle.transition.leasing import let_go, open_lease
from lifecycle.transition.parts import Parts, Work
from lifecycle.transition.payloads import BaseStream, Checksums, payloads_of, sent_tensors, size_bytes
from lifecycle.transport import ChoosesTransport, TransportBroken
from lifecycle.weights.leases import WeightLease
from states import ADAPTER_PREFIX, EngineFacts, adapter_group


class Push:
    """What is sent to one engine, in the order of its plan, and what came of it.

    Args:
        parts: the trainer.
        work: the transition.
        engine: the receiver.
        facts: what it lacks.
        sums: of the trainer's own tensors, shared by the engines of an event.
    """

    def __init__(self, parts: Parts, work: Work, engine: RolloutEngine, facts: EngineFacts, sums: Checksums) -> None:
        self.facts = facts
        self._parts = parts
        self._work = work
        self._engine = engine
        self._sums = sums
        self._instance = ""
        self._touched: list[str] = []
        self._compared: set[str] = set()
        self._moved_bytes = 0
        self._is_open = False

    def run(self) -> None:
        """Send everything. What came of it is in ``work.engines`` whatever happens.

        Raises:
            BaseException: what stopped it. The engine is fenced, unless what it held is certain to be whole still.
        """
        parts, engine = self._parts, self._engine
        parts.runtime.receivers.remember(engine)
        try:
            holder = f"update_weights to {engine.name}"
            with (
                open_lease(parts, holder, self._work.step.reads, self.facts.stale) as lease,
                parts.saver.unmanaged(),
            ):
                verified = self._send_or_begin_again(lease)
        except BaseException as error:
            let_go(error)
            self._fail(error)
            raise
        parts.runtime.engines.confirm(engine.name, self._instance, verified, parts.versions.wanted)
        self._tell(verified=verified)
        if isinstance(engine, ChoosesTransport):
            self._work.remarks.extend(engine.transport_notes())

    def _send_or_begin_again(self, lease: WeightLease) -> dict[str, str]:
        """Where the engine's transport breaks, the update is aborted and sent once more by its next one, all of it."""
        if self.facts.weights_resident is None:
            why = f"what it holds could not be told when the push was planned ({self.facts.unknown}); nothing was sent"
            raise EngineError(self._engine.name, f"{why}. Send update_weights again, or leave it out of the engines")
        # Once: an export may be a collective of all ranks, and the transport of one rank's engine breaks there alone.
        payloads = payloads_of(self._parts, self.facts.stale, lease)
        try:
            return self._send(payloads, lease)
        except TransportBroken as broken:
            if not broken.another:
                raise
            let_go(broken)
        self._engine.abort_update()
        return self._send(payloads, lease)

    def _send(self, payloads: Mapping[str, AdapterPayload], lease: WeightLease) -> dict[str, str]:
        engine, facts = self._engine, self.facts
        self._instance = self._planned_for(engine.report().instance_id)
        self._is_open = True
        engine.begin_update()
        for name in facts.extra:
            with self._touching(adapter_group(name)):
                engine.unload_adapter(name)
        for group in facts.stale:
            with self._touching(group):
                self._count(self._send_group(group, payloads.get(group), lease))
        engine.commit_update()
        self._is_open = False
        return self._confirm(payloads, lease)

    def _planned_for(self, instance: str) -> str:
        """The instance that answers. One that took over since the push was planned lacks more than is in the plan.

        Raises:
            EngineError: it is another one. Nothing was sent to it.
        """
        known = self._instance or self._parts.runtime.engines.confirmed.get(self._engine.name, instance)
        is_everything = {one.group for one in self._work.facts.contents} <= {*self.facts.stale}
        if instance != known and not is_everything:
            why = f"it restarted while a push to it was planned: {known} was known, {instance} answers"
            raise EngineError(self._engine.name, f"{why}; send update_weights again")
        return instance

    @contextmanager
    def _touching(self, group: str) -> Iterator[None]:
        """What an engine refuses has changed nothing there, but for a base, which comes in several requests."""
        self._touched.append(group)
        try:
            yield
        except EngineRefused:
            if group.startswith(ADAPTER_PREFIX):
                self._touched.remove(group)
            raise

    def _send_group(self, group: str, payload: AdapterPayload | None, lease: WeightLease) -> int:
        if payload is not None:
            self._engine.load_adapter(payload)
            return sum(size_bytes(one) for one in payload.tensors.values())
        version = self._parts.versions.wanted[group]
        stream = BaseStream(group, version, tuple(self._parts.inventory.groups()[group]), lease)
        self._engine.send_base(group, version, iter(stream))
        stream.check()
        return stream.sent_bytes

    def _count(self, moved_bytes: int) -> None:
        self._moved_bytes += moved_bytes
        self._work.count("sync", moved_bytes)

    def _confirm(self, payloads: Mapping[str, AdapterPayload], lease: WeightLease) -> dict[str, str]:
        """The engine is asked again: only what it says now, and only this instance of it, counts."""
        report = self._engine.report()
        desired = {one.group: one.version for one in self._work.facts.contents}
        check_report(self._engine.name, report, self._instance, desired)
        verifier = Verifier(self._parts, self._engine, report, self._sums)
        self._compared = verifier.compared
        return verifier.verify(self.facts.stale, sent_tensors(self._parts, payloads, lease))

    def _fail(self, error: BaseException) -> None:
        """What the engine holds of what was touched is unknown now. It is told so, and gets that again."""
        because = f"{'a push failed' if self._is_open else 'a push was not confirmed'}: {error}"
        touched = frozenset(self._touched)
        suspect = in_doubt(error, touched, self._compared)
        try:
            if self._is_open:
                suspect = EVERYTHING  # unless it acknowledges the abort
                self._engine.abort_update()
                suspect = touched
        except Exception as abort_error:  # noqa: BLE001 - whatever an engine raises, why the push failed is what is raised
            let_go(abort_error)
            because += f"; the abort failed too: {abort_error}"
        finally:
            if suspect is EVERYTHING or suspect:
                self._parts.runtime.engines.fence(self._engine.name, because, suspect)
            self._tell(error=f"{type(error).__name__}: {error}")

    def _tell(self, verified: Mapping[str, str] | None = None, error: str = "") -> None:
        name, facts = self._engine.name, self.facts
        self._work.engines[name] = EngineOutcome(
            engine=name,
            committed=not error,
            sent=tuple(one for one in facts.stale if one in self._touched),
            unloaded=tuple(one for one in facts.extra if adapter_group(one) in self._touched),
            moved_bytes=self._moved_bytes,
            instance_id=self._instance,
            verified=dict(verified or {}),
            error=error,
        )
