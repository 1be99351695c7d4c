"""Guards about memory and engines: room, copies, residency, and what the other tenant holds."""

from __future__ import annotations

from typing import Final

from states.facts import EngineFacts, Facts
from states.names import ADAPTER_PREFIX, RESTING, TrainerState
from states.sources import comes_back, comes_back_as_it_is, decide_reads, keeps_a_copy_when_paused
from states.verdict import Answer, Guard, guard

_MIB = 1024 * 1024


def _mib(count_bytes: int) -> str:
    return f"{count_bytes / _MIB:.1f} MiB" if count_bytes >= _MIB else f"{count_bytes} bytes"


def _room(place: str, need_bytes: int, free_bytes: int | None, remedy: str) -> Answer:
    if free_bytes is None:
        return True, f"the free room of the {place} is not limited here, {_mib(need_bytes)} are needed", ""
    because = f"{place}: {_mib(need_bytes)} are needed, {_mib(free_bytes)} are free"
    return need_bytes <= free_bytes, because, remedy


def _damage(facts: Facts) -> str:
    """What is wrong with the base file, for a message about bytes that it should have held."""
    return f" ({facts.base_file_problem})" if facts.base_file_problem else ""


@guard()
def target_is_cpu(facts: Facts) -> Answer:
    """The configured offload target is cpu."""
    return facts.offload_target == "cpu", f"the offload target is {facts.offload_target}", "configure it as cpu"


@guard()
def target_is_disk(facts: Facts) -> Answer:
    """The configured offload target is disk."""
    return facts.offload_target == "disk", f"the offload target is {facts.offload_target}", "configure it as disk"


@guard(scope="local")
def saver_is_enabled(facts: Facts) -> Answer:
    """The memory saver really gives memory back."""
    return (
        facts.saver_enabled,
        f"saver enabled: {facts.saver_enabled}",
        "start the process with the saver's hook loaded (torch_memory_saver.configure_subprocess), or do not offload",
    )


@guard(scope="local")
def nothing_strays(facts: Facts) -> Answer:
    """Every tensor that offload should give back lies in a region of the saver."""
    if len(facts.strays) == 0:  # not by its truth: None has no length, and a defect is no permission
        return True, "no tensor strays", ""
    names = ", ".join(facts.strays[:5])
    remedy = "; ".join(dict.fromkeys(_how_it_strayed(name) for name in facts.strays))
    return False, f"in no region of the saver: {names} ({len(facts.strays)} in all)", remedy


def _how_it_strayed(name: str) -> str:
    """What to do about a stray, by its name: ``PARAMETER.grad``, ``PARAMETER#exp_avg`` or the tensor's own."""
    if name.endswith(".grad"):
        return "train inside step(): while awake a block over the adapter takes them in, and versions what has changed"
    if "#" in name:
        return "call prepare_optimizer() while awake: it gives new optimizer state its place"
    return "write in place (copy_), and call to() and half(), which put others there, before the controller is built"


@guard(scope="local")
def nothing_was_replaced(facts: Facts) -> Answer:
    """The model still has the tensors that were attached: what another object holds is neither paused nor served."""
    if len(facts.strays) == 0:
        return True, "the model has the tensors that were attached", ""
    names = ", ".join(facts.strays[:5])
    remedy = "write into the tensors in place (copy_, load_state_dict without assign)"
    return False, f"other objects or other memory now: {names}", remedy


@guard(scope="local")
def everything_is_resident_and_known(facts: Facts) -> Answer:
    """No region is paused, scratch included, and each tensor trains or not as it did, or as the registry says."""
    if facts.paused_tags or facts.scratch_paused:
        because = f"{facts.paused_tags} weight region(s) paused, scratch paused: {facts.scratch_paused}"
        return False, because, "sleep() and wake_up() resume what was paused behind the controller"
    if len(facts.strays) == 0:
        return True, "every region is resident", ""
    return (
        False,
        f"frozen, trainable or replaced since the attach: {', '.join(facts.strays[:5])}",
        "set requires_grad back as it was (use(name) does so for slots) and write into the tensors that were attached",
    )


@guard(scope="local")
def host_has_room(facts: Facts) -> Answer:
    """The host has room for the backup that the pause writes."""
    return _room("host", facts.backup_need_bytes, facts.host_free_bytes, "free host memory, or offload to disk")


@guard(scope="local")
def host_has_room_for_copies(facts: Facts) -> Answer:
    """The host has room for the named copies that are made now."""
    remedy = "free host memory, release a kept model, or raise host_budget_bytes"
    return _room("host", facts.copy_need_bytes, facts.host_free_bytes, remedy)


@guard(scope="local")
def disk_is_real_and_has_room(facts: Facts) -> Answer:
    """The directory is writable, on a real disk (not memory in disguise), and has room for the backup."""
    if facts.disk_problem:
        return False, facts.disk_problem, "choose another offload directory"
    if not facts.disk_is_real:
        return False, "the offload directory lies in memory (tmpfs or ramfs)", "choose a directory on a real disk"
    return _room("disk", facts.disk_need_bytes, facts.disk_free_bytes, "free disk space, or choose another directory")


@guard(scope="local")
def survivors_keep_a_readable_copy(facts: Facts) -> Answer:
    """Every tensor that must survive keeps a fresh copy that can be read once the device memory is gone.

    And what is live, if it is another model, comes back as it is.
    """
    model = facts.active_model
    lost = [
        one for one in facts.contents if not keeps_a_copy_when_paused(one, facts) or not comes_back_as_it_is(one, model)
    ]
    if not lost:
        return True, "every content group keeps a fresh readable copy", ""
    named = "; ".join(f"{one.group} (version {one.version}, backup {one.backup}, live {one.live})" for one in lost)
    return (
        False,
        f"nothing readable would remain of: {named}{_damage(facts)}",
        'backup("actor") first, use a cpu backup for these tensors, or do not offload',
    )


@guard(scope="local")
def device_has_room(facts: Facts) -> Answer:
    """The device has room for what comes back. The real saver ends the process when it has not."""
    return _room(
        "device",
        facts.resume_need_bytes,
        facts.device_free_bytes,
        "let the rollout engine release its memory first",
    )


@guard(scope="local")
def no_transport_bytes_outstanding(facts: Facts) -> Answer:
    """No receiver still holds a buffer of the last weight sync."""
    if facts.transport_bytes == 0 and len(facts.transport_holders) == 0:
        return True, "0 transport bytes are outstanding, held by: nobody", ""
    holders = ", ".join(facts.transport_holders) or "nobody"
    return (
        False,
        f"{facts.transport_bytes} transport bytes are outstanding, held by: {holders}",
        "let the receivers close the buffers of the last sync, or drop an engine that is gone",
    )


@guard()
def lost_bytes_can_be_restored(facts: Facts) -> Answer:
    """What resume brings back without values can be written from a fresh copy."""
    lost = [one.group for one in facts.contents if one.live is None and not comes_back(one, facts.active_model)]
    if not lost:
        return True, "all values come back", ""
    return (
        False,
        f"comes back without values and has no copy: {', '.join(lost)}{_damage(facts)}",
        "load a checkpoint into these tensors; they cannot be recovered from this process",
    )


@guard()
def sources_are_fresh(facts: Facts) -> Answer:
    """For every content group to send there is a source of exactly the actor's version, for every tensor."""
    wanted = {group for engine in facts.engines for group in engine.stale}
    reads = [read for read in decide_reads(facts) if read.group in wanted]
    missing = [read for read in reads if read.source is None]
    if missing:
        return (
            False,
            "; ".join(f"{read.group}: {read.because}" for read in missing),
            "wake_up(), or backup the actor while it is awake",
        )
    places = "; ".join([f"{read.group} from {read.tag or read.source}" for read in reads])
    return True, places or "nothing is to be read", ""


@guard()
def engines_hold_their_weights_tag(facts: Facts) -> Answer:
    """Each engine that gets something has its ``weights`` memory mapped. A write into released memory is lost.

    One of which that is unknown gets nothing and stops nobody else's: its own push fails before anything is sent.
    """
    asleep = [one.name for one in facts.engines if _is_behind(one) and one.weights_resident is False]
    return (
        not asleep,
        f"weights released: {', '.join(asleep)}" if asleep else "no target has released its weights tag",
        'resume("weights") on these engines first',
    )


@guard()
def engines_have_room_for_the_adapters(facts: Facts) -> Answer:
    """No engine has to evict an adapter that is wanted for another one that is."""
    counting = [one for one in facts.engines if one.adapter_slots is not None]
    if not counting:
        return True, "every adapter has a slot", ""
    names = [one.group.removeprefix(ADAPTER_PREFIX) for one in facts.contents if one.group.startswith(ADAPTER_PREFIX)]
    full = [one for one in counting if one.adapter_slots is not None and one.adapter_slots < len(names)]
    told = [f"{one.name} holds {one.adapter_slots} adapter(s)" for one in full if _is_behind(one)]
    return (
        not told,
        f"{', '.join(told)}; there are {len(names)} to send: {', '.join(names)}"
        if told
        else "every adapter has a slot",
        "give these engines more adapter slots, or deregister adapters and reconcile",
    )


@guard()
def engines_hold_no_newer_version(facts: Facts) -> Answer:
    """No engine that gets something holds a version that this trainer has not given out: ids only grow."""
    newer = [f"{one.name} holds {', '.join(one.ahead[:3])}" for one in facts.engines if one.ahead and _is_behind(one)]
    return (
        not newer,
        f"{'; '.join(newer)}, which this trainer has not given out yet" if newer else "no engine is ahead",
        "adopt_versions(engines): the trainer's ids go on above theirs, and everything is sent again",
    )


def _is_behind(engine: EngineFacts) -> bool:
    return bool(engine.stale or engine.extra or engine.fenced or engine.ahead)


@guard()
def an_engine_is_behind(facts: Facts) -> Answer:
    """An engine holds another version than the trainer, or an adapter that is gone."""
    engines = [one for one in facts.engines if _is_behind(one)]
    behind = [f"{one.name}: {', '.join((*one.stale, *one.extra)) or one.fenced or one.ahead[0]}" for one in engines]
    return bool(behind), "; ".join(behind) or "every engine holds the newest versions", "nothing is to be sent"


@guard()
def every_engine_is_current(facts: Facts) -> Answer:
    """Every engine has acknowledged exactly the versions of the trainer."""
    behind = [one.name for one in facts.engines if _is_behind(one)]
    return not behind, f"behind: {', '.join(behind)}" if behind else "no engine is behind", "update_weights(engines)"


def _nearest(facts: Facts) -> TrainerState:
    if facts.paused_tags > facts.active_tags:
        return TrainerState.OFFLOADED_DISK if facts.offload_target == "disk" else TrainerState.OFFLOADED_CPU
    return TrainerState.SLEEPING if facts.scratch_paused else TrainerState.AWAKE


def _nearest_guard(state: TrainerState) -> Guard:
    def body(facts: Facts) -> Answer:
        nearest = _nearest(facts)
        because = f"{facts.active_tags} weight tag(s) active, {facts.paused_tags} paused: nearest is {nearest}"
        return nearest == state, because, "recover() takes the edge to the nearest state"

    body.__doc__ = f"The state that takes the fewest moves of tags is {state}."
    return Guard(body, name=f"nearest-is-{state}", scope="local")


NEAREST_IS: Final = tuple(_nearest_guard(state) for state in RESTING)
