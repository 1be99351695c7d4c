"""Where to begin in a log that is long: at its end, as far back as what is shown needs.

A record that tells all facts is enough to know every version from there on, and there is one within about twice the
size of the facts. So a log of any length is read in the time that its last megabytes take.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Final

from lifecycle.audit.read import Torn, parse_line, raw_lines
from lifecycle.audit.rotation import GZIP, rotated
from lifecycle.errors import AuditError

MIB: Final = 1024**2
BEGIN_BYTES: Final = MIB
"""So much of the end is read at first, of all files together."""
MOST_BYTES: Final = 64 * MIB
"""And never more than this; what is older than that is not shown."""
_GROWS: Final = 4
_ALL_FACTS: Final = b'"facts":{"shared":'
"""Only a record has this; in a text its quotes would be escaped."""


def end_of(file: FileIO) -> bytes:
    """The end of a log's file: whole lines from one that begins there, and perhaps one that has no end yet.

    Args:
        file: the file in use.

    Returns:
        The bytes; the file is read up to where they end.
    """
    size_bytes = os.fstat(file.fileno()).st_size
    take = BEGIN_BYTES
    while True:
        begin = max(0, size_bytes - take)
        file.seek(max(0, begin - 1))
        found = file.read(size_bytes - begin + min(1, begin))
        if begin:  # the byte before tells whether a line begins here
            found = found.partition(b"\n")[2]
        if begin == 0 or take >= MOST_BYTES or _ALL_FACTS in found:
            return found
        take *= _GROWS


def lines_before(path: Path, in_use: FileIO, so_far: bytes) -> Iterator[bytes]:
    """Lines of files that were put aside, where the file in use is young: as many as make up what is read at first.

    Args:
        path: the file in use.
        in_use: the same, open.
        so_far: what was read of it.
    """
    left, files = BEGIN_BYTES - len(so_far), []
    for _, one in sorted(rotated(path).items(), reverse=True):
        if left <= 0:
            break
        lines = [] if _is_same(one, in_use) else _last_lines(one, left)
        left -= sum(map(len, lines))
        files.append(lines)
    for lines in reversed(files):
        yield from lines


def lines_between(path: Path, in_use: FileIO, after: int) -> Iterator[bytes]:
    """Lines of files that were put aside while nobody looked.

    Args:
        path: the file in use.
        in_use: the same, open.
        after: number of the last record that was seen. Files that end before it are not read; of the others every
            line is given.
    """
    missed: list[Path] = []
    for _, one in sorted(rotated(path).items(), reverse=True):
        if not _is_same(one, in_use):
            missed.append(one)
            if _first_number(one) <= after + 1:
                break
    for one in reversed(missed):
        yield from _lines(one)


def _first_number(path: Path) -> int:
    line = next(_lines(path), b"")
    record = parse_line(line, 1)
    number = 0 if isinstance(record, Torn) else record["sequence"]
    return number if isinstance(number, int) else 0


def _last_lines(path: Path, most_bytes: int) -> list[bytes]:
    kept: deque[bytes] = deque()
    size_bytes = 0
    for line in _lines(path):
        kept.append(line)
        size_bytes += len(line)
        while size_bytes - len(kept[0]) > most_bytes:
            size_bytes -= len(kept.popleft())
    return list(kept)


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file that was put aside; none where it is gone. It may be compressed meanwhile."""
    for one in (path, path.with_name(path.name + GZIP)):
        if one.exists():
            try:
                yield from (line for _, _, line in raw_lines(one))
            except AuditError:
                if one.exists():
                    raise
                continue
            return


def _is_same(path: Path, file: FileIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
