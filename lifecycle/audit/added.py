"""What another process has added to a log that both write, as after a fork: read from where this one left it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from lifecycle.audit.tail import Tail
from lifecycle.errors import AuditError

ADDED_BYTES_MAX: Final = 64 * 2**20
"""What is more is not held at once: the log is read from its beginning then."""


def read_added(path: Path, start_bytes: int, identity: Mapping[str, object]) -> Tail | None:
    """Where the log ends now; None where that does not follow from what was added, and all of it has to be read.

    Args:
        path: the file in use.
        start_bytes: where the last record that this process knows of ended.
        identity: run, rank and model of this log, which are those of every process that shares it.

    Raises:
        AuditError: somebody else writes this log.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        file.seek(start_bytes)
        added = file.read(ADDED_BYTES_MAX + 1)
    if not added or len(added) > ADDED_BYTES_MAX or not added.endswith(b"\n"):
        return None
    try:
        last = json.loads(added[added.rfind(b"\n", 0, -1) + 1 :])
        sequence, chain = last["sequence"], last["hash"]
    except (ValueError, KeyError, TypeError):
        return None
    if type(sequence) is not int or type(chain) is not str:
        return None
    others = {key: last.get(key) for key in identity}
    if others != identity:
        whose = ", ".join(f"{key} {value!r}" for key, value in others.items())
        raise AuditError(str(path), f"somebody else writes it too ({whose}); give each rank and run a path of its own")
    return Tail(sequence, chain, start_bytes + len(added), torn_bytes=0, needs_newline=False, unfinished=())
