"""Files that are no good logs, or none at all: a clean answer and the right exit code, whatever is in them."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner

from lifecycle.audit.chain import chain_hash
from lifecycle.audit.plain import compact_json
from lifecycle.auditing import Audited, Kind, audit_logs, one_log
from lifecycle.cli.app import app
from tests.auditing.logs import good_log, records_of, write_chained

COMMAND: Final = [sys.executable, "-c", "from lifecycle.cli.app import main; main()", "audit"]
DEEP: Final = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
Spoil = Callable[[bytes], bytes]


def line_6(line: bytes) -> Spoil:
    """The log with another line 6."""

    def spoil(log: bytes) -> bytes:
        lines = log.splitlines(keepends=True)
        return b"".join((*lines[:5], line, *lines[6:]))

    return spoil


def instead(old: bytes, new: bytes, count: int = 1) -> Spoil:
    """The log with other bytes."""
    return lambda log: log.replace(old, new, count)


DAMAGED: Final[dict[str, tuple[Kind, Spoil]]] = {
    "nothing": (Kind.SESSION, lambda _: b""),
    "only an end of a line": (Kind.TORN, lambda _: b"\n"),
    "zeros": (Kind.SESSION, lambda _: b"\0" * 4096),
    "words": (Kind.TORN, lambda _: b"hello\nworld\n"),
    "lists": (Kind.TORN, lambda _: b"[1]\n[2]\n"),
    "nulls": (Kind.TORN, lambda _: b"null\nnull\n"),
    "numbers": (Kind.TORN, lambda _: b"1\n2\n"),
    "other records": (Kind.SESSION, lambda _: b'{"a":1}\n{"event":"x"}\n'),
    "an empty first line": (Kind.TORN, lambda log: b"\n" + log),
    "an empty line": (Kind.TORN, line_6(b"\n")),
    "an end too many": (Kind.TORN, lambda log: log + b"\n"),
    "a byte order mark": (Kind.TORN, lambda log: b"\xef\xbb\xbf" + log),
    "UTF-16": (Kind.TORN, lambda log: log.decode().encode("utf-16")),
    "ends of lines of Windows": (Kind.CHAIN, lambda log: log.replace(b"\n", b"\r\n")),
    "zeros in a line": (Kind.TORN, instead(b"lifecycle", b"life\0cycle", 3)),
    "bytes that are no text": (Kind.TORN, instead(b'"run":"good"', b'"run":"\xff\xfe"')),
    "half a surrogate": (Kind.TORN, instead(b'"run":"good"', b'"run":"\\ud800"')),
    "a line of 10 MB": (Kind.TORN, line_6(b"x" * 10_000_000 + b"\n")),
    "a record of 10 MB": (Kind.SEQUENCE, line_6(b'{"a":"' + b"x" * 10_000_000 + b'"}\n')),
    "brackets without end": (Kind.TORN, line_6(b"[" * 100_000 + b"]" * 100_000 + b"\n")),
    "facts without end": (Kind.TORN, instead(b'"facts":', b'"x":%s,"facts":' % DEEP)),
    "a number of 5,000 digits": (Kind.TORN, instead(b'"transition":3,', b'"transition":' + b"1" * 5_000 + b",")),
    "a number above all": (Kind.SEQUENCE, instead(b'"sequence":7,', b'"sequence":9223372036854775809,')),
    "a number with an exponent": (Kind.TORN, instead(b'"transition":3,', b'"transition":1e999,')),
    "a number that is a word": (Kind.SEQUENCE, instead(b'"sequence":7,', b'"sequence":true,')),
    "no number": (Kind.TORN, instead(b'"duration_s":', b'"x":NaN,"duration_s":')),
    "infinity": (Kind.TORN, instead(b'"bytes":{"device":23040', b'"bytes":{"device":Infinity')),
    "no list of what is unfinished": (Kind.CHAIN, instead(b'"unfinished":[]', b'"unfinished":null')),
    "a key that stands twice": (Kind.CHAIN, instead(b'"edge":"opens"', b'"edge":"opens","edge":"commits"')),
}  # fmt: skip
"""What was done to a good log, and the kind that is named first."""


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A good log."""
    return good_log(tmp_path_factory.mktemp("good") / "audit.jsonl")


def audited(*logs: Path | str) -> tuple[int, list[dict[str, object]]]:
    """Exit code, and the violations that ``--json`` tells."""
    done = CliRunner().invoke(app, ["audit", "--json", *map(str, logs)])
    assert done.exception is None or isinstance(done.exception, SystemExit)
    told = json.loads(done.stdout)
    assert set(told) == {"records", "violations"}
    assert all(set(one) == {"kind", "file", "line", "message"} for one in told["violations"])
    assert all(len(str(one["message"])) < 1_000 for one in told["violations"])
    return done.exit_code, told["violations"]


@pytest.mark.parametrize("name", DAMAGED)
def test_whatever_is_in_a_file_is_a_violation_and_nothing_worse(name: str, good: Path, tmp_path: Path) -> None:
    """Of a kind that says what it is, at its line."""
    kind, spoil = DAMAGED[name]
    path = tmp_path / "audit.jsonl"
    path.write_bytes(spoil(good.read_bytes()))
    assert path.read_bytes() != good.read_bytes()

    code, found = audited(path)

    assert (code, found[0]["kind"]) == (1, kind.value), found[:2]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"transport":0', b'"transport":"none"'),
        (b'"facts":{', b'"facts":5,"x":{'),
        (b'"details":{', b'"details":"","x":{'),
        (b'"details":{', b'"details":[],"x":{'),
    ],
)
def test_whatever_is_in_a_log_of_version_1_is_a_violation_and_nothing_worse(
    old: bytes, new: bytes, tmp_path: Path
) -> None:
    """Its records may hold anything."""
    log = (Path(__file__).parents[1] / "audit" / "version_1.jsonl").read_bytes()
    path = tmp_path / "audit.jsonl"
    path.write_bytes(log.replace(old, new))
    assert path.read_bytes() != log

    code, found = audited(path)

    assert code == 1
    assert Kind.MALFORMED.value in {one["kind"] for one in found}


DEEP_RUN: Final = b"[" * 992 + b"]" * 992
"""As deep as a line may be."""


@pytest.mark.parametrize("event", [b"[]", b"{}", b"1", b"null", b'"lifecycle.opened"'])
@pytest.mark.parametrize("run", [b'"r"', b"{}", DEEP_RUN])
def test_lines_that_hold_anything_are_no_records_and_nothing_worse(event: bytes, run: bytes, tmp_path: Path) -> None:
    """Alone, after another one, and beside another log that begins with the same."""
    line = b'{"event":%b,"sequence":%b,"run":%b,"rank":%b,"continues":%b,"unfinished":%b}\n' % (event, *[run] * 5)
    logs = [tmp_path / "audit-0.jsonl", tmp_path / "audit-1.jsonl"]
    for log in logs:
        log.write_bytes(b'{"event":"lifecycle.opened","sequence":1,"run":"r"}\n' + line + line)

    for some in (logs[:1], logs):
        code, found = audited(*some)
        assert code == 1
        assert {one["kind"] for one in found} >= {Kind.MALFORMED.value}


def test_zeros_at_the_end_are_a_line_that_was_cut_off(good: Path, tmp_path: Path) -> None:
    """A file system leaves them after a crash; everything before them was read."""
    path = tmp_path / "audit.jsonl"
    path.write_bytes(good.read_bytes() + b"\0" * 300)

    assert audited(path) == (0, [])


@pytest.mark.parametrize("how", ["a part", "no gzip"])
def test_a_compressed_file_that_cannot_be_read_ends_with_2(how: str, good: Path, tmp_path: Path) -> None:
    """It is not the log that is wrong, it is not there."""
    path = tmp_path / "audit.jsonl.1.gz"
    path.write_bytes(gzip.compress(good.read_bytes())[:-200] if how == "a part" else good.read_bytes())

    done = CliRunner().invoke(app, ["audit", str(path)])

    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: audit log {path}: it cannot be read: ")


@pytest.mark.parametrize("name", ["", "nowhere"])
def test_what_is_no_file_ends_with_2(name: str, tmp_path: Path) -> None:
    """A directory, or nothing."""
    done = CliRunner().invoke(app, ["audit", str(tmp_path / name)])

    assert done.exit_code == 2
    assert done.stderr.startswith("error: audit log ")


def test_a_pipe_is_read_as_a_file_is(good: Path, tmp_path: Path) -> None:
    """``audit <(zcat LOG)``; once, from its beginning to its end."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["/bin/sh", "-c", f"cat {good} > {pipe}"]) as writer:
        assert audited(pipe) == (0, [])
    assert writer.returncode == 0


def test_the_same_log_twice_is_no_log_of_two_ranks(good: Path, tmp_path: Path) -> None:
    """Also under another name: nothing was compared."""
    other = tmp_path / "link.jsonl"
    other.hardlink_to(good)

    for second in (good, other):
        code, found = audited(good, second)
        assert (code, [(one["kind"], one["line"]) for one in found]) == (1, [("ranks", 1)])


def test_logs_of_different_runs_part(good: Path, tmp_path: Path) -> None:
    """At the first record that is not the same."""
    records = records_of(good_log(tmp_path / "another.jsonl"))

    code, found = audited(good, write_chained(tmp_path / "audit.jsonl", [{**one, "rank": 1} for one in records]))

    assert (code, [one["kind"] for one in found]) == (1, ["ranks"])


def test_what_a_log_says_does_nothing_to_a_terminal(good: Path, tmp_path: Path) -> None:
    """Control characters are shown, not sent."""
    records = [{**one, "edge": "\x1b[31mred\x07"} if "edge" in one else one for one in records_of(good)]

    done = CliRunner().invoke(app, ["audit", str(write_chained(tmp_path / "audit\x1b[2J.jsonl", records))])

    assert done.exit_code == 1
    assert done.stdout.replace("\n", "").isprintable()
    assert r"\x1b[31mred\x07" in done.stdout


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_output_that_cannot_be_written_ends_with_2(options: list[str], good: Path) -> None:
    """And says so; a violation it is not."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*COMMAND, *options, str(good)], stdout=full, stderr=subprocess.PIPE, check=False)

    assert done.returncode == 2
    assert done.stderr.decode() == "error: [Errno 28] No space left on device\n"


def test_a_record_of_version_1_that_lacks_a_key_is_no_record(tmp_path: Path) -> None:
    """In the middle and as the last one; no check keeps of it what it does not have."""
    lines = (Path(__file__).parents[1] / "audit" / "version_1.jsonl").read_bytes().splitlines()
    path, previous, chained = tmp_path / "audit.jsonl", "", list[bytes]()
    for at, line in enumerate(lines):
        record = json.loads(line)
        for key in record:
            if key in {"sequence", "hash", "event"}:
                continue
            without = {name: one for name, one in record.items() if name not in {key, "hash"}}
            changed = compact_json({**without, "hash": chain_hash(previous, without)}).encode()
            for after in ([], lines[at + 1 :]):
                path.write_bytes(b"".join(one + b"\n" for one in (*chained, changed, *after)))
                for one in audit_logs([path]):
                    assert one.kind is not Kind.UNFINISHED or one.line > at, (at, key, one)
        chained.append(line)
        previous = record["hash"]


def test_a_line_that_is_being_written_is_cut_off_whatever_becomes_of_it(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer ends it while what stands before it is looked at: what was read of it counts."""
    log, text = tmp_path / "audit.jsonl", good.read_bytes()
    log.write_bytes(text[:-40])
    show = one_log._show

    def meanwhile(check: object, records: object) -> None:
        log.write_bytes(text)
        show(check, records)  # type: ignore[arg-type]  # as they were handed over

    monkeypatch.setattr(one_log, "_show", meanwhile)
    monkeypatch.setattr(one_log, "LINES_MIN", 1_000)
    audited_then = Audited()

    found = list(audit_logs([log], audited_then))

    assert Kind.TORN not in {one.kind for one in found}
    assert audited_then.cut_off == {str(log): len(text.splitlines())}


def test_the_last_line_of_a_compressed_file_is_torn_where_it_was_written_to_its_end(good: Path, tmp_path: Path) -> None:
    """As that of any other file."""
    path = tmp_path / "audit.jsonl.1.gz"
    path.write_bytes(gzip.compress(good.read_bytes() + b"hello\n"))

    _, found = audited(path)

    assert [one["kind"] for one in found] == [Kind.TORN.value]
