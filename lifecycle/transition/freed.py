"""After a pause: whether the device really has that much memory back, and what stays behind."""

from __future__ import annotations

from lifecycle.errors import SaverError
from lifecycle.transition.parts import Parts, Undo, Work, nothing
from states import OFFLOADED, freed_enough


def check_freed(parts: Parts, work: Work) -> Undo:
    """Compare what the device has in use with what it had before the pause that went before in this row.

    Raises:
        SaverError: too little was freed. The pause is undone; the state does not move on faith.
    """
    books, used = parts.saver.tags(), parts.saver.device_used_bytes()
    expected = {tag: books[tag].size_bytes for tag in work.paused}
    verdict = freed_enough(expected, work.used_before_bytes, used)
    if not verdict:
        raise SaverError(", ".join(work.paused), f"a pause that frees too little: {verdict.because}. {verdict.remedy}")
    if work.step.target in OFFLOADED and used is not None:
        _note_residue(parts, work, used - sum(info.size_bytes for info in books.values() if not info.paused))
    return nothing


def _note_residue(parts: Parts, work: Work, residue_bytes: int) -> None:
    """Record what stays in use; a residue that grows is flagged, and no error: the bytes are not wrong yet."""
    residue = parts.residue.with_reading(residue_bytes)
    work.details["residue"] = {"bytes": residue_bytes, "growing": residue.growing}
    work.on_commit.append(lambda: parts.residue.remember(residue_bytes))
    if residue.growing:
        readings = list(residue.readings[-8:])
        work.remarks.append(("device memory left after offload grows", {"why": residue.because, "bytes": readings}))
