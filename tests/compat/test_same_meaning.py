"""``TensorBackuper`` means what it means in miles and slime: any calls, against the meaning in few words."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from torch import Tensor

from lifecycle.compat.host_copies import HostCopies
from lifecycle.saver import Backup, HostArena

TAGS = st.sampled_from(["actor", "ref", "teacher", "old_actor"])
FROZEN = ("base.0", "base.1")
TRAINED = ("a", "b", "half", "empty")
VALUES = st.sampled_from([0.0, -0.0, 1.0, float("nan"), float("inf"), 3.5])


def bytes_of(tensor: Tensor) -> bytes:
    """What is in it."""
    plain = tensor.detach().cpu().contiguous().reshape(-1)
    return plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b""


class Meaning:
    """The calls on plain bytes: a tag is a dict of them, and each call is one loop."""

    def __init__(self) -> None:
        self.live: dict[str, bytes] = {}
        self.tags: dict[str, dict[str, bytes]] = {}

    def backup(self, tag: str, names: Iterable[str]) -> None:
        kept = self.tags.setdefault(tag, {})
        for name in names:
            kept[name] = self.live[name]

    def copy(self, src_tag: str, dst_tag: str) -> None:
        into = self.tags[dst_tag]
        for name in into:
            into[name] = self.tags[src_tag][name]

    def restore(self, tag: str, names: Iterable[str]) -> None:
        for name in names:
            self.live[name] = self.tags[tag][name]


class BothMachine(RuleBasedStateMachine):
    """Both do the same calls; whatever can be read is compared after each."""

    def __init__(self) -> None:
        super().__init__()
        self.meaning = Meaning()
        self.arena = HostArena()
        self.got: list[tuple[Tensor, bytes]] = []
        self.hidden: set[str] = set()
        self.changed: set[str] = set()
        self.tells = False

    @initialize(saver=st.booleans(), frozen=st.booleans())
    def start(self, saver: bool, frozen: bool) -> None:  # noqa: FBT001  # drawn
        torch.manual_seed(1)
        self.tensors: dict[str, Tensor] = {
            "base.0": torch.randn(40, 600),  # larger than a whole sample
            "base.1": torch.randn(3).to(torch.bfloat16),
            "a": torch.nn.Parameter(torch.randn(5, 4)),
            "b": torch.randn(4, 6).t(),
            "half": torch.nn.Parameter(torch.randn(7).to(torch.float16)),
            "empty": torch.zeros(0, 3),
        }
        self.watched = saver
        if saver:
            self.arena.place({name: self.tensors[name] for name in ("base.0", "a", "half")}, "default", Backup.CPU)
        self.frozen = frozen
        self.mine = HostCopies(
            lambda: ((name, self.tensors[name]) for name in self.names()),
            frozen=FROZEN if frozen else (),
            saver=self.arena if saver else None,
        )
        self.note()

    def settle(self) -> None:
        self.changed.clear()
        self.tells = False

    def names(self) -> list[str]:
        return [name for name in self.tensors if name not in self.hidden]

    def note(self) -> None:
        self.meaning.live = {name: bytes_of(self.now(name)) for name in self.tensors}

    def now(self, name: str) -> Tensor:
        """The tensor, or what a resume brings back of it."""
        tensor = self.tensors[name]
        tag = self.arena.tag_of(tensor)
        paused = tag is not None and self.arena.tags()[tag].paused
        backup = self.arena.host_backup(tensor) if paused else tensor
        assert backup is not None
        return backup

    @rule(name=st.sampled_from(TRAINED), value=VALUES, place=st.integers(0, 30))
    def train(self, name: str, value: float, place: int) -> None:
        """One element, under autograd's nose."""
        flat = self.now(name).data
        if flat.numel() and name not in self.hidden:
            index = torch.unravel_index(torch.tensor(place % flat.numel()), flat.shape)
            flat[index] = value
            self.has_changed(name)

    @precondition(lambda self: not self.frozen)
    @rule(value=VALUES)
    def load_another_base(self, value: float) -> None:
        """In the middle of the large tensor, where no sample of a few blocks need look."""
        self.now("base.0").data[17, 300] = value
        self.has_changed("base.0")

    def has_changed(self, name: str) -> None:
        """Whoever has begun to tell has to go on."""
        self.changed.add(name)
        if self.tells:
            self.mine.mark_dirty([name])
        self.note()

    @rule(tag=TAGS)
    def backup(self, tag: str) -> None:
        self.mine.backup(tag)
        self.meaning.backup(tag, self.names())
        self.settle()

    @rule(src=TAGS, dst=TAGS)
    def copy(self, src: str, dst: str) -> None:
        tags = self.meaning.tags
        if src in tags and dst in tags and tags[dst].keys() <= tags[src].keys():
            self.mine.copy(src_tag=src, dst_tag=dst)
            self.meaning.copy(src, dst)

    @rule(tag=TAGS)
    def restore(self, tag: str) -> None:
        if set(self.names()) <= self.meaning.tags.get(tag, {}).keys():
            self.mine.restore(tag)
            self.meaning.restore(tag, self.names())
            self.settle()

    @rule(more=st.sampled_from([*TRAINED, None]))
    def tell(self, more: str | None) -> None:
        """The truth, and sometimes a name too many."""
        self.mine.mark_dirty(sorted(self.changed | ({more} if more else set()) - self.hidden))
        self.tells = True

    @precondition(lambda self: not self.changed and not self.tells)
    @rule(name=st.sampled_from(TRAINED))
    def the_source_leaves_one_out(self, name: str) -> None:
        self.hidden ^= {name}

    @precondition(lambda self: self.watched)
    @rule()
    def pause_or_resume(self) -> None:
        paused = self.arena.tags()["default"].paused
        (self.arena.resume if paused else self.arena.pause)("default")

    @rule(tag=TAGS)
    def get(self, tag: str) -> None:
        """And keep what was got."""
        if tag in self.meaning.tags:
            self.got.extend((one, bytes_of(one)) for one in self.mine.get(tag).values())

    @invariant()
    def all_bytes_are_those_of_the_meaning(self) -> None:
        for tag, kept in self.meaning.tags.items():
            found = self.mine.get(tag)
            assert list(found) == list(kept)
            assert {name: bytes_of(one) for name, one in found.items()} == kept
        assert not hasattr(self, "mine") or self.mine.backup_tags == list(self.meaning.tags)

    @invariant()
    def live_bytes_are_those_of_the_meaning(self) -> None:
        for name, content in self.meaning.live.items():
            assert bytes_of(self.now(name)) == content, name

    @invariant()
    def what_was_got_stays_what_it_was(self) -> None:
        assert all(bytes_of(one) == content for one, content in self.got)

    @invariant()
    def no_more_is_held_than_there(self) -> None:
        theirs = sum(len(one) for kept in self.meaning.tags.values() for one in kept.values())
        assert not hasattr(self, "mine") or self.mine.host_bytes() <= theirs

    def teardown(self) -> None:
        self.arena.close()


BothMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=25, deadline=None)
TestAnySequenceOfCallsMeansTheSame = BothMachine.TestCase
