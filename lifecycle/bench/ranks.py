"""Measuring processes as the bench drives them: started fresh, asked one thing at a time, ended together."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Self

from lifecycle.bench.options import Case
from lifecycle.children import child_environment
from lifecycle.errors import LifecycleError

_END_S: Final = 5
_TOLD: Final = 400
_KILLED: Final = -9


class Rank:
    """One measuring process. Use it as a context manager.

    Args:
        be: ``trainer``, or the name of a probe.
        case: what it measures.
        folder: for its base file and logs.
        rank: its number.
        repetitions: of a probe.

    Attributes:
        first: its first answer: sizes of a trainer, figures of a probe.

    Raises:
        LifecycleError: it ended, or answers with an error.
    """

    def __init__(self, be: str, case: Case, folder: Path, *, rank: int = 0, repetitions: int = 1) -> None:
        self._what = f"{case.name} rank {rank}" if be == "trainer" else be
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "lifecycle.bench.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=child_environment(),
        )
        said = {"be": be, "case": asdict(case), "folder": str(folder), "rank": rank, "repetitions": repetitions}
        try:
            self.first: dict[str, Any] = self._ask(said)
        except BaseException:
            self.close()
            raise

    def do(self, what: str) -> dict[str, Any]:
        """Let a trainer take one event, or tell its ``memory``."""
        return self._ask({"do": what})

    def close(self) -> None:
        """End the process and wait for it."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, said: Mapping[str, object]) -> dict[str, Any]:
        assert self._process.stdin is not None  # both are pipes
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(said).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._ended() from error
        text = self._process.stdout.readline()
        if not text:
            raise self._ended()
        answer: dict[str, Any] = json.loads(text)
        if "error" in answer:
            raise LifecycleError(f"the measuring process of {self._what} failed: {answer['error']}")
        found: dict[str, Any] = answer["ok"]
        return found

    def _ended(self) -> LifecycleError:
        code = self._process.wait()
        self._errors.seek(0)
        why = self._errors.read().decode(errors="replace").strip()[-_TOLD:] or "it said nothing"
        how = f"by signal {-code}" if code < 0 else f"with code {code}"
        hint = "; memory may have run out, try a smaller --base-mib" if code == _KILLED else ""
        return LifecycleError(f"the measuring process of {self._what} ended {how}: {why}{hint}")


@contextmanager
def ranks_of(case: Case, work_dir: Path | None) -> Iterator[list[Rank]]:
    """All ranks of a case in fresh processes, with a new folder of base files that they share."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(new_folder(work_dir)))
        yield [stack.enter_context(Rank("trainer", case, folder, rank=rank)) for rank in range(case.ranks)]


@contextmanager
def new_folder(work_dir: Path | None) -> Iterator[Path]:
    """A folder that is removed with all that is in it."""
    with tempfile.TemporaryDirectory(prefix="lifecycle-bench-", dir=work_dir) as folder:
        yield Path(folder)
