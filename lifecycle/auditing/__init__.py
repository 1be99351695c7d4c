"""Audits of logs: every record replayed through the same pure machine, and what does not follow from it reported."""

from __future__ import annotations

from lifecycle.auditing.audit import Audited, audit_logs
from lifecycle.auditing.kinds import Kind, Violation

__all__ = ["Audited", "Kind", "Violation", "audit_logs"]
