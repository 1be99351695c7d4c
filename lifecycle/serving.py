"""Which engines may get requests, how old a sample is, and whose version ids go on above whose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from torch import nn

from lifecycle.audit import notes
from lifecycle.engines.protocol import EngineReport, RolloutEngine, calling, checked
from lifecycle.errors import ConfigError, EngineUnconfirmed, RanksError
from lifecycle.probes import GreedyProbe
from lifecycle.reference import Referring
from lifecycle.standing import Serves, Standing
from lifecycle.transition.confirming import UNVERIFIED, Verifier, in_doubt
from lifecycle.transition.engine_facts import UNCONFIRMED, facts_of
from lifecycle.transition.gather import gather
from lifecycle.transition.leasing import let_go, open_lease
from lifecycle.transition.parts import Request
from lifecycle.transition.payloads import Checksums, payloads_of, sent_tensors
from lifecycle.transition.probing import ProbeRecorder
from lifecycle.transition.renumbering import renumber
from states import (
    ADAPTER_PREFIX,
    EngineFacts,
    TrainerEvent,
    TrainerState,
    decide_reads,
    plan_push,
    staleness,
)


class Serving(Referring):
    """The part of the controller that looks after engines between two pushes."""

    _recorder: ProbeRecorder | None = None

    @property
    def versions(self) -> Mapping[str, int]:
        """The trainer's newest version of each content group. Stamp samples with what the engine reports."""
        return dict(self._parts.versions.wanted)

    def serving(self, engines: Iterable[RolloutEngine]) -> Mapping[str, Standing]:
        """Which engines may get requests now, by name. Each is asked; nothing changes.

        Raises:
            ConfigError: one of them is no engine, or two have the same name.
        """
        found = checked(engines)
        with self._runner.turn.looking():
            desired = dict(self._parts.versions.wanted)
            return {one.name: self._standing(*facts_of(self._parts, one, desired)) for one in found}

    def staleness(self, sample_versions: Mapping[str, int]) -> int:
        """How many versions a sample is behind, in the content group where it is furthest behind.

        Args:
            sample_versions: content group to the version it was generated with, as the engine reported them.

        Raises:
            StalenessError: it is stamped with a version that this trainer has not given out, such as a newer one.
        """
        return staleness(sample_versions, self._parts.versions.known(sample_versions))

    def adopt_versions(self, engines: Iterable[RolloutEngine]) -> Mapping[str, int]:
        """Go on above the largest version that these engines report, and give what the trainer holds new ids.

        For a trainer that took over from another one whose counter was ahead. Nothing is sent; the next
        ``update_weights`` sends everything, under the new ids.

        Returns:
            Content group to its new version; empty when no engine was ahead.

        Raises:
            EventRefused: a step is open, or the trainer is faulted.
            EngineError: one of them does not answer.
        """
        found, parts = checked(engines), self._parts
        with self._runner.turn.of("adopt_versions"):
            if self.state is TrainerState.FAULTED or parts.runtime.step is not None:
                because = f"the trainer is {self.state}, a step is open: {parts.runtime.step is not None}"
                remedy = "end the step, or recover() first"
                raise self._refusal("nothing-is-under-way", because, remedy, gather(parts, Request()), "adopt_versions")
            largest = {one.name: _newest_at(one) for one in found}
            if max(largest.values(), default=0) <= parts.versions.newest:
                return {}
            parts.versions.rise_above(max(largest.values()))
            given = renumber(parts)
            if self._recorder is not None:
                self._recorder.catch_up(self.state)
            self._runner.recorder.noted(notes.ADOPTED, engines=largest, versions=given)
            return given

    def verify_engines(self, engines: Iterable[RolloutEngine]) -> Mapping[str, Standing]:
        """Make up for the verification that could not be done at the push, such as a probe while kv_cache was released.

        An engine that fails it is fenced. Engines that are not current, or have memory released, are left alone.

        Returns:
            Where each engine stands afterwards.

        Raises:
            ConfigError: one of them is no engine, or two have the same name.
        """
        found = checked(engines)
        with self._runner.turn.of("verify_engines"):
            desired = dict(self._parts.versions.wanted)
            for one in found:
                facts, report = facts_of(self._parts, one, desired)
                if report is not None and self._standing(facts, report).is_routable:
                    self._verify(one, report)
            return {one.name: self._standing(*facts_of(self._parts, one, desired)) for one in found}

    @contextmanager
    def _verified(self, turn: AbstractContextManager[None], engines: tuple[RolloutEngine, ...]) -> Iterator[None]:
        """The turn to the engines; with a probe, those that could not be asked at the push are asked once they can be.

        Raises:
            EngineUnconfirmed: one answers otherwise. The turn is over then.
        """
        with turn:
            if self._recorder is not None:
                standings = self.verify_engines(engines).values()
                for fenced in (one for one in standings if one.serves is Serves.FENCED):
                    raise EngineUnconfirmed(fenced.engine, fenced.because[0])
            yield

    def _start_probing(self, model: nn.Module, probe: GreedyProbe | None) -> None:
        """Record greedy tokens after each commit that leaves the actor awake.

        Raises:
            ConfigError: it is no probe.
        """
        if probe is None:
            return
        if not isinstance(probe, GreedyProbe):
            raise ConfigError(f"probe is {probe!r}; give a GreedyProbe, or None")
        self._parts.runtime.probes.probe = probe
        recorder = ProbeRecorder(self._parts, model, self._runner.recorder.noted)
        self._runner.subscribers.append(lambda outcome: recorder.catch_up(outcome.target))
        recorder.catch_up(self.state)
        self._recorder = recorder

    def _verify(self, engine: RolloutEngine, report: EngineReport) -> None:
        parts, books = self._parts, self._parts.runtime.engines
        known = books.verified.get(engine.name, {})
        wanted = parts.versions.wanted
        due = tuple(
            group for group, (at, how) in known.items() if how.startswith(UNVERIFIED) and wanted.get(group) == at
        )
        reads = decide_reads(gather(parts, Request(), TrainerEvent.UPDATE_WEIGHTS))
        readable = tuple(read for read in reads if read.source is not None and read.group in due)
        due = tuple(group for group in due if group in {read.group for read in readable})
        verifier = Verifier(parts, engine, report, Checksums())
        try:
            with open_lease(parts, f"verify_engines of {engine.name}", readable) as lease, parts.saver.unmanaged():
                payloads = payloads_of(parts, due, lease)
                verified = verifier.verify(due, sent_tensors(parts, payloads, lease))
        except Exception as error:
            let_go(error)
            if isinstance(error, RanksError):
                raise
            # Whatever it raises when it is asked: it is not verified.
            books.fence(engine.name, f"it was not verified: {error}", in_doubt(error, due, verifier.compared))
            self._runner.recorder.noted("an engine was fenced", engine=engine.name, error=str(error))
            return
        books.confirm(engine.name, report.instance_id, verified, wanted)
        if verified:
            self._runner.recorder.noted("an engine was verified", engine=engine.name, verified=verified)

    def _standing(self, facts: EngineFacts, report: EngineReport | None) -> Standing:
        because: tuple[str, ...]
        if report is None or facts.unknown:
            serves, because = Serves.UNKNOWN, (facts.unknown,)
        elif facts.fenced and facts.fenced != UNCONFIRMED:
            serves, because = Serves.FENCED, (facts.fenced,)
        elif self._parts.runtime.engines.confirmed.get(facts.name) is None:
            serves, because = Serves.UNKNOWN, (UNCONFIRMED,)
        else:
            because = _lacks(facts, report, self._parts.runtime.engines.confirmed[facts.name])
            serves = Serves.BEHIND if because else Serves.CURRENT
        if report is None:
            return Standing(facts.name, serves, because)
        known, wanted = self._parts.runtime.engines.verified.get(facts.name, {}), self._parts.versions.wanted
        verified = {group: how for group, (at, how) in known.items() if wanted.get(group) == at}
        held = dict(report.versions)
        return Standing(facts.name, serves, because, report.instance_id, held, verified, report.released)


def _lacks(facts: EngineFacts, report: EngineReport, confirmed: str) -> tuple[str, ...]:
    """Why an engine that answers and is in no doubt is not current."""
    told = [f"it holds a version that this trainer has not given out: {one}" for one in facts.ahead]
    if report.instance_id != confirmed:
        told.append(f"it restarted: {confirmed} was confirmed, {report.instance_id} answers")
    told += [f"{tag} was discarded" for tag in facts.discarded]
    told += [f"it lacks the newest {group}" for group in facts.stale]
    return (*told, *(f"it holds {ADAPTER_PREFIX}{name}, which is gone" for name in facts.extra))


def _newest_at(engine: RolloutEngine) -> int:
    """The largest version that an engine reports, 0 where it reports none."""
    with calling(engine.name, "it does not answer"):
        held = engine.report().versions
        plan_push(held, {})  # raises where one of them is no version
        return max(held.values(), default=0)
