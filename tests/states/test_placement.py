"""Where each kind of content lies, against a table written out by hand."""

from __future__ import annotations

from itertools import product
from typing import Final, NamedTuple

import pytest

from states import CONTENTS, FrozenBase, Strategy, place, why_not_adopted
from states.facts import BACKUPS, TARGETS
from states.placement import is_in_file
from states.render_placement import placement_page, placements

WRITTEN_BY_HAND: Final = """
content          target  frozen base  strategy  | tag             backup    file
--------------------------------------------------------------------------------
frozen-base      cpu     saver        lean      | base            cpu       no
frozen-base      cpu     saver        reference | base            cpu       no
frozen-base      cpu     saver        duplicate | base            cpu       no
frozen-base      cpu     file         lean      | base            none      yes
frozen-base      cpu     file         reference | base            none      yes
frozen-base      cpu     file         duplicate | base            none      yes
frozen-base      disk    saver        lean      | base            none      yes
frozen-base      disk    saver        reference | base            none      yes
frozen-base      disk    saver        duplicate | base            none      yes
frozen-base      disk    file         lean      | base            none      yes
frozen-base      disk    file         reference | base            none      yes
frozen-base      disk    file         duplicate | base            none      yes
frozen-base      never   any          any       | base            unplaced  no
trainable-base   cpu     any          any       | trainable       cpu       no
trainable-base   disk    any          lean      | trainable       cpu       no
trainable-base   disk    any          reference | trainable       disk      no
trainable-base   disk    any          duplicate | trainable       disk      no
trainable-base   never   any          any       | trainable       unplaced  no
buffers          cpu     any          any       | buffers         cpu       no
buffers          disk    any          lean      | buffers         cpu       no
buffers          disk    any          reference | buffers         disk      no
buffers          disk    any          duplicate | buffers         disk      no
buffers          never   any          any       | buffers         unplaced  no
adapters         cpu     any          any       | adapters        cpu       no
adapters         disk    any          any       | adapters        cpu       no
adapters         never   any          any       | adapters        unplaced  no
adapter-moments  cpu     any          any       | optimizer       cpu       no
adapter-moments  disk    any          any       | optimizer       cpu       no
adapter-moments  never   any          any       | optimizer       unplaced  no
base-moments     cpu     any          any       | base-optimizer  cpu       no
base-moments     disk    any          any       | base-optimizer  disk      no
base-moments     never   any          any       | base-optimizer  unplaced  no
adapter-main-copies cpu  any          any       | main            cpu       no
adapter-main-copies disk any          any       | main            cpu       no
adapter-main-copies never any         any       | main            unplaced  no
base-main-copies cpu     any          any       | base-main       cpu       no
base-main-copies disk    any          any       | base-main       disk      no
base-main-copies never   any          any       | base-main       unplaced  no
gradients        cpu     any          any       | gradients       none      no
gradients        disk    any          any       | gradients       none      no
gradients        never   any          any       | gradients       none      no
"""


class Row(NamedTuple):
    """One row, word by word."""

    content: str
    target: str
    frozen_base: str
    strategy: str
    part: str
    backup: str
    file: str


ROWS: Final = [Row(*line.replace("|", " ").split()) for line in WRITTEN_BY_HAND.strip().splitlines()[2:]]


def _settings(row: Row) -> list[tuple[str | None, str, str]]:
    backings = [str(one) for one in FrozenBase] if row.frozen_base == "any" else [row.frozen_base]
    strategies = [str(one) for one in Strategy] if row.strategy == "any" else [row.strategy]
    return list(product([None if row.target == "never" else row.target], backings, strategies))


@pytest.mark.parametrize("row", ROWS, ids=["-".join(row[:4]) for row in ROWS])
def test_content_lies_where_its_row_says(row: Row) -> None:
    """FB-27: the tag, the backup kind and the file, for every setting that the row stands for."""
    for target, frozen_base, strategy in _settings(row):
        placed = place(row.content, target=target, frozen_base=frozen_base, strategy=strategy)

        assert (placed.part, placed.backup, placed.file) == (row.part, row.backup, row.file == "yes")
        assert placed.because


def test_every_setting_of_every_content_has_one_row() -> None:
    """Nine kinds of content, three targets, two backings, three strategies."""
    settings = [(row.content, *setting) for row in ROWS for setting in _settings(row)]

    assert len(settings) == len(set(settings)) == len(CONTENTS) * 3 * 2 * 3


def test_each_content_has_a_tag_of_its_own() -> None:
    """A tag has one backup kind, so what differs in it cannot share one."""
    assert len(set(CONTENTS.values())) == len(CONTENTS) == 9


def test_what_must_survive_can_be_read_while_it_is_paused_or_has_a_copy_by_the_strategy() -> None:
    """Only gradients, moments and main copies of the base, and what has an actor copy lie where a pause hides them."""
    hidden = {
        (one.content, one.strategy)
        for one in placements()
        if one.place.backup in {"none", "disk"} and not one.place.file
    }

    assert hidden == {
        ("gradients", "any"),
        ("base-moments", "any"),
        ("base-main-copies", "any"),
        ("trainable-base", "reference, duplicate"),
        ("buffers", "reference, duplicate"),
    }


def test_nothing_is_kept_twice() -> None:
    """A region whose bytes the base file brings back has no backup."""
    assert {one.place.backup for one in placements() if one.place.file} == {"none"}


@pytest.mark.parametrize(
    ("target", "frozen_base", "in_file"),
    [
        ("cpu", "saver", False),
        ("cpu", "file", True),
        ("disk", "saver", True),
        ("disk", "file", True),
        (None, "saver", False),
        (None, "file", False),
    ],
)
def test_the_base_lies_in_a_file_where_asked_for_and_for_the_disk_target(
    target: str | None, frozen_base: str, in_file: object
) -> None:
    """What is never paused needs no file."""
    assert is_in_file(target, frozen_base) is in_file


@pytest.mark.parametrize("found", [kind for kind in BACKUPS if kind != "unplaced"])
@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("frozen_base", FrozenBase)
def test_a_base_in_a_region_with_backup_is_not_adopted_for_a_file(
    content: str, found: str, target: str | None, frozen_base: FrozenBase
) -> None:
    """The backup kind is fixed at allocation: a pause would copy what the file brings back. All else is adopted."""
    wanted = place(content, target=target, frozen_base=frozen_base, strategy="lean")
    is_for_a_file = content == "frozen-base" and (target == "disk" or (target == "cpu" and frozen_base == "file"))

    because = why_not_adopted(content, found, wanted)

    assert bool(because) is (is_for_a_file and found != "none")
    assert not because or {found, 'frozen_base="saver"'} <= set(because.replace(",", "").split())


def test_the_page_has_every_row_and_every_refusal() -> None:
    """What the table says under a setting stands on the page, with the reason."""
    page = placement_page()
    placed = list(placements())

    assert {one.content for one in placed} == set(CONTENTS)
    assert all(f"| `MODEL/{one.place.part}` | `{one.place.backup}` |" in page for one in placed)
    assert all(one.place.because in page for one in placed)
    assert page.count("frozen-base lies in a region with backup") == 4
