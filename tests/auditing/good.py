"""``python -m tests.auditing.good [RUNS]``: audits of so many random runs (1,000), which are to find nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from lifecycle.auditing import Audited, Violation, audit_logs
from tests.auditing.runs import Run


def audit_run(seed: int, folder: Path, audited: Audited) -> list[Violation] | None:
    """What an audit finds in the log of one random run; None where the log itself lost records."""
    run = Run(seed, folder)
    path = run.live()
    return None if run.lost_records else list(audit_logs([path], audited))


def main(runs: int) -> int:
    """Audit, and print what was found. How many runs had a finding."""
    audited, found, bad, seed = Audited(), list[Violation](), 0, 0
    while runs:
        with TemporaryDirectory() as folder:
            violations = audit_run(seed, Path(folder), audited)
        if violations is not None:
            runs -= 1
            bad += bool(violations)
            found += violations
        for one in violations or ():
            print(f"seed {seed}: {one}", flush=True)
        seed += 1
    print(f"{seed} runs, {audited.records} records, {bad} with a finding, {len(found)} violations")
    return bad


if __name__ == "__main__":
    sys.exit(min(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000), 1))
