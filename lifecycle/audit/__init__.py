"""The audit log: JSON Lines, chained by hashes, one log a rank, in one file or put aside in several."""

from __future__ import annotations

from lifecycle.audit.facts import facts_of
from lifecycle.audit.log import AuditLog, MemoryAudit
from lifecycle.audit.read import log_files, read_lines, read_log
from lifecycle.audit.verify import verify_chain

__all__ = ["AuditLog", "MemoryAudit", "facts_of", "log_files", "read_lines", "read_log", "verify_chain"]
