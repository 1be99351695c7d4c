"""Words for every event: what it does, which calls send it, and what its effects leave on the record.

The one place for words that no table has. Guards, edges and effects of an event come from the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from states.adapters import AdapterEvent
from states.effects import Effect
from states.engine_memory import EngineEvent
from states.names import TrainerEvent

_T, _A, _E, _F = TrainerEvent, AdapterEvent, EngineEvent, Effect


@dataclass(frozen=True, slots=True)
class EventWords:
    """One event.

    Attributes:
        what: what it does, in sentences.
        calls: the methods that send it, the usual one first; empty where nobody outside sends it.
    """

    what: str
    calls: tuple[str, ...] = ()


TRAINER_WORDS: Final[Mapping[TrainerEvent, EventWords]] = {
    _T.SLEEP: EventWords(
        "Quiesces the trainer: the listed process groups are torn down, cached blocks given back, and scratch regions "
        "paused. Weights stay on the device.",
        ("sleep", "handoff"),
    ),
    _T.OFFLOAD: EventWords(
        "Gives the device memory of everything that must survive back, to where the configuration says: `cpu` or "
        "`disk`. `sleep(offload=True)` sends it after `sleep`.",
        ("offload", "sleep", "handoff"),
    ),
    _T.WAKE_UP: EventWords(
        "Takes the device memory again. Every byte is as it was; accumulated gradients are back, all others are zero.",
        ("wake_up", "handoff"),
    ),
    _T.RECONCILE_ADAPTERS: EventWords(
        "Brings the slots to what the registry says, awake or asleep. It only enters; the effects are those of "
        "`reconciled`, which follows at once. One record pair tells both, under this name and the edge of the second.",
        ("reconcile_adapters",),
    ),
    _T.RECONCILED: EventWords(
        "Closes a reconcile, back in the state that it left from. Its edge says whether a second copy of the actor is "
        "made. A record calls it `reconcile_adapters`.",
        ("reconcile_adapters",),
    ),
    _T.RECONCILE_ABANDONED: EventWords(
        "Leaves a reconcile in which an effect failed and everything was undone. The record is the `failed` one of "
        "`reconcile_adapters`.",
    ),
    _T.UPDATE_WEIGHTS: EventWords(
        "Sends every engine what it lacks, from the source that was decided: live memory, the saver's backup, a copy "
        "or the base file. Each engine is tried for itself and compared afterwards.",
        ("update_weights", "handoff"),
    ),
    _T.BEGIN_STEP: EventWords(
        "A training step of the named adapters is in flight from now on. Loading a checkpoint is a step that touches "
        "everything.",
        ("step", "begin_step", "loading_checkpoint"),
    ),
    _T.TRAINED: EventWords(
        "Commits the open step: what it changed takes new version ids, and engines are behind from now on.",
        ("step", "trained", "loading_checkpoint"),
    ),
    _T.SWITCH_MODEL: EventWords(
        "Puts another kept model into live memory, or the actor back. What the two share is not written.",
        ("switch_model", "reference"),
    ),
    _T.FAIL: EventWords(
        "Ends in `faulted`: an undo failed, bytes are not what they were, or ranks lost each other half-way. The "
        "trainer sends it to itself; the record is the `failed` one of the event that was under way, with the target "
        "`faulted`.",
    ),
    _T.RECOVER: EventWords(
        "Leaves `faulted`: an undo that is owed is finished, the tags are driven to the state that takes the fewest "
        "moves, and bytes are compared with their digests and mended from copies that are right.",
        ("recover",),
    ),
}
"""Events of the trainer. Calls are methods of ``TrainerLifecycle``."""

ADAPTER_WORDS: Final[Mapping[AdapterEvent, EventWords]] = {
    _A.REGISTER: EventWords(
        "A registration begins, in the lowest free slot. A name that returns is a new one.", ("register",)
    ),
    _A.WEIGHTS_PUSHED: EventWords(
        "An engine has committed it. `update_weights` says so of what it pushed.", ("record_weight_update",)
    ),
    _A.DEREGISTER: EventWords(
        "It is to go: served until it is demoted, unloaded by the next reconcile. A `num_step` that is done sends it.",
        ("deregister", "mark_batch_trained"),
    ),
    _A.RETIRE: EventWords(
        "It is demoted: not served any more. The reconcile that unloads it does this too.",
        ("retire_adapters", "release"),
    ),
    _A.FREE_SLOT: EventWords("Its slot is cleared and may be given out again.", ("free_slot", "release")),
    _A.BATCH_TRAINED: EventWords(
        "A batch of it is noted before it is trained, and counted as a step after that.",
        ("mark_batch_trained", "record_batch_adapters"),
    ),
    _A.SET_STEP: EventWords("Its source has the tensors of a later step: it counts on from there.", ("set_step",)),
    _A.RESOLVE_NUM_STEP: EventWords(
        "Its epochs become steps, now that the size of the data is known.", ("resolve_num_step",)
    ),
    _A.RESUPPLY: EventWords("Its tensors are given again, after a restart has lost their source.", ("resupply",)),
}
"""Events of a registration. Calls are methods of ``AdapterRegistry``."""

ENGINE_WORDS: Final[Mapping[EngineEvent, EventWords]] = {
    _E.PAUSE: EventWords("No request is admitted any more, and those that run are waited for."),
    _E.UNPAUSE: EventWords("Requests are admitted again."),
    _E.RELEASE: EventWords("Memory of the named tags is given back; a mirror keeps the bytes of some.", ("release",)),
    _E.DISCARD: EventWords("Memory of the named tags is given back with what it holds: `discard=True`.", ("release",)),
    _E.RESUME: EventWords("Memory of the named tags is taken again.", ("resume",)),
    _E.BEGIN_UPDATE: EventWords(
        "An update is open: nothing is served until it is committed or aborted.", ("begin_update",)
    ),
    _E.SEND_BASE: EventWords(
        "Tensors of a group of the base are written. It has no version until the commit.", ("send_base",)
    ),
    _E.LOAD_ADAPTER: EventWords(
        "An adapter is loaded or replaced. It has no version until the commit.", ("load_adapter",)
    ),
    _E.UNLOAD_ADAPTER: EventWords(
        "An adapter is dropped. One that is not there is dropped already.", ("unload_adapter",)
    ),
    _E.FLUSH: EventWords("Cached prefixes are dropped: they were computed with other weights."),
    _E.COMMIT_UPDATE: EventWords(
        "What was sent is served from now on, in the versions that it was sent with.", ("commit_update",)
    ),
    _E.ABORT_UPDATE: EventWords(
        "The update is given up. What it touched holds no version any more.", ("abort_update",)
    ),
    _E.GENERATE: EventWords("A request is answered. What answers has a known version."),
    _E.LOSE: EventWords("A call failed in an unknown place. Nothing is asked of it then but what it holds."),
    _E.RESTART: EventWords("Another instance answers. It holds nothing of what was known."),
    _E.PROBE: EventWords("It said what it holds; that is what is known from now on.", ("report",)),
}
"""Events of an engine. Calls are methods of ``RolloutEngine``; the others are the engine's own affair."""

EFFECT_RECORDS: Final[Mapping[Effect, Mapping[str, str]]] = {
    _F.KEEP_GRADIENTS: {"moved.gradients": "accumulated gradients that were copied"},
    _F.TEAR_DOWN_GROUPS: {"details.groups": "the process groups that were torn down"},
    _F.CLEAR_CACHES: {"details.caches": "why giving cached blocks back has to wait"},
    _F.PAUSE_SCRATCH: {"details.paused": "the tags that were paused"},
    _F.SYNCHRONIZE_DEVICE: {},
    _F.NOTE_DIGESTS: {},
    _F.PAUSE_WEIGHTS: {
        "moved.backup": "bytes that the saver wrote into backups",
        "details.paused": "the tags that were paused",
        "details.ignored_files": "files of another process or content, which were left alone, and why",
    },
    _F.CHECK_FREED: {"details.residue": "what stays on the device, and whether it grows"},
    _F.RESUME_WEIGHTS: {
        "moved.restore": "bytes that were read back from backups",
        "details.resumed": "the tags that were resumed",
    },
    _F.RESUME_SCRATCH: {"details.resumed_scratch": "the scratch tags that were resumed"},
    _F.RESTORE_LOST: {
        "moved.base-file-read": "bytes that came from the base file",
        "moved.snapshot": "bytes that came from a kept copy",
        "details.base_file": "what is wrong with the base file",
    },
    _F.RETURN_GRADIENTS: {"moved.gradients": "accumulated gradients that were written back"},
    _F.REBUILD_GROUPS: {},
    _F.WRITE_ADAPTERS: {
        "moved.adapters": "bytes that were written into slots",
        "details.loaded": "adapters that were loaded or replaced",
        "details.retired": "adapters that were unloaded",
        "details.dropped_gradients_of": "groups whose accumulated gradients went with their adapter",
        "details.versions": "the versions of what was loaded",
        "details.resumed": "what was taken over from a checkpoint, by adapter",
        "details.failed": 'with `partial="keep"`: who was left as it was, and why',
    },
    _F.BACKUP_ACTOR: {
        "moved.snapshot": "bytes that were copied",
        "details.backed_up_bytes": "the same",
    },
    _F.KEEP_OUTGOING: {"moved.snapshot": "bytes that were copied"},
    _F.COMMIT_VERSIONS: {
        "details.versions": "the new versions of what the step changed",
        "details.main_copies_refreshed": "main copies that took over what a checkpoint loaded",
    },
    _F.WRITE_BASE_FILE: {"moved.base-file-write": "bytes that were written into a new base file"},
    _F.OPEN_STEP: {"moved.snapshot": "bytes that kept models get of their own before a checkpoint is loaded"},
    _F.RESTORE_MODEL: {
        "moved.base-file-read": "bytes that came from the base file",
        "moved.snapshot": "bytes that came from a kept copy",
    },
    _F.CHECK_SOURCES: {},
    _F.SEND_WEIGHTS: {
        "moved.sync": "bytes that were sent",
        "details.engines": "by engine: what was sent, how it was compared, and what failed",
        "details.transport": "receivers that still hold buffers",
    },
    _F.DRIVE_TAGS: {
        "moved.gradients": "accumulated gradients that were copied",
        "moved.base-file-read": "bytes that came from the base file",
        "moved.snapshot": "bytes that came from a kept copy",
    },
    _F.CHECK_DIGESTS: {},
    _F.VERIFY_AND_MEND: {
        "details.unverified": "groups of which nothing is known to compare them with",
        "details.mended": "groups and copies that were written from one that is right",
        "details.base_file": "what is wrong with the base file",
    },
}
"""What each effect leaves in the ``moved`` record: bytes by kind, and details."""
