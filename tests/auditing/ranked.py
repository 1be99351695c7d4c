"""Random runs of four real ranks, each with a log: events refused or failed on one, one lost and another joining."""

from __future__ import annotations

import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lifecycle.audit import AuditLog
from lifecycle.auditing import Audited, Violation, audit_logs
from lifecycle.distributed import RankAgreement
from states import ACTOR, Strategy, Verify
from tests.distributed.joiners import Joiner
from tests.distributed.ranks import WORLD, Ranks, Told
from tests.lifecycle.world import FakeEngine

ALL = range(WORLD)
PATIENCE_S = 8.0
EFFECTS = ("pause-weights", "resume-weights", "write-adapters", "clear-caches", "commit-versions", "open-step")
OPERATIONS = ("pause", "resume")


class Recorded(Joiner):
    """A rank whose records go into a file."""

    def __init__(self, rank: int, store: str) -> None:
        self.rank, self.held = rank, None
        self.agreement = RankAgreement.over_gloo(rank, WORLD, store, timeout_s=PATIENCE_S)

    def open(self, path: str, **settings: Any) -> str:
        """A trainer, new or joining, with a log at this path. Returns its state."""
        self.path = path
        self.engines = [FakeEngine()]
        return self.build(**settings)

    def new_audit(self) -> Any:
        """The log."""
        self.log = AuditLog(self.path, run="ranked", rank=self.rank, max_bytes=30_000, compress=True)
        return self.log

    def close(self) -> None:
        """Nothing is written any more."""
        self.log.close()

    def push(self) -> None:
        """To an engine of its own."""
        self.world.trainer.update_weights(self.engines)

    def restart(self) -> None:
        """Its engine holds nothing."""
        self.engines[0].restart()

    def let_go(self) -> None:
        """Nothing is read any more, no fault comes any more."""
        self.faults = {}
        self.unhook()
        if self.held is not None:
            self.held.close()
            self.held = None


class RankedRun:
    """One run: what all ranks are asked, and what goes wrong on one of them."""

    def __init__(self, seed: int, folder: Path, ranks: Ranks) -> None:
        self.draw = random.Random(seed)  # noqa: S311 - a test
        self.ranks, self.folder = ranks, folder
        self.accumulates = self.has_lost = False
        self.paths = {rank: folder / f"audit-{rank}.jsonl" for rank in ALL}
        self.settings: dict[str, Any] = {
            "strategy": self.draw.choice(list(Strategy)).value,
            "verify": self.draw.choice(list(Verify)).value,
            "with_ref": True,
            "full": self.draw.random() < 0.3,
        }

    def live(self, calls: int = 20) -> list[Path]:
        """So many calls. The logs."""
        told = {rank: {"path": str(self.paths[rank])} for rank in ALL}
        assert self.ranks.all("open", but=told, **self.settings) == dict.fromkeys(ALL, "awake")
        self.ranks.all("send", "reconcile_adapters")
        for _ in range(calls):
            self.draw.choice(self.calls())()
            self.ranks.all("let_go")
            if "faulted" in self.ranks.all("state").values():
                self.ranks.all("send", "recover")
        self.ranks.all("send", "wake_up")
        self.ranks.all("close")
        return list(self.paths.values())

    def calls(self) -> list[Callable[[], object]]:
        """What may be asked."""
        events = [lambda event=event: self.ranks.all("send", event) for event in ("sleep", "offload", "wake_up")]
        trains = [lambda: self.ranks.all("train", "A"), lambda: self.ranks.all("train", "A", "B")]
        models = [lambda: self.ranks.all("keep", "ref"), self.accumulate, self.switch]
        pushes = [lambda: self.ranks.all("push"), lambda: self.ranks.one(self.draw.choice(ALL), "restart")]
        return [*events, *trains, *models, *pushes, self.register, self.refuse, self.refuse, self.fail, self.fail,
                self.turn, self.turn, self.lose]  # fmt: skip

    def turn(self) -> None:
        """To sleep and offloaded, or back."""
        self.ranks.all("send", *self.draw.choice([("sleep", "offload"), ("wake_up",)]))

    def accumulate(self) -> None:
        """Gradients are added to; whoever joins could not be given them."""
        self.ranks.all("accumulate")
        self.accumulates = True

    def switch(self) -> None:
        """Another model."""
        self.ranks.all("switch", self.draw.choice([ACTOR, ACTOR, "ref"]))

    def register(self) -> None:
        """An adapter comes or goes; on one rank its file may be bad."""
        bad = self.draw.choice([None, self.draw.choice(ALL)])
        if self.draw.random() < 0.7:
            self.ranks.all("register", "C", but={} if bad is None else {bad: {"bad": True}})
        else:
            self.ranks.all("forget", "C")
        self.ranks.all("send", "reconcile_adapters")
        self.ranks.all("forget", "C")

    def refuse(self) -> None:
        """Somebody reads on one rank."""
        self.ranks.one(self.draw.choice(ALL), "hold")
        self.turn()

    def fail(self) -> None:
        """Something fails on one rank; now and then its undo, too."""
        rank = self.draw.choice(ALL)
        if self.draw.random() < 0.5:
            self.ranks.one(rank, "fail_at", self.draw.choice(OPERATIONS))
        else:
            self.ranks.one(rank, "hook", self.draw.choice(EFFECTS), "raise")
        self.draw.choice([self.turn, self.turn, lambda: self.ranks.all("train", "A")])()

    def lose(self) -> None:
        """A rank is killed between two events, and another process joins in its place, with its log or with another."""
        if self.accumulates or self.has_lost:
            return
        self.has_lost = True
        lost = self.draw.choice(ALL)
        self.ranks.signal(lost, signal.SIGKILL)
        self.ranks.all("send", "reconcile_adapters", "wake_up", deaf=(lost,))
        self.ranks.start(lost)
        for rank in ALL:
            if rank == lost:
                self.ranks.tell(rank, "open", str(self.paths[rank]), joins=True, **self.settings)
            else:
                self.ranks.tell(rank, "admit")
        answers = {rank: self.ranks.hear(rank) for rank in ALL}
        assert {rank for rank, one in answers.items() if isinstance(one, Told)} == set(), answers


def main(runs: int, first: int) -> int:
    """Audit the logs of so many runs together. How many had a finding."""
    audited, bad = Audited(), 0
    with Ranks(Recorded) as ranks:
        for seed in range(first, first + runs):
            with TemporaryDirectory() as folder:
                found: list[Violation] = list(audit_logs(RankedRun(seed, Path(folder), ranks).live(), audited))
            bad += bool(found)
            for one in found:
                print(f"seed {seed}: {one}", flush=True)
    print(f"{runs} runs, {audited.records} records, {bad} with a finding")
    return bad


if __name__ == "__main__":
    sys.exit(min(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0), 1))
