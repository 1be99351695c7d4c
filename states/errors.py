"""What every error can do, and errors of the definition: ``TableError`` means that the table itself is wrong."""

from __future__ import annotations

from collections.abc import Callable


class Portable(Exception):
    """An error that survives ``pickle`` and ``copy`` with all its attributes, and so crosses to another process."""

    def __reduce__(self) -> tuple[Callable[..., BaseException], tuple[object, ...]]:
        # An exception is built anew from its ``args``, the message, which is not what its constructor takes.
        return _built_anew, (type(self), self.args, self.__dict__)


def _built_anew(kind: type[BaseException], args: tuple[object, ...], attributes: dict[str, object]) -> BaseException:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class TableError(Portable):
    """The transition table breaks one of its own rules.

    Attributes:
        row: the row, or the state or event, that breaks it.
        why: which rule.
    """

    def __init__(self, row: str, why: str) -> None:
        super().__init__(f"{row}: {why}")
        self.row = row
        self.why = why
