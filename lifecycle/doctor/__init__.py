"""What is installed and usable here, and what to do about the rest: looked at, then judged by pure functions."""

from __future__ import annotations

from lifecycle.doctor.examine import Asked, examine
from lifecycle.doctor.lines import Line, Status

__all__ = ["Asked", "Line", "Status", "examine"]
