"""Keeping other models: ref, teacher, old actor."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from lifecycle.errors import ConfigError
from lifecycle.transition.gather import gather
from lifecycle.transition.leasing import open_lease
from lifecycle.transition.parts import Parts, Request
from lifecycle.weights.digests import same_bytes
from lifecycle.weights.stored import Gate, Plan, check_tag
from states import ACTOR, decide_reads
from states.guards_snapshots import SnapshotCall


def keep_model(parts: Parts, gate: Gate, tag: str, tensors: Mapping[str, Tensor] | None) -> int:
    """Keep a host copy of a model under *tag*.

    Given tensors are compared with the actor's newest bytes, group by group: an equal group gets the
    same version id, so that a switch does not write it.

    Returns:
        The bytes copied.

    Raises:
        ConfigError: the tag is ``actor``, or the tensors do not cover whole content groups.
        EventRefused: see :data:`states.guards_snapshots.SNAPSHOT_TABLE`.

    Whatever is raised, the tag is as before.
    """
    if tag == ACTOR:
        raise ConfigError('"actor" is the tag of the model that trains; choose another one for a kept model')
    check_tag(tag)
    _check_tensors(tensors)
    store = parts.snapshots
    if tensors is None:
        return gate.perform(SnapshotCall.KEEP_MODEL, tag, lambda: store.plan_of_backup(tag), lambda: store.take(tag))
    given = _Given(parts, tag, tensors)
    return gate.perform(SnapshotCall.KEEP_MODEL, tag, given.plan, given.keep)


def _check_tensors(tensors: object) -> None:
    """Refuse what no group of tensors could be copied from."""
    if tensors is None:
        return
    if not isinstance(tensors, Mapping):
        raise ConfigError(f"tensors is a {type(tensors).__name__}; give a mapping of names to tensors, or None")
    for name, one in tensors.items():
        if not isinstance(name, str) or not isinstance(one, Tensor):
            raise ConfigError(f"{name!r} is a {type(one).__name__}; give names and tensors")
        if one.is_meta or one.layout is not torch.strided:
            raise ConfigError(
                f"{name} is {'on the meta device' if one.is_meta else one.layout}; give its values, strided"
            )


class _Given:
    """Tensors that are to be kept. What they are is found out once it is clear that bytes may be looked at."""

    def __init__(self, parts: Parts, tag: str, tensors: Mapping[str, Tensor]) -> None:
        self._parts = parts
        self._tag = tag
        self._tensors = tensors
        self._groups: dict[str, tuple[int, dict[str, Tensor]]] = {}

    def plan(self) -> Plan:
        found = _whole_groups(self._parts, self._tensors)
        self._groups = {group: (_version_of(self._parts, group, held), held) for group, held in found.items()}
        puts = tuple((group, version) for group, (version, _) in self._groups.items())
        return Plan(puts, need_bytes=self._parts.snapshots.would_copy(self._tag, puts))

    def keep(self) -> int:
        store = self._parts.snapshots
        saved = store.save()
        try:
            kept = self._groups.items()
            return sum(store.keep(self._tag, group, version, held) for group, (version, held) in kept)
        except BaseException:
            store.load(saved)  # half a model, or one of two, is none
            raise


def _whole_groups(parts: Parts, tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    found: dict[str, dict[str, Tensor]] = {}
    unknown = set(tensors) - set(parts.inventory.tied_names)
    for group, own in parts.inventory.groups().items():
        given = {name: tensors[name] for name in own if name in tensors}
        unknown -= given.keys()
        if not given:
            continue
        missing = [name for name in own if name not in given]
        if missing:
            raise ConfigError(f"{group} lacks {len(missing)} tensor(s): {', '.join(missing[:3])}; give whole groups")
        for name, value in given.items():
            if value.shape != own[name].shape or value.dtype != own[name].dtype:
                raise ConfigError(f"{name} is {value.dtype} {tuple(value.shape)}, the model has {own[name].dtype} "
                                  f"{tuple(own[name].shape)}")  # fmt: skip
        found[group] = given
    if unknown or not found:
        raise ConfigError(f"the model has no tensor named: {', '.join(sorted(unknown)[:3]) or '(none was given)'}")
    return found


def _version_of(parts: Parts, group: str, held: Mapping[str, Tensor]) -> int:
    """The actor's id when the bytes are equal to its newest, else an id that was never used."""
    reads = tuple(read for read in decide_reads(gather(parts, Request())) if read.group == group and read.source)
    version = parts.versions.wanted[group]
    if reads:
        with open_lease(parts, "keep_model", reads) as lease:
            if all(same_bytes(lease[name], value) for name, value in held.items()):
                return version
    return parts.versions.new_id()
