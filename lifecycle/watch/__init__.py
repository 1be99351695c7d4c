"""Watching a run: its logs are followed as they are written, and shown in a terminal.

Following (:mod:`~lifecycle.watch.follow`) gives lines, a rank (:mod:`~lifecycle.watch.rank`) makes the picture of them,
and drawing (:mod:`~lifecycle.watch.draw`) knows the picture alone. Logs are not trusted.
"""

from __future__ import annotations

from lifecycle.watch.attention import Notice, notices
from lifecycle.watch.picture import Picture, RankSeen
from lifecycle.watch.run import RunWatch

__all__ = ["Notice", "Picture", "RankSeen", "RunWatch", "notices"]
