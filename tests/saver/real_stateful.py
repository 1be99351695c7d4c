"""Any sequence of public calls over the real library. A program, started by test_real_stateful."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from lifecycle.saver.managed import ManagedSaver
from lifecycle.saver.room import CarefulSaver
from tests.saver.real_port import RealLibrary
from tests.saver.real_session import Session
from tests.saver.worker import Worker

# A disk that syncs at once, in which every sequence has a folder of its own.
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108
SAVERS = {"careful": CarefulSaver, "managed": ManagedSaver}

# Mostly one tag and one kind, or hardly any sequence would get as far as a resume.
GOOD_TAGS = st.sampled_from(["a", "a", "b"])
TAGS = st.sampled_from(["a", "a", "a", "a", "a", "a", "b", "b", "b", "c", "", "a\0", None])
KINDS = st.sampled_from(["cpu", "cpu", "cpu", "disk", "none"])
WHICH = st.integers(0, 5)


class AnyCalls(RuleBasedStateMachine):
    """Every public call with any argument in any order, on a machine whose room comes and goes."""

    library: RealLibrary
    saver: type[ManagedSaver]

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory(dir=MEMORY)
        self.worker: Worker | None = None

    @initialize(retain=st.booleans(), late=st.booleans(), kinds=st.tuples(KINDS, KINDS))
    def start(self, *, retain: bool, late: bool, kinds: tuple[str, str]) -> None:
        """A new process with two tags."""
        folder = Path(self.folder.name)
        self.worker = Worker(lambda: Session(self.library, folder, self.saver, retain=retain, late=late))
        self._call("place", "a", kinds[0])
        self._call("place", "b", kinds[1])

    @rule(tag=TAGS, kind=KINDS)
    def place(self, tag: str, kind: str) -> None:
        self._call("place", tag, kind)

    @rule(tag=GOOD_TAGS, kind=KINDS)
    def adopt(self, tag: str, kind: str) -> None:
        self._call("adopt", tag, kind)

    @rule(tag=TAGS, kind=KINDS, which=WHICH, paused=st.none() | st.booleans())
    def again(self, tag: str, kind: str, which: int, paused: bool | None) -> None:  # noqa: FBT001
        """Place or adopt what lies in a region already."""
        if paused is None:
            self._call("place_again", tag, kind, which)
        else:
            self._call("adopt_again", tag, kind, which, paused)

    @rule(tag=TAGS)
    def pause(self, tag: str) -> None:
        self._call("pause", tag)

    @rule(tag=TAGS)
    def resume(self, tag: str) -> None:
        self._call("resume", tag)

    @rule(tag=TAGS)
    def release(self, tag: str) -> None:
        self._call("release", tag)

    @rule(call=st.sampled_from(["collect", "collect", "spoil_disk"]))
    def mishap(self, call: str) -> None:
        """The allocator frees what was released, or somebody removes the backup files."""
        self._call(call)

    @rule(which=WHICH)
    def write(self, which: int) -> None:
        self._call("write", which)

    @rule(which=WHICH, first=st.integers(0, 6), last=st.integers(0, 6))
    def query(self, which: int, first: int, last: int) -> None:
        self._call("query", which, first, last)

    @rule(tag=GOOD_TAGS, call=st.sampled_from(["pause", "resume"]))
    def turn(self, tag: str, call: str) -> None:
        """What a training loop does all the time."""
        self._call(call, tag)

    @rule(where=st.sampled_from(["device", "host", "disk"]), call=st.sampled_from(["pause", "resume"]), tag=GOOD_TAGS)
    def without_room(self, where: str, call: str, tag: str) -> None:
        """Another tenant has taken what was left."""
        self._call("take_room", where)
        self._call(call, tag)
        self._call("give_room")

    def teardown(self) -> None:
        """The process of this sequence is over."""
        if self.worker is not None:
            self.worker.close()
        self.folder.cleanup()

    def _call(self, *call: object) -> None:
        assert self.worker is not None
        self.worker.call(*call)


def main(stub: str, saver: str, examples: str, steps: str) -> None:
    """Search. A sequence that ends its process is shrunk, printed and an error of this process."""
    AnyCalls.library = RealLibrary(Path(stub))
    AnyCalls.saver = SAVERS[saver]
    bounds = settings(
        max_examples=int(examples),
        stateful_step_count=int(steps),
        deadline=None,
        derandomize=True,
        database=None,
        phases=(Phase.generate, Phase.shrink),
    )
    run_state_machine_as_test(AnyCalls, settings=bounds)
    print("survived", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
