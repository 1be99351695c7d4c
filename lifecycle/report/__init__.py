"""What a run was, of its audit logs: one page to read, a trace for Perfetto, tables as CSV.

Logs are read once, line by line, and are not trusted: what is no record is counted and left out.
"""

from __future__ import annotations

from lifecycle.report.errors import ReportError
from lifecycle.report.judgement import Finding, Level, findings
from lifecycle.report.model import Lane, Outcome, Transition
from lifecycle.report.summary import Report
from lifecycle.report.write import Outputs, write_report

__all__ = [
    "Finding", "Lane", "Level", "Outcome", "Outputs", "Report", "ReportError", "Transition", "findings", "write_report",
]  # fmt: skip
