"""Where a read goes: residency and version decide, nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from states import ACTOR, ContentFacts, Facts, Refusal, Source, Step, TrainerEvent, TrainerState, decide, decide_read
from states.facts import LeaseFacts
from states.sources import comes_back, decide_reads, keeps_a_copy_when_paused
from tests.strategies import ADAPTER, NEWEST, OLDER, group, healthy, residencies

SAVER_PREFERRED = Facts()
COPY_PREFERRED = Facts(strategy="reference", with_ref=True)
EVERYWHERE = group(saver=NEWEST, copies=(("ref", NEWEST), (ACTOR, NEWEST)))
PAUSED = group(live=None, saver=NEWEST, copies=(("ref", NEWEST), (ACTOR, NEWEST)))


@pytest.mark.parametrize(
    ("content", "facts", "source", "tag"),
    [
        (EVERYWHERE, SAVER_PREFERRED, Source.LIVE, ""),
        (EVERYWHERE, COPY_PREFERRED, Source.LIVE, ""),
        (PAUSED, SAVER_PREFERRED, Source.SAVER_BACKUP, ""),
        (PAUSED, COPY_PREFERRED, Source.SNAPSHOT, ACTOR),
        (PAUSED, Facts(strategy="duplicate"), Source.SNAPSHOT, ACTOR),
        (PAUSED, Facts(strategy="reference"), Source.SAVER_BACKUP, ""),
        (PAUSED, Facts(with_ref=True, colocate=False, lora=False), Source.SAVER_BACKUP, ""),
        (PAUSED, Facts(active_model="ref"), Source.SNAPSHOT, ACTOR),
        (PAUSED, Facts(offload_target="disk"), Source.SNAPSHOT, ACTOR),
        (group(file=NEWEST), SAVER_PREFERRED, Source.LIVE, ""),
        (group(live=None, saver=NEWEST, file=NEWEST), SAVER_PREFERRED, Source.BASE_FILE, ""),
        (group(live=None, file=NEWEST, copies=((ACTOR, NEWEST),)), COPY_PREFERRED, Source.BASE_FILE, ""),
        (group(live=None, file=OLDER, copies=((ACTOR, NEWEST),)), SAVER_PREFERRED, Source.SNAPSHOT, ACTOR),
        (group(live=OLDER, saver=NEWEST, retained=True), SAVER_PREFERRED, Source.SAVER_BACKUP, ""),
        (
            group(ADAPTER, live=OLDER, saver=NEWEST, retained=True, copies=(("ref", NEWEST),)),
            SAVER_PREFERRED,
            Source.SNAPSHOT,
            "ref",
        ),
        (
            group(live=None, saver=NEWEST, copies=((ACTOR, NEWEST),), borrowed=(ACTOR,)),
            COPY_PREFERRED,
            Source.SAVER_BACKUP,
            "",
        ),
        (group(live=None, saver=NEWEST), COPY_PREFERRED, Source.SAVER_BACKUP, ""),
        (group(live=None, copies=((ACTOR, NEWEST),)), SAVER_PREFERRED, Source.SNAPSHOT, ACTOR),
        (group(live=None, copies=((ACTOR, OLDER), ("ref", NEWEST))), COPY_PREFERRED, Source.SNAPSHOT, "ref"),
        (group(live=None, copies=(("z", NEWEST), ("b", NEWEST))), COPY_PREFERRED, Source.SNAPSHOT, "b"),
        (group(live=OLDER, saver=OLDER, copies=(("ref", NEWEST),)), SAVER_PREFERRED, Source.SNAPSHOT, "ref"),
    ],
)
def test_the_order_is_live_then_the_base_file_then_the_copy_of_the_rule_then_any(
    content: ContentFacts, facts: Facts, source: Source, tag: str
) -> None:
    """FB-01: among fresh places the order is fixed; a stale one is passed over whatever its rank."""
    read = decide_read(content, facts)

    assert (read.source, read.tag, read.version) == (source, tag, NEWEST)
    assert read.because


def _held(content: ContentFacts, source: Source, tag: str) -> int | None:
    held = {Source.LIVE: content.live, Source.SAVER_BACKUP: content.saver, Source.BASE_FILE: content.file}
    return held[source] if source in held else content.copy_version(tag)


@pytest.mark.parametrize("facts", [SAVER_PREFERRED, COPY_PREFERRED])
def test_a_stale_place_is_never_chosen(facts: Facts) -> None:
    """Over every residency: the place that is read holds exactly the version that is wanted."""
    reads = [(one, decide_read(one, facts)) for one in residencies()]
    held = [_held(one, read.source, read.tag) for one, read in reads if read.source is not None]

    assert held
    assert set(held) == {NEWEST}


@pytest.mark.parametrize(
    ("content", "because"),
    [
        (group(live=None), "version 5 is wanted, no readable copy exists"),
        (
            group(live=OLDER, saver=OLDER, copies=((ACTOR, OLDER),)),
            "version 5 is wanted, live holds 3, saver backup holds 3, actor holds 3",
        ),
        (group(unreadable=("layers.0.weight",)), "no copy can be read of: layers.0.weight"),
        (group(live=None, file=OLDER), "version 5 is wanted, base file holds 3"),
        (group(ADAPTER, live=None, saver=NEWEST, retained=True), "version 5 is wanted, saver backup holds 5"),
    ],
)
def test_nothing_fresh_is_an_answer_not_a_fall_back(content: ContentFacts, because: str) -> None:
    """FB-02: no copy is said at once, with what is held instead or the tensor's name."""
    read = decide_read(content, SAVER_PREFERRED)

    assert read.source is None
    assert read.because == because


@pytest.mark.parametrize(
    ("changes", "keeps"),
    [
        ({"backup": "cpu"}, True),
        ({"backup": "cpu", "live": None, "saver": NEWEST}, True),
        ({"backup": "cpu", "live": OLDER}, False),
        ({"backup": "cpu", "live": OLDER, "saver": NEWEST}, False),
        ({"backup": "cpu", "live": None, "saver": OLDER}, False),
        ({"backup": "disk"}, False),
        ({"backup": "disk", "copies": ((ACTOR, NEWEST),)}, True),
        ({"backup": "none"}, False),
        ({"backup": "none", "copies": ((ACTOR, NEWEST),)}, True),
        ({"backup": "none", "copies": ((ACTOR, OLDER),)}, False),
        ({"backup": "unplaced"}, True),
        ({"backup": "unplaced", "live": None}, False),
        ({"backup": "cpu", "unreadable": ("w",)}, False),
        ({"backup": "none", "file": NEWEST}, True),
        ({"backup": "none", "file": OLDER}, False),
        ({"backup": "disk", "copies": ((ACTOR, NEWEST),), "borrowed": (ACTOR,)}, False),
    ],
)
def test_what_a_pause_leaves_readable(changes: dict[str, Any], keeps: object) -> None:
    """FB-01: cpu keeps what is live (also over a retained backup), disk and none need a copy, unplaced stays."""
    assert keeps_a_copy_when_paused(group(**changes), SAVER_PREFERRED) is keeps


def test_a_disabled_saver_writes_no_backup() -> None:
    """FB-27: with the saver off a cpu backup does not count; a copy elsewhere does."""
    off = Facts(saver_enabled=False)

    assert not keeps_a_copy_when_paused(group(), off)
    assert keeps_a_copy_when_paused(group(copies=((ACTOR, NEWEST),)), off)


@pytest.mark.parametrize(("backup", "returns"), [("cpu", True), ("disk", True), ("none", False), ("unplaced", False)])
def test_what_a_resume_brings_back(backup: str, returns: object) -> None:
    """Only cpu and disk backups come back with values; the rest needs a fresh copy."""
    assert comes_back(group(backup=backup, live=None)) is returns
    assert comes_back(group(backup=backup, live=None, copies=((ACTOR, NEWEST),)))
    assert comes_back(group(backup=backup, live=None, file=NEWEST))
    assert comes_back(group(backup=backup, live=None, copies=((ACTOR, NEWEST),), borrowed=(ACTOR,))) is returns


def test_offloaded_without_colocation_reads_the_saver_backup() -> None:
    """FB-01: no colocation, no other model, so no copy is made; the saver's backup is fresh and is read."""
    contents = (group(live=None, saver=NEWEST), group(ADAPTER, live=None, saver=NEWEST))
    facts = healthy(TrainerState.OFFLOADED_CPU, colocate=False, contents=contents)

    step = decide(TrainerState.OFFLOADED_CPU, TrainerEvent.UPDATE_WEIGHTS, facts)

    assert isinstance(step, Step)
    assert {read.source for read in step.reads} == {Source.SAVER_BACKUP}


def test_an_offload_that_would_leave_nothing_to_read_is_refused() -> None:
    """FB-01: a region without backup and without snapshot; the refusal names the group and how to keep it."""
    facts = healthy(TrainerState.SLEEPING, contents=(group(backup="none"), group(ADAPTER)))

    refusal = decide(TrainerState.SLEEPING, TrainerEvent.OFFLOAD, facts)

    assert isinstance(refusal, Refusal)
    assert [one.name for one in refusal.failed] == ["survivors-keep-a-readable-copy"]
    assert "frozen-base" in refusal.failed[0].because
    assert 'backup("actor") first' in refusal.remedy


def test_a_region_paused_behind_our_back_stops_a_sync_of_the_base_but_not_of_the_adapter() -> None:
    """FB-02: the base has no copy left, so it cannot be sent; the adapter is live and can."""
    lost = group(backup="none", live=None, unreadable=("layers.0.weight",))
    contents = (lost, group(ADAPTER, backup="unplaced"))
    adapter_only = healthy(TrainerState.SLEEPING, contents=contents)
    engines = tuple(type(one)(one.name, stale=("frozen-base", ADAPTER)) for one in adapter_only.engines)
    everything = healthy(TrainerState.SLEEPING, contents=contents, engines=engines)

    refusal = decide(TrainerState.SLEEPING, TrainerEvent.UPDATE_WEIGHTS, everything)

    assert isinstance(refusal, Refusal)
    assert "layers.0.weight" in refusal.failed[0].because
    assert isinstance(decide(TrainerState.SLEEPING, TrainerEvent.UPDATE_WEIGHTS, adapter_only), Step)
    assert [read.source for read in decide_reads(adapter_only)] == [None, Source.LIVE]


def test_a_run_without_offload_and_without_any_copy_syncs_from_live_memory() -> None:
    """FB-02: the check is armed by residency, so a healthy run is not refused."""
    contents = (group(backup="unplaced"), group(ADAPTER, backup="unplaced"))
    facts = healthy(TrainerState.AWAKE, offload_target=None, saver_enabled=False, contents=contents)

    assert isinstance(decide(TrainerState.AWAKE, TrainerEvent.UPDATE_WEIGHTS, facts), Step)


def test_a_lease_that_many_tensors_outlived_names_a_few() -> None:
    """A message is read by somebody; two thousand names are not."""
    leaked = tuple(f"layer.{index}" for index in range(5))

    assert LeaseFacts("reader", "live", (), leaked).describe().endswith("layer.2 and 2 more outlived it)")
    assert LeaseFacts("reader", "live", (), leaked[:1]).describe().endswith("but layer.0 outlived it)")
