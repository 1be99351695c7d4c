"""No sequence of calls may end the process, whatever it is, and the books are the native library's truth."""

from __future__ import annotations

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from torch import Tensor

from lifecycle.errors import LifecycleError, SaverError, SaverMisuse
from lifecycle.saver.managed import ManagedSaver
from lifecycle.saver.native import NativePort
from lifecycle.saver.protocol import Backup
from tests.saver.scripted import ProcessDeath, ScriptedPort

# Mostly two tags and one kind, or hardly any sequence would get as far as a resume.
GOOD_TAGS = st.sampled_from(["a", "b"])
TAGS = GOOD_TAGS | GOOD_TAGS | GOOD_TAGS | st.sampled_from(["c", "", "a\0", None])
KINDS = st.just(Backup.CPU) | st.sampled_from(list(Backup))


class AnyCalls(RuleBasedStateMachine):
    """Every public call, with any argument, in any order, with a native failure now and then."""

    @initialize(retain=st.booleans())
    def start(self, retain: bool) -> None:  # noqa: FBT001  # hypothesis passes by name
        """A new process."""
        self.port = ScriptedPort()
        self.saver = ManagedSaver(self.port, retain_host_backup=retain, disk_dir="/nowhere")
        self.tensors: list[tuple[Tensor, list[int]]] = []
        self.lost: set[int] = set()

    def attempt(self, call: str, *arguments: object, **options: object) -> bool:
        """Make the call; refusals are fine, the end of the process is not."""
        try:
            getattr(self.saver, call)(*arguments, **options)
        except LifecycleError:
            return False
        return True

    def new(self) -> Tensor:
        """A tensor and what is in it."""
        tensor = torch.randint(0, 200, (5,), dtype=torch.uint8)
        self.tensors.append((tensor, tensor.tolist()))
        return tensor

    @rule(tag=TAGS, backup=KINDS)
    def place_new(self, tag: str, backup: Backup) -> None:
        """Place two tensors that share memory."""
        tensor = self.new()
        self.attempt("place", {"tensor": tensor, "view": tensor[1:]}, tag, backup)

    @precondition(lambda self: self.tensors)
    @rule(data=st.data(), tag=TAGS, backup=KINDS)
    def place_known(self, data: st.DataObject, tag: str, backup: Backup) -> None:
        """Place a tensor that may lie in a region already."""
        self.attempt("place", {"tensor": data.draw(st.sampled_from(self.tensors))[0]}, tag, backup)

    @rule(tag=GOOD_TAGS, backup=KINDS)
    def adopt_new(self, tag: str, backup: Backup) -> None:
        """A framework allocates in a region while its tag is not paused, and tells the saver."""
        info = self.saver.tags().get(tag)
        native = [allocation for allocation in self.port.allocations if allocation.tag == tag]
        if any(allocation.paused for allocation in native) or (info is not None and info.backup is not backup):
            return
        memory = self.port.allocate(64, tag, backup).fill_(3)
        if self.attempt("adopt", {"memory": memory}, tag, backup, paused=False):
            self.tensors.append((memory, memory.tolist()))

    @precondition(lambda self: self.tensors)
    @rule(data=st.data(), tag=TAGS, backup=KINDS, paused=st.booleans())
    def adopt_known(self, data: st.DataObject, tag: str, backup: Backup, paused: bool) -> None:  # noqa: FBT001
        """Adopt what is known already; adopting what lies nowhere would be a lie, which no guard can see."""
        tensor, _ = data.draw(st.sampled_from(self.tensors))
        if self.saver.tag_of(tensor) is not None:
            assert not self.attempt("adopt", {"tensor": tensor}, tag, backup, paused=paused)

    @rule(tag=TAGS)
    def pause(self, tag: str) -> None:
        """Pause whatever the state is."""
        if self.attempt("pause", tag) and self.saver.tags()[tag].backup is not Backup.CPU:
            self.lost |= {id(tensor) for tensor, _ in self.tensors if self.saver.tag_of(tensor) == tag}

    @rule(tag=TAGS)
    def resume(self, tag: str) -> None:
        """Resume whatever the state is."""
        self.attempt("resume", tag)

    @rule(tag=TAGS)
    def release(self, tag: str) -> None:
        """Release whatever the state is; its tensors are not used any more."""
        held = [entry for entry in self.tensors if self.saver.tag_of(entry[0]) == tag]
        if self.attempt("release", tag):
            self.tensors = [entry for entry in self.tensors if all(entry is not gone for gone in held)]

    @precondition(lambda self: self.tensors)
    @rule(data=st.data())
    def read_backup(self, data: st.DataObject) -> None:
        """Read the backup of any tensor, in a region or not."""
        tensor, content = data.draw(st.sampled_from(self.tensors))
        try:
            backup = self.saver.host_backup(tensor)
        except SaverMisuse:
            return
        assert backup is None or backup.tolist() == content

    @rule(tag=TAGS, call=st.sampled_from(["pause", "resume", "place"]))
    def fail(self, tag: str, call: str) -> None:
        """The native library fails softly, or the call does not come as far."""
        self.port.fail_next = True
        arguments = ({"new": self.new()}, tag, Backup.CPU) if call == "place" else (tag,)
        assert not self.attempt(call, *arguments)
        self.port.fail_next = False

    @rule(tag=TAGS)
    def resume_on_a_full_device(self, tag: str) -> None:
        """Another tenant has taken the device."""
        self.port.free_bytes = 0
        assert not self.attempt("resume", tag)
        self.port.free_bytes = None

    @invariant()
    def the_process_lives(self) -> None:
        """Nothing ended it."""
        assert not self.port.died

    @invariant()
    def the_books_are_the_truth(self) -> None:
        """State, kind and backup of each region are those of the native allocation."""
        natives = {allocation.memory.data_ptr(): allocation for allocation in self.port.allocations}
        for book in self.saver._books:
            for region in book.regions:
                native = natives[region.address]
                assert (native.tag, native.backup, native.paused) == (book.native_tag, book.backup, book.paused)
                if book.backup is Backup.CPU:
                    assert region.kept_bytes == (native.slot.nbytes if native.slot is not None else 0)

    @invariant()
    def readable_bytes_are_unchanged(self) -> None:
        """A tensor in active memory, or in none, has its content."""
        paused = {tag for tag, info in self.saver.tags().items() if info.paused}
        for tensor, content in self.tensors:
            if self.saver.tag_of(tensor) not in paused and id(tensor) not in self.lost:
                assert tensor.tolist() == content


AnyCalls.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None, derandomize=True)
TestAnyCalls = AnyCalls.TestCase


def test_the_scripted_port_is_a_native_port() -> None:
    """It has every method, and dies where the library does."""
    port: NativePort = ScriptedPort()
    port.allocate(8, "tag", Backup.NONE)
    port.pause("tag")

    with pytest.raises(ProcessDeath):
        port.pause("tag")


def test_a_tag_that_was_released_while_paused_gets_another_native_name() -> None:
    """A caching allocator may still hold the old memory, paused: one active allocation beside it is fatal at resume."""
    port = ScriptedPort()
    saver = ManagedSaver(port)
    saver.place({"old": torch.ones(2)}, "tag", Backup.CPU)
    saver.pause("tag")
    saver.release("tag")

    saver.place({"new": torch.ones(2)}, "tag", Backup.CPU)
    saver.pause("tag")
    saver.resume("tag")

    assert port.allocations[0].tag == "tag"
    assert port.allocations[1].tag != "tag"
    with pytest.raises(SaverMisuse, match="another tag"):
        saver.adopt({"x": torch.ones(2)}, "tag", Backup.CPU, paused=False)


def test_a_pause_waits_for_the_device() -> None:
    """The library does not synchronise before it copies."""
    port = ScriptedPort()
    saver = ManagedSaver(port)
    saver.place({"x": torch.ones(2)}, "tag", Backup.CPU)

    saver.pause("tag")

    assert port.synchronized == 1


def test_a_resume_on_a_full_device_is_refused_before_the_native_call() -> None:
    """Out of memory at resume ends the process with the real library (FB-13)."""
    port = ScriptedPort()
    saver = ManagedSaver(port)
    saver.place({"x": torch.ones(2)}, "tag", Backup.CPU)
    saver.pause("tag")
    port.free_bytes = 10

    with pytest.raises(SaverError, match="10 are free"):
        saver.resume("tag")

    assert port.allocations[0].paused
    assert saver.tags()["tag"].paused
