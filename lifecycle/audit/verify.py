"""Numbers and hashes of a log that was read: whether it is whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lifecycle.audit.chain import OPENED, chain_hash
from lifecycle.audit.read import Records


def verify_chain(records: Sequence[Mapping[str, object]]) -> list[str]:
    """What is wrong with the numbers and hashes of a log, in words; nothing when it is whole.

    Args:
        records: the whole log in order, as :func:`read_log` gives it. Torn lines that
            :func:`read_log` found are wrong too, unless a new session reported one at that place.
            Where the files before were removed, it begins with the record that names the last hash in them.
    """
    problems: list[str] = []
    previous, expected = _beginning(records)
    for record in records:
        sequence = record.get("sequence")
        if sequence != expected:
            problems.append(f"record {expected} is missing or out of order: {sequence} stands in its place")
        if record.get("hash") != chain_hash(previous, record):
            problems.append(f"record {sequence} does not follow from the one before it: one of them was changed")
        previous, expected = str(record.get("hash")), _number(sequence, expected) + 1
    return problems + _unexplained(records)


def _beginning(records: Sequence[Mapping[str, object]]) -> tuple[str, int]:
    """The hash that the first record follows, and its number."""
    first = records[0] if records else {}
    if first.get("event") == OPENED and first.get("continues"):
        return str(first.get("last_hash")), _number(first.get("sequence"), 1)
    return "", 1


def _number(sequence: object, otherwise: int) -> int:
    return sequence if isinstance(sequence, int) else otherwise


def _unexplained(records: Sequence[Mapping[str, object]]) -> list[str]:
    torn = records.torn if isinstance(records, Records) else []
    reported = [
        record["torn_bytes"] for record in records if record.get("event") == OPENED and record.get("torn_bytes")
    ]
    left = [one for one in torn if one.size_bytes not in reported]
    return [f"line {one.line} is torn ({one.size_bytes} bytes: {one.text}...)" for one in left]
