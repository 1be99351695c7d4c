"""What each engine holds and lacks, as it says when it is asked. Looks, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterable

from lifecycle.adapters.reading import RegistryReader
from lifecycle.engines.protocol import WEIGHTS, EngineReport, RolloutEngine
from lifecycle.errors import RanksError
from lifecycle.transition.parts import Parts
from states import AdapterState, ContentFacts, EngineFacts, adapter_group, ahead_of, plan_push

UNCONFIRMED = "no push to this instance was confirmed"


def engines_facts(
    parts: Parts, engines: tuple[RolloutEngine, ...], contents: tuple[ContentFacts, ...]
) -> tuple[EngineFacts, ...]:
    """The facts of every engine that is asked about."""
    return tuple(facts for facts, _ in ask_engines(parts, engines, contents))


def ask_engines(
    parts: Parts, engines: Iterable[RolloutEngine], contents: tuple[ContentFacts, ...]
) -> tuple[tuple[EngineFacts, EngineReport | None], ...]:
    """The facts of every engine, and what it answered; each is asked once."""
    asked = tuple(engines)
    if not asked:
        return ()
    unpushed, desired = _unpushed(parts), {one.group: one.version for one in contents}
    return tuple(facts_of(parts, one, desired, unpushed) for one in asked)


def _unpushed(parts: Parts) -> frozenset[str]:
    """Groups of adapters whose registry has never heard of a push: one that was restored may have missed it."""
    registry = getattr(parts.adapters, "registry", None)
    if parts.adapters is None or not isinstance(registry, RegistryReader):
        return frozenset()
    pending, loaded = registry.in_state(AdapterState.PENDING), parts.adapters.loaded()
    same = (
        n for n, one in loaded.items() if n in pending and pending[n].adapter.registration_id == one.registration_id
    )
    return frozenset(adapter_group(name) for name in same)


def facts_of(
    parts: Parts, engine: RolloutEngine, desired: dict[str, int], unpushed: frozenset[str] = frozenset()
) -> tuple[EngineFacts, EngineReport | None]:
    """The facts of one engine, and what it answered; None when it did not.

    Args:
        parts: the trainer.
        engine: who is asked.
        desired: content group to the version it should hold.
        unpushed: adapters whose registry has heard of no push.

    Raises:
        RanksError: ranks share the engine, and did not come to the same end.
    """
    try:
        report = engine.report()
        return _facts(parts, engine.name, report, desired, unpushed), report
    except RanksError:  # it was not asked: the ranks that share it did not come to the same end
        raise
    except Exception as error:  # noqa: BLE001 - whatever an engine raises, what it holds is unknown
        why = f"it does not answer: {type(error).__name__}: {error}"
        groups = plan_push(desired, {}).groups
        return EngineFacts(engine.name, None, groups, (), why, unknown=why), None


def _facts(
    parts: Parts, name: str, report: EngineReport, desired: dict[str, int], unpushed: frozenset[str]
) -> EngineFacts:
    books, held = parts.runtime.engines, dict(report.versions)
    fence, known = books.fences.get(name), books.confirmed.get(name)
    doubtful: frozenset[str] | None = unpushed
    if report.unknown or WEIGHTS in report.discarded or known not in (None, report.instance_id):
        doubtful = None
    elif fence is not None:
        doubtful = None if fence.suspect is None else unpushed | fence.suspect
    plan = plan_push(desired, held, doubtful=doubtful)
    unconfirmed = UNCONFIRMED if known is None and plan.is_empty else ""
    is_resident = WEIGHTS in report.resident
    return EngineFacts(
        name=name,
        weights_resident=is_resident or (None if report.unknown else False),
        stale=plan.groups,
        extra=plan.unload,
        fenced=fence.because if fence else unconfirmed,
        adapter_slots=report.adapter_slots,
        discarded=tuple(sorted(report.discarded)) if report.discarded else (),
        unknown=report.unknown,
        ahead=ahead_of(parts.versions.newest, held),
    )
