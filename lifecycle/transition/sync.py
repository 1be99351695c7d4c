"""Weight sync as a reconcile: what each engine should hold against what it has acknowledged.

Only what differs is sent. Versions move when the engine commits, never before. All engines are tried: one that fails
is aborted and fenced, and the others are at the new versions; the next pass repairs it.
"""

from __future__ import annotations

from lifecycle.cleanup import clear_device_cache
from lifecycle.errors import RanksError
from lifecycle.transition.parts import Parts, Undo, Work, nothing
from lifecycle.transition.payloads import Checksums
from lifecycle.transition.push import Push
from lifecycle.transport import HoldsTransport
from states import ADAPTER_PREFIX


def send_weights(parts: Parts, work: Work) -> Undo:
    """Update every engine that is behind. What became of each stands in ``work.engines``.

    Raises:
        EngineError: an engine failed, or whatever it raises; of several the first one's, with a note for each other.
        RanksError: ranks that share an engine did not come to the same end. The engines after it were not sent to.
        IncompletePush: what was to be sent is not whole. No engine was touched for it.
    """
    behind = {one.name: one for one in work.facts.engines if one.stale or one.extra or one.fenced}
    promoted: set[str] = set()
    failures: list[Exception] = []
    sums = Checksums()
    work.details["engines"] = work.engines
    for engine in work.request.engines:
        if engine.name not in behind:
            continue
        push = Push(parts, work, engine, behind[engine.name], sums)
        try:
            push.run()
        except RanksError as error:  # no fault of the engine: the transition is over on all ranks
            failures.append(error)
            break
        except Exception as error:  # noqa: BLE001 - whatever an engine raises: the others are sent to as well
            failures.append(error)
        else:
            new = {group for group in push.facts.stale if group.startswith(ADAPTER_PREFIX)} - promoted
            promoted |= new
            _promote(parts, new)
    _settle_transport(parts, work)
    if failures:
        for other in failures[1:]:
            failures[0].add_note(f"and: {type(other).__name__}: {other}")
        raise failures[0]
    return nothing


def _settle_transport(parts: Parts, work: Work) -> None:
    """Name the receivers that still hold buffers; once all have closed, what they held is collected."""
    outstanding = parts.runtime.receivers.outstanding()
    if outstanding:
        work.details["transport"] = outstanding
    elif any(isinstance(engine, HoldsTransport) for engine in work.request.engines):
        parts.cleanup.ask("the receivers of a sync have closed their buffers", clear_device_cache)


def _promote(parts: Parts, groups: set[str]) -> None:
    """Adapters that an engine has committed have been pushed."""
    if parts.adapters is not None and groups:
        parts.adapters.pushed(tuple(sorted(group.removeprefix(ADAPTER_PREFIX) for group in groups)))
