"""Numbers, hashes and sessions: whether the lines of a log are those that were written, all of them, in their order."""

from __future__ import annotations

from hashlib import sha256
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from lifecycle.audit.rotation import GZIP
from lifecycle.auditing.kinds import Found, Kind
from lifecycle.auditing.lines import Line

_OPENED: Final = "lifecycle.opened"
_CLOSES: Final = frozenset({"lifecycle.moved", "lifecycle.failed", _OPENED})
_OWNER: Final = ("run", "rank", "model")
_OWNER_OF: Final = itemgetter(*_OWNER)
_TAIL_BYTES: Final = len(b',"hash":"') + 64 + len(b'"}')


class Chain:
    """Follows the lines of one log.

    Attributes:
        is_broken: something is missing or was changed just before the line that was seen last.
    """

    def __init__(self) -> None:
        self._hash = ""
        self._sequence: int | None = None
        self._owner: tuple[object, ...] | None = None
        self._open: object = None
        self._unfinished: list[object] = []  # in this file
        self._torn: Line | None = None
        self._file: Path | None = None
        self.is_broken = False

    def torn(self, line: Line) -> None:
        """A line that is no record: only a session that begins after it explains it."""
        self._torn = line

    def see(self, line: Line, record: dict[str, Any], found: Found) -> None:
        """The next record."""
        if not self._goes_on(line, record):
            self._look_at(line, record, found)

    def _goes_on(self, line: Line, record: dict[str, Any]) -> bool:
        """Whether it follows as nearly every record does: inside of a session, and nothing is to be said of it."""
        if line.problem or self._torn is not None or self._file is None or record["event"] == _OPENED:
            return False
        number: int = record["sequence"]
        if number != (self._sequence or 0) + 1 or _OWNER_OF(record) != self._owner or not self._is_hashed(line.text):
            return False
        self.is_broken = False
        self._file, self._sequence, self._hash = line.file, number, record["hash"]
        self._pend(record)
        return True

    def _look_at(self, line: Line, record: dict[str, Any], found: Found) -> None:
        self.is_broken = False
        is_opened = record.get("event") == _OPENED
        is_told = is_opened and self._torn is not None and record.get("torn_bytes") == len(self._torn.text) > 0
        if self._torn is not None and not is_told:
            found.say(Kind.TORN, f"line {self._torn.number} before it is no record: {_shown(self._torn.text)}")
            self.is_broken = True
        torn, self._torn = self._torn, None
        sequence = record.get("sequence")
        if self._file is None and not is_opened:
            found.say(Kind.SESSION, "the log begins in the middle of a session")
        if self._sequence is None and is_opened and record.get("continues"):
            self._hash, self._sequence = str(_plain(record.get("last_hash"))), _number(sequence) - 1
        if sequence != (self._sequence or 0) + 1:
            self.is_broken = True
            found.say(Kind.SEQUENCE, self._misnumbered(sequence))
        if not self._is_hashed(line.text):
            self.is_broken = True
            found.say(
                Kind.CHAIN, "it does not follow from the line before it: one of them was changed, or one is missing"
            )
        owner = tuple(_plain(record.get(key)) for key in _OWNER)
        if self._owner not in (None, owner) and (not is_opened or record.get("continues")):
            found.say(Kind.SESSION, f"run, rank and model are {owner}, in the record before {self._owner}")
        self._owner = owner
        if is_opened:
            self._session(record, found)
            self._said(record, line.file, found, is_torn=torn is not None)
        self._file = line.file
        self._sequence, self._hash = _number(sequence), str(_plain(record.get("hash")))
        self._pend(record)

    def _misnumbered(self, sequence: object) -> str:
        expected = (self._sequence or 0) + 1
        what = "repeats a number" if _number(sequence) < expected else "leaves a gap"
        return f"record {_plain(sequence)} {what}: {expected} comes next"

    def _is_hashed(self, text: bytes) -> bool:
        hashed = sha256(b"%b%b}" % (self._hash.encode(), text[:-_TAIL_BYTES])).hexdigest()
        return text.endswith(b',"hash":"%b"}' % hashed.encode())

    def _session(self, record: dict[str, Any], found: Found) -> None:
        """What a session says of what went before it."""
        if record.get("last_hash") != self._hash:
            found.say(Kind.SESSION, "the session goes on from another hash than that of the record before it")
        told = record.get("unfinished")
        told = [one for one in told if isinstance(one, dict)] if isinstance(told, list) else []
        unfinished = [_plain(one.get("sequence")) for one in told]
        self._leave()
        if record.get("continues"):
            self._unfinished = []  # a session reads the file in use alone
        elif unfinished != self._unfinished:
            found.say(Kind.SESSION, f"the session says that records {unfinished} have no end, it is {self._unfinished}")
            self._unfinished = unfinished
        if self._sequence and not record.get("continues") and record.get("restart") is False:
            found.say(Kind.SESSION, "the session says that it is the first, and records stand before it")

    def _said(self, record: dict[str, Any], file: Path, found: Found, *, is_torn: bool) -> None:
        """What it says of the file before, and of what is torn."""
        continues = _plain(record.get("continues"))
        if self._file is None and not continues and not is_torn and record.get("restart"):
            found.say(Kind.SESSION, "the session says that others were before it, and it is the first")
        if record.get("torn_bytes") and not is_torn and not (self._file is None and continues):
            found.say(Kind.SESSION, "the session says that the line before it is torn, and there is none")
        before = None if self._file is None else self._file.name.removesuffix(GZIP)
        if continues and (self._file == file or before not in (None, continues) or record.get("sequence") == 1):
            found.say(Kind.SESSION, f"the file says that it follows {continues}, it stands after {before}")

    def _pend(self, record: dict[str, Any]) -> None:
        event = _plain(record.get("event"))
        if event == "lifecycle.began":
            self._leave()
            self._open = _plain(record.get("sequence"))
        elif event in _CLOSES:
            self._open = None

    def _leave(self) -> None:
        """What is open gets no end any more."""
        if self._open is not None:
            self._unfinished.append(self._open)
            self._open = None


def _plain(value: object) -> object:
    """What stands where a text or a number belongs; of anything else, which may be as deep as it likes, its kind."""
    return value if value is None or isinstance(value, str | int | float) else f"a {type(value).__name__}"


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _shown(text: bytes) -> str:
    return repr(text[:60].decode(errors="replace"))
