"""The audit log: JSON Lines, chained by hashes, one file a rank."""

from __future__ import annotations

from lifecycle.audit.log import AuditLog, MemoryAudit

__all__ = ["AuditLog", "MemoryAudit"]
