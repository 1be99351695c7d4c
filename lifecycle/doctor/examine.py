"""All looks at once, each within its time, and none of them able to end the report.

Nothing of this package imports another package before it is looked at: the broken one may be torch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final

from lifecycle.doctor import judge, look
from lifecycle.doctor.judge_engine import CHECK as ENGINE
from lifecycle.doctor.judge_engine import engine_line
from lifecycle.doctor.lines import Line, Status
from lifecycle.memory.environment import sets_expandable_segments
from lifecycle.redaction import redact

PACKAGES: Final = "packages"
"""What stands for all packages, if they cannot be looked at."""

LOOK_S: Final = 480.0
"""A look that has not come to an end by then is given up."""

Look = Callable[[], list[Line]]


@dataclass(frozen=True, slots=True)
class Asked:
    """What is looked at besides what always is.

    Attributes:
        engine_url: of an engine; it may hold credentials, which are in no line.
        token: the engine's bearer token.
        disk_dir: a directory for disk backups and base files.
        audit_dir: a directory for audit logs.
    """

    engine_url: str | None = None
    token: str | None = None
    disk_dir: str | None = None
    audit_dir: str | None = None


def examine(asked: Asked, *, within_s: float = LOOK_S) -> list[Line]:
    """Look at everything, and judge it.

    Args:
        asked: what to look at besides.
        within_s: when what has not answered is given up.

    Returns:
        Lines in a fixed order. A look that failed or did not end is a line that says so.
    """
    return run(looks(asked), within_s)


def looks(asked: Asked) -> dict[str, Look]:
    """Every look, by the check that stands for it if it fails."""
    found: dict[str, Look] = {
        "cuda": lambda: [judge.cuda_line(look.cuda())],
        "torch_memory_saver/hook": lambda: [judge.hook_line(look.hook())],
        "expandable_segments": _segments,
        "host_memory": lambda: judge.memory_lines(look.memory()),
        "shared_memory": lambda: [judge.shared_memory_line(look.room(look.SHARED_MEMORY))],
        "gloo": lambda: [judge.gloo_line(look.gloo())],
    }
    url, disk_dir, audit_dir = asked.engine_url, asked.disk_dir, asked.audit_dir
    if disk_dir is not None:
        found["disk_dir"] = lambda: [judge.disk_line(look.room(disk_dir))]
    if audit_dir is not None:
        found["audit_dir"] = lambda: [judge.audit_line(look.audit_folder(audit_dir))]
    if url is not None:
        found[ENGINE] = lambda: _engine(url, asked.token)
    return found | {PACKAGES: _packages}


def _segments() -> list[Line]:
    return [judge.segments_line(sets_expandable_segments(), has_saver=look.hook_is_installed())]


def _packages() -> list[Line]:
    return [judge.package_line(one) for one in look.packages(look.requirements())]


def _engine(url: str, token: str | None) -> list[Line]:
    from lifecycle.doctor.look_engine import engine  # noqa: PLC0415 - brings torch, which may be what is broken

    return [engine_line(engine(url, token))]


def run(found: Mapping[str, Look], within_s: float) -> list[Line]:
    """Run looks side by side. Threads that hang are left behind; they do not keep the process alive."""
    answers: SimpleQueue[tuple[str, list[Line]]] = SimpleQueue()

    def see(check: str, one: Look) -> None:
        try:
            lines = one()
        except BaseException as error:  # noqa: BLE001 - a report is made whatever is broken
            lines = [_failed(check, error)]
        answers.put((check, lines))

    for check, one in found.items():
        Thread(target=see, args=(check, one), daemon=True, name=f"doctor {check}").start()
    told: dict[str, list[Line]] = {}
    deadline = time.monotonic() + within_s
    while len(told) < len(found):
        try:
            check, lines = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            break
        told[check] = lines
    return [line for check in found for line in told.get(check) or [_late(check, within_s)]]


def _failed(check: str, error: BaseException) -> Line:
    why = redact(f"it could not be looked at: {type(error).__name__}: {error}")
    return Line(check, Status.BROKEN, why, "mend what the error names")


def _late(check: str, within_s: float) -> Line:
    why = f"no answer within {within_s:g} s"
    return Line(check, Status.BROKEN, why, "something hangs: a file system that does not answer, or a busy machine")
