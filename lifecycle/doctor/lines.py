"""The lines of a report, and which of them count against the exit code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """How one thing stands."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"
    BROKEN = "broken"


USABLE = (Status.OK, Status.WARNING)


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that was looked at.

    Attributes:
        check: what; ``a/b`` belongs to ``a``.
        status: how it stands. ``missing`` is not there and may not be needed; ``broken`` is there and does not work.
        found: what was found.
        todo: what to do about it, empty where nothing has to be done.
    """

    check: str
    status: Status
    found: str
    todo: str = ""

    def told(self) -> dict[str, str]:
        """The line as JSON has it."""
        return {"check": self.check, "status": self.status.value, "found": self.found, "todo": self.todo}


def wanting(lines: Sequence[Line], required: Iterable[str]) -> tuple[Line, ...]:
    """The lines that are required and cannot be used.

    Args:
        lines: of the report.
        required: names of checks; each stands for everything below it too.

    Raises:
        ConfigError: there is no such check in the report.
    """
    names = tuple(required)
    known = {line.check for line in lines} | {line.check.split("/")[0] for line in lines}
    unknown = [name for name in names if name not in known]
    if unknown:
        from lifecycle.errors import ConfigError  # noqa: PLC0415 - brings packages that may be what is broken

        told = ", ".join(sorted(known))
        raise ConfigError(f"there is no check {', '.join(map(repr, unknown))}; the checks are: {told}")
    return tuple(line for line in lines if line.status not in USABLE and any(_is_below(line, one) for one in names))


def _is_below(line: Line, name: str) -> bool:
    return line.check == name or line.check.startswith(f"{name}/")
