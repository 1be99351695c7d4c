"""All looks together: in order, within their time, and whatever one of them does."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from threading import Event
from threading import enumerate as enumerate_threads

import pytest

from lifecycle.doctor import Asked, Line, Status
from lifecycle.doctor.examine import looks, run


def _line(check: str) -> Line:
    return Line(check, Status.OK, "found")


def test_lines_come_in_the_order_of_the_looks() -> None:
    """Not in that of their ends; a look may have several."""
    first_may_end = Event()

    def first() -> list[Line]:
        assert first_may_end.wait(30)
        return [_line("a"), _line("a/b")]

    def second() -> list[Line]:
        first_may_end.set()
        return [_line("c")]

    assert [line.check for line in run({"a": first, "c": second}, 60)] == ["a", "a/b", "c"]


def test_a_look_that_fails_is_a_line() -> None:
    """Also one that tries to end the process; secrets are left out."""

    def fails() -> list[Line]:
        raise OSError("http://user:hunter2@host/ is gone")

    def ends() -> list[Line]:
        raise SystemExit(3)

    failed, ended, well = run({"a": fails, "b": ends, "c": lambda: [_line("c")]}, 60)

    assert failed == Line("a", Status.BROKEN, failed.found, "mend what the error names")
    assert failed.found == "it could not be looked at: OSError: http://[redacted]@host/ is gone"
    assert ended.found == "it could not be looked at: SystemExit: 3"
    assert well.status is Status.OK


def test_a_look_that_hangs_is_given_up() -> None:
    """The others are told, and nobody waits for it."""
    never = Event()

    def hangs() -> list[Line]:
        never.wait()
        return []

    late, well = run({"a": hangs, "b": lambda: [_line("b")]}, 0.5)
    (left,) = [one for one in enumerate_threads() if one.name == "doctor a"]
    never.set()

    assert left.daemon  # or the process would not end

    assert (late.check, late.status, late.found) == ("a", Status.BROKEN, "no answer within 0.5 s")
    assert late.todo
    assert well == _line("b")


def test_what_is_named_is_looked_at_besides(tmp_path: Path) -> None:
    """A directory or an engine that nobody named is not."""
    always = set(looks(Asked()))
    named = Asked("http://127.0.0.1:1", None, str(tmp_path), str(tmp_path))

    assert {"cuda", "torch_memory_saver/hook", "expandable_segments", "gloo", "packages"} <= always
    assert set(looks(named)) - always == {"engine", "disk_dir", "audit_dir"}


def test_the_page_lists_every_check(tmp_path: Path) -> None:
    """By its name."""
    page = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text(encoding="utf-8")
    named = looks(Asked("http://127.0.0.1:1", None, str(tmp_path), str(tmp_path)))

    assert [check for check in named if f"| `{check}` |" not in page] == ["packages"]
    assert "| each package |" in page


def test_a_library_that_is_not_installed_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was copied beside the program, say."""

    def missing(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", missing)
    (line,) = run({"packages": looks(Asked())["packages"]}, 60)

    assert line.status is Status.BROKEN
    assert "PackageNotFoundError" in line.found


def test_the_quick_looks_find_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that start no process, in the real surroundings."""
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    found = looks(Asked(disk_dir=str(tmp_path), audit_dir=str(tmp_path / "logs")))
    quick = ("expandable_segments", "host_memory", "shared_memory", "disk_dir", "audit_dir")

    lines = {line.check: line for line in run({name: found[name] for name in quick}, 60)}

    assert lines["expandable_segments"].status is Status.BROKEN
    assert set(lines) == {*quick, "pinned_memory"}
    assert "could not be looked at" not in str(lines)
