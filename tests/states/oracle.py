"""The safety rules a second time, told as what happens to bytes.

Nothing here looks at the table, a guard, the copy rule or the choice of sources: a defect of those
cannot hide itself. Each event is told as an attempt: what would be lost, overwritten under a reader,
or read in the wrong version, if it went ahead. No danger means that it must be allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from states.facts import ContentFacts, EngineFacts, Facts

RESTING: Final = ("awake", "sleeping", "offloaded-cpu", "offloaded-disk")


@dataclass(frozen=True)
class Ruling:
    """What an event may do.

    Attributes:
        answer: ``moves``, ``settled`` or ``refused``.
        target: the state it reaches when it moves.
        copies_actor: whether the actor's bytes are copied on the way.
        keeps_outgoing: whether bytes that are about to be overwritten are copied first.
        dangers: why it must not happen.
    """

    answer: str
    target: str = ""
    copies_actor: bool = False
    keeps_outgoing: bool = False
    dangers: tuple[str, ...] = ()


def rule_on(state: str, event: str, facts: Facts) -> Ruling:
    """What *event* may do in *state*."""
    if event == "fail":
        return _SETTLED if state == "faulted" else Ruling("moves", "faulted")
    if event == "recover":
        return _try("moves", *_recovery(facts)) if state == "faulted" else _unless_busy(state)
    if state == "faulted":
        return _REFUSED
    if state == "adapter-reconciling":
        return _end_of_reconcile(event, facts)
    return _EVENTS[event](state, facts) if event in _EVENTS else _REFUSED


_SETTLED: Final = Ruling("settled")
_REFUSED: Final = Ruling("refused")


def _try(
    answer: str, target: str, dangers: Iterable[str], *, copies_actor: bool = False, keeps_outgoing: bool = False
) -> Ruling:
    found = tuple(dangers)
    return Ruling("refused", dangers=found) if found else Ruling(answer, target, copies_actor, keeps_outgoing)


def _unless_busy(state: str) -> Ruling:
    return _SETTLED if state in RESTING else _REFUSED


# --- bytes ---------------------------------------------------------------------------------------


def _copies(content: ContentFacts) -> dict[str, int]:
    return dict(content.copies)


def _stored(content: ContentFacts) -> set[int | None]:
    """Versions in memory of their own: a copy that borrows the trainer's bytes is gone when they are."""
    own = {version for tag, version in content.copies if tag not in content.borrowed}
    return {*own, content.file} - {None}


def readable_now(content: ContentFacts) -> bool:
    """Some place holds the newest bytes, for every tensor."""
    is_of_an_earlier_pause = content.retained and not content.frozen
    backup = None if is_of_an_earlier_pause else content.saver
    return content.version in {content.live, backup, *_stored(content)} and not content.unreadable


def readable_after_pause(content: ContentFacts) -> bool:
    """The same, after the pause did to the group what its backup kind does."""
    places = _stored(content)
    if content.backup == "cpu":
        places.add(content.saver if content.live is None else content.live)  # a pause writes what is live
    if content.backup == "unplaced":
        places.add(content.live)  # it is never paused
    return content.version in places and not content.unreadable  # disk: no one can read it; none: gone


def gone_for_good(content: ContentFacts, model: str) -> bool:
    """Not on the device, not brought back by a resume, and what the model consists of is in no copy."""
    returns = content.backup in ("cpu", "disk")
    return content.live is None and not returns and _bytes_of(model, content) not in _stored(content)


def comes_back_as_another(content: ContentFacts, model: str) -> bool:
    """A pause drops what is live, and what is written in its place are other bytes, or none."""
    is_dropped = content.backup == "none" and content.live is not None
    right = _bytes_of(model, content)
    return is_dropped and (content.live != right or right not in _stored(content))


def _out_of_sight(facts: Facts) -> set[str]:
    """Groups that nobody could read during an offload but for a second copy: gone, or in the saver's own files."""
    paused = [one for one in facts.contents if one.backup in ("none", "disk") and facts.offload_target is not None]
    return {one.group for one in paused if one.file != one.version}


def needs_second_copy(facts: Facts) -> bool:
    """One host copy is enough only for a colocated LoRA actor that is alone and goes to host memory.

    Strategy lean asks of the bytes: one copy is enough unless a pause puts some out of sight.
    """
    if facts.strategy == "lean":
        return bool(_out_of_sight(facts))
    company = facts.with_ref or facts.with_teacher or facts.keep_old_actor
    alone = facts.colocate and facts.lora and facts.offload_target == "cpu" and not company
    if facts.strategy == "duplicate":
        return True
    return (facts.colocate or company) and not alone


def _behind_copy(facts: Facts) -> set[str]:
    """Groups whose newest bytes the trainer's memory holds and the actor copy that is needed lacks."""
    if facts.active_model != "actor" or not needs_second_copy(facts):
        return set()
    fresh = [one for one in facts.contents if one.version == (one.saver if one.live is None else one.live)]
    behind = {one.group for one in fresh if "actor" in one.borrowed or _copies(one).get("actor") != one.version}
    return behind & _out_of_sight(facts) if facts.strategy == "lean" else behind


# --- readers -------------------------------------------------------------------------------------


def _reads(facts: Facts, memory: str, groups: set[str] | None = None) -> bool:
    return any(one.source == memory and (groups is None or groups & set(one.groups)) for one in facts.leases)


def _moving_adapters(facts: Facts) -> set[str]:
    return {f"adapter/{name}" for name in facts.to_load} | {f"adapter/{name}" for name in facts.to_retire}


def _trained_groups(facts: Facts) -> set[str]:
    return {"trainable-base", "buffers"} | set(facts.touched)


def _fits(need: int, free: int | None) -> bool:
    return free is None or free >= need


def _copies_do_not_fit(facts: Facts) -> bool:
    return not _fits(facts.copy_need_bytes, facts.host_free_bytes)


def _named(dangers: dict[str, bool]) -> list[str]:
    return [name for name, is_there in dangers.items() if is_there]


# --- events --------------------------------------------------------------------------------------


def _sleep(state: str, facts: Facts) -> Ruling:
    if state != "awake":
        return _SETTLED
    copies = bool(_behind_copy(facts))
    dangers = {
        "a step would lose its activations": facts.step_open,
        "the reference would lose its device": facts.reference_open,
        "accumulated gradients would be lost": bool(facts.accumulated) and not facts.gradients_kept,
        "the host would run out for a copy": copies and _copies_do_not_fit(facts),
    }
    return _try("moves", "sleeping", _named(dangers), copies_actor=copies)


def _offload(state: str, facts: Facts) -> Ruling:
    if state in ("offloaded-cpu", "offloaded-disk"):
        return _SETTLED
    if state != "sleeping" or facts.offload_target is None:
        return _REFUSED
    to_disk = facts.offload_target == "disk"
    disk_is_bad = bool(facts.disk_problem) or not facts.disk_is_real
    dangers = {
        "nothing would be given back": not facts.saver_enabled,
        "a tensor would stay on the device": bool(facts.strays),
        "a reader would lose its memory": _reads(facts, "live"),
        "a backup would be rewritten under a reader": _reads(facts, "saver-backup"),
        "the newest bytes would be nowhere": not all(map(readable_after_pause, facts.contents)),
        "another model would be live": any(comes_back_as_another(one, facts.active_model) for one in facts.contents),
        "the host would run out": not _fits(facts.backup_need_bytes, facts.host_free_bytes),
        "the disk is none": to_disk and disk_is_bad,
        "the disk would run out": to_disk and not _fits(facts.disk_need_bytes, facts.disk_free_bytes),
        "a receiver maps a buffer yet": facts.transport_bytes != 0 or bool(facts.transport_holders),
    }
    return _try("moves", f"offloaded-{facts.offload_target}", _named(dangers))


def _wake_up(state: str, facts: Facts) -> Ruling:
    if state == "awake":
        return _SETTLED
    dangers = {
        "a reader's backup would be freed": _reads(facts, "saver-backup"),
        "a receiver still maps a buffer": facts.transport_bytes != 0 or bool(facts.transport_holders),
        "the device would run out": not _fits(facts.resume_need_bytes, facts.device_free_bytes),
        "bytes would come back as noise": any(gone_for_good(one, facts.active_model) for one in facts.contents),
    }
    return _try("moves", "awake", _named(dangers))


def _reconcile(_: str, facts: Facts) -> Ruling:
    moving = _moving_adapters(facts)
    if not moving:
        return _SETTLED
    dangers = {
        "the step under way would change its weights": facts.step_open,
        "another model's bytes would be overwritten": facts.active_model != "actor",
        "a lost registry would retire what is loaded": bool(facts.unaccounted),
        "a slot has no bytes to write": bool(facts.unwritable),
        "a tenant would inherit something": bool(facts.unknown_slot_state),
        "a forward pass would go on with nobody's adapter": bool(facts.unsucceeded),
        "a reader would see another adapter": any(moving & set(one.groups) for one in facts.leases),
    }
    return _try("moves", "adapter-reconciling", _named(dangers))


def _end_of_reconcile(event: str, facts: Facts) -> Ruling:
    if facts.origin not in RESTING or event not in ("reconciled", "reconcile_abandoned"):
        return _REFUSED
    copies = event == "reconciled" and needs_second_copy(facts)
    return Ruling("moves", facts.origin, copies_actor=copies)


def _is_served_wrong(engine: EngineFacts) -> bool:
    return bool(engine.stale) or bool(engine.extra) or engine.fenced != "" or engine.ahead != ()


def _adapters_in(facts: Facts) -> int:
    return sum(one.group.startswith("adapter/") for one in facts.contents)


def _update(state: str, facts: Facts) -> Ruling:
    targets = [one for one in facts.engines if _is_served_wrong(one)]
    if not targets:
        return _SETTLED
    sent = {name for one in targets for name in one.stale}
    dangers = {
        "weights would be sent in the middle of a step": facts.step_open,
        "another model would be served as the actor": facts.active_model != "actor",
        "old or missing bytes would be sent": not all(readable_now(one) for one in facts.contents if one.group in sent),
        "a wanted adapter would be evicted for another": any(
            one.adapter_slots is not None and one.adapter_slots < _adapters_in(facts) for one in targets
        ),
        "a version that somebody else gave out would be replaced by an older one": any(
            one.ahead != () for one in targets
        ),
        "a write would go into released memory": any(one.weights_resident is False for one in targets),
    }
    return _try("moves", state, _named(dangers))


def _dangers_of_training(facts: Facts) -> dict[str, bool]:
    return {
        "another model would be trained": facts.active_model != "actor",
        "the step names an adapter without a slot": bool(facts.step_unknown),
        "a reader would see weights change": _reads(facts, "live", _trained_groups(facts)),
        "a reader's file would be replaced": _reads(facts, "base-file", _trained_groups(facts)),
    }


def _begin_step(state: str, facts: Facts) -> Ruling:
    if state != "awake":
        return _REFUSED
    dangers = _dangers_of_training(facts) | {
        "two steps at once": facts.step_open,
        "an adapter would change that is only served": bool(facts.step_frozen),
        "the step would touch paused memory": facts.paused_tags > 0 or facts.scratch_paused,
        "bytes that count as frozen would change": bool(facts.strays),
        "the step would compute on other bytes": any(one.live != one.version for one in facts.contents),
        "the host would run out for those who borrow the base": _copies_do_not_fit(facts),
    }
    return _try("moves", "awake", _named(dangers))


def _trained(state: str, facts: Facts) -> Ruling:
    if state != "awake":
        return _REFUSED
    copies = needs_second_copy(facts)
    dangers = _dangers_of_training(facts) | {
        "no step was open": not facts.step_open,
        "changed bytes would keep their version": bool(facts.step_differs),
        "bytes that nobody serves were trained": bool(facts.strays),
        "the host would run out for a copy": copies and _copies_do_not_fit(facts),
    }
    return _try("moves", "awake", _named(dangers), copies_actor=copies)


def _bytes_of(model: str, content: ContentFacts) -> int:
    """The version that the model consists of; what it does not keep it shares with the actor."""
    return content.version if model == "actor" else _copies(content).get(model, content.version)


def _switch_model(state: str, facts: Facts) -> Ruling:
    if state != "awake":
        return _REFUSED
    model = facts.switch_target
    right = {one.group: _bytes_of(model, one) for one in facts.contents}
    if facts.active_model == model and all(one.live == right[one.group] for one in facts.contents):
        return _SETTLED
    replaced = [one for one in facts.contents if one.live not in (None, right[one.group])]
    missing = [one for one in facts.contents if right[one.group] not in {one.live, *_stored(one)}]
    only_live = [one for one in replaced if one.live not in _stored(one)]
    are_the_models = all(one.live in (one.version, _bytes_of(facts.active_model, one)) for one in only_live)
    keeps = facts.strategy == "lean" and bool(only_live) and are_the_models
    dangers = {
        "the step under way would change its weights": facts.step_open,
        "there is no such model": model != "actor" and model not in facts.models,
        "the model would be a mixture": bool(missing),
        "bytes would be overwritten without a copy": bool(only_live) and not keeps,
        "a reader would see another model": bool(facts.leases),
        "the host would run out for a copy": keeps and _copies_do_not_fit(facts),
    }
    return _try("moves", "awake", _named(dangers), keeps_outgoing=keeps)


def _recovery(facts: Facts) -> tuple[str, list[str]]:
    leased = {"a reader's memory would be freed or rewritten": bool(facts.leases)}
    if facts.paused_tags > facts.active_tags:
        return ("offloaded-disk" if facts.offload_target == "disk" else "offloaded-cpu"), _named(leased)
    room = {"the device would run out": not _fits(facts.resume_need_bytes, facts.device_free_bytes)}
    return ("sleeping" if facts.scratch_paused else "awake"), _named(leased | room)


_EVENTS: Final[dict[str, Callable[[str, Facts], Ruling]]] = {
    "sleep": _sleep,
    "offload": _offload,
    "wake_up": _wake_up,
    "reconcile_adapters": _reconcile,
    "update_weights": _update,
    "begin_step": _begin_step,
    "trained": _trained,
    "switch_model": _switch_model,
}
