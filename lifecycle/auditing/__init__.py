"""Audits of logs: every record replayed through the same pure machine, and what does not follow from it reported."""

from __future__ import annotations

from lifecycle.auditing.audit import audit_logs
from lifecycle.auditing.kinds import Audited, Kind, Violation

__all__ = ["Audited", "Kind", "Violation", "audit_logs"]
