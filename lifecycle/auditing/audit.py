"""The audit of one log, or of one a rank: every check at every record, and the ranks against each other."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from lifecycle.auditing.kinds import Audited, Kind, Violation
from lifecycle.auditing.one_log import LogAudit
from lifecycle.auditing.ranks import compare


def audit_logs(paths: Sequence[str | os.PathLike[str]], audited: Audited | None = None) -> Iterator[Violation]:
    """Replay logs and give the violations of some records at a time, in the order of the records.

    Holds up to 128 records, and at least 16 of each log.

    Args:
        paths: one log, or the logs of one run, one a rank. What was put aside of a log is read before it.
        audited: counts what was read.

    Raises:
        AuditError: a log cannot be read, or is of another format.
    """
    seen = audited if audited is not None else Audited()
    audits = [LogAudit(path, seen, logs=len(paths)) for path in paths]
    if len(audits) == 1:
        for found in audits[0].run():
            if isinstance(found, Violation):
                yield found
        return
    yield from compare([one.run() for one in audits])
    seen_before: dict[tuple[object, ...], str] = {}
    for one in audits:
        if one.first is not None and one.first.record is not None and not one.first.problem:
            owner = tuple(one.first.record.get(key) for key in ("run", "rank", "model"))
            if owner in seen_before:
                line, told = one.first, f"it is of the same rank as {seen_before[owner]}"
                yield Violation(Kind.RANKS, str(line.file), line.number, told)
            seen_before[owner] = str(one.first.file)
