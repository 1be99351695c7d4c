"""The page about named copies, drawn from the table that decides on calls."""

from __future__ import annotations

from typing import Final

from states.guards_snapshots import SNAPSHOT_TABLE, SnapshotGuard, groups_to_lend_again
from states.render import GENERATED, markdown_table

_INTRO: Final = """# Named copies: what may be asked, and when

Each of these calls takes the trainer's turn, is decided by the guards beside it, and goes on the record. None moves
the trainer's state. Effects of an event write copies too: what they do is decided with the event ([states](states.md)).
"""


def snapshot_table() -> str:
    """Every call and the guards that it asks."""
    rows = ((f"`{call}`", ", ".join(f"`{one.name}`" for one in guards)) for call, guards in SNAPSHOT_TABLE.items())
    return markdown_table(("call", "guards"), rows)


def snapshot_guards() -> str:
    """Every guard of those calls: its name, its scope, and its rule."""
    asked: dict[str, SnapshotGuard] = {one.name: one for guards in SNAPSHOT_TABLE.values() for one in guards}
    rows = ((f"`{name}`", asked[name].scope, asked[name].rule) for name in sorted(asked))
    return markdown_table(("guard", "scope", "rule"), rows)


def snapshots_page() -> str:
    """The page ``docs/snapshots.md``."""
    lent = " ".join((groups_to_lend_again.__doc__ or "").split())
    return "\n".join(
        (
            GENERATED,
            _INTRO,
            "## Calls\n",
            snapshot_table(),
            "## Guards\n",
            snapshot_guards(),
            f"## Given up again\n\n{lent}\n",
        )
    )
