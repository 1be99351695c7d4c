"""What keeps a report from being written."""

from __future__ import annotations

from lifecycle.errors import LifecycleError


class ReportError(LifecycleError):
    """A report cannot be written. Files that were there before are as they were.

    Attributes:
        path: the file or folder.
    """

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"report {path}: {why}")
        self.path = path
