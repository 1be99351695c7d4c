"""Transport buffers are leases with a named receiver; offload and wake look at what is outstanding (FB-22)."""

from __future__ import annotations

import gc
from collections.abc import Iterable

import pytest
import torch
from torch import Tensor

from lifecycle import ConfigError, EngineError, EventRefused, Moved, TrainerState, TransitionFailed
from lifecycle.engines.protocol import AdapterPayload
from lifecycle.transport import ALIVE, Bucket, BucketTransport, HoldsTransport
from states import Facts
from states.guards_memory import no_transport_bytes_outstanding
from tests.lifecycle.world import FakeEngine, World, content_of, make_world

BUCKET = 1024


class BucketEngine(FakeEngine):
    """An engine that receives through buckets and closes each one when it has got the next, the last on commit."""

    def __init__(self, name: str = "E0", *, forgets: bool = False) -> None:
        super().__init__(name)
        self.forgets = forgets
        self.transport = BucketTransport(name, BUCKET)
        self.open: list[Bucket] = []

    def outstanding_bytes(self) -> int:
        return self.transport.outstanding_bytes()

    def send_base(self, group: str, version: int, tensors: Iterable[tuple[str, Tensor]]) -> None:
        super().send_base(group, version, self._through_buckets(tensors).items())

    def load_adapter(self, payload: AdapterPayload) -> None:
        received = self._through_buckets(payload.tensors.items())
        self.digests["received"] = content_of(received)
        super().load_adapter(payload)

    def commit_update(self) -> None:
        super().commit_update()
        if not self.forgets:
            self.close_session()

    def abort_update(self) -> None:
        super().abort_update()
        self.close_session()

    def close_session(self) -> None:
        """The receiving session is over."""
        self.transport.close()
        self.open.clear()

    def _through_buckets(self, tensors: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
        received: dict[str, Tensor] = {}
        for bucket in self.transport.send(tensors):
            self.open.append(bucket)
            for piece in bucket.pieces:
                into = received.setdefault(piece.name, torch.empty(piece.shape, dtype=piece.dtype))
                whole = into.view(-1).view(torch.uint8)
                whole[piece.offset_bytes : piece.offset_bytes + piece.content.nbytes] = piece.content
            for one in self.open[:-1]:
                one.close()
            del self.open[:-1]
        return received


def outstanding(world: World) -> int:
    """The number that the guards look at."""
    return world.trainer.facts().transport_bytes


def served(world: World, engine: FakeEngine) -> bool:
    """Whether the engine holds the trainer's bytes."""
    groups = world.trainer._parts.inventory.groups()
    with world.trainer.weights("compare") as lease:
        return all(
            engine.digests[group] == content_of({name: lease[name] for name in held}) for group, held in groups.items()
        )


def test_after_each_sync_nothing_is_outstanding_and_there_were_never_more_than_two_buckets() -> None:
    """Five syncs through buckets that live until the receiving session is closed (FB-22, scenario 1)."""
    world, engine = make_world(), BucketEngine()
    for _ in range(5):
        world.train("A", "B")
        outcome = world.trainer.update_weights([engine])
        assert isinstance(outcome, Moved)
        assert "transport" not in dict(outcome.details)
        assert outstanding(world) == 0

    assert BUCKET < engine.transport.peak_bytes <= ALIVE * BUCKET
    assert served(world, engine)


def forgetful() -> tuple[World, BucketEngine, BucketEngine, Moved]:
    """Two engines, of which E1 forgets to close, after a sync while the trainer is offloaded."""
    world, good, bad = make_world(), BucketEngine("E0"), BucketEngine("E1", forgets=True)
    world.trainer.sleep(offload=True)
    outcome = world.trainer.update_weights([good, bad])
    assert isinstance(outcome, Moved)
    return world, good, bad, outcome


def test_a_receiver_that_forgets_to_close_is_named_by_the_sync_and_stops_the_wake_up() -> None:
    """With the byte count (FB-22, scenario 2)."""
    world, _, bad, outcome = forgetful()
    held = bad.outstanding_bytes()

    assert held in {BUCKET, 2 * BUCKET}
    assert dict(outcome.details)["transport"] == {"E1": held}
    with pytest.raises(EventRefused, match=rf"{held} transport bytes are outstanding, held by: E1") as refused:
        world.trainer.wake_up()
    assert [one.name for one in refused.value.failed] == ["no-transport-bytes-outstanding"]
    assert world.trainer.state is TrainerState.OFFLOADED_CPU


def test_once_the_receiver_has_closed_the_next_attempt_passes() -> None:
    """Nobody has to tell the trainer (FB-22, scenario 3)."""
    world, _, bad, _ = forgetful()
    bad.close_session()

    assert isinstance(world.trainer.wake_up(), Moved)


def test_an_offload_is_refused_as_well() -> None:
    """The device memory that the receiver holds is missing where the offload promises room (FB-22, rule)."""
    world, bad = make_world(), BucketEngine("E1", forgets=True)
    world.trainer.update_weights([bad])
    world.trainer.sleep()
    with pytest.raises(EventRefused, match="held by: E1"):
        world.trainer.offload()
    assert world.trainer.state is TrainerState.SLEEPING

    bad.close_session()
    world.trainer.offload()


def test_a_later_sync_with_another_engine_does_not_forget_the_first_ones_buffers() -> None:
    """Every receiver is remembered until it has closed, not only those of the last sync."""
    world, first, second = make_world(), BucketEngine("E0", forgets=True), BucketEngine("E1")
    world.trainer.update_weights([first])
    outcome = world.trainer.update_weights([second])

    assert isinstance(outcome, Moved)
    assert set(dict(outcome.details)["transport"]) == {"E0"}  # type: ignore[call-overload]
    assert outstanding(world) == first.outstanding_bytes()


def test_a_push_that_fails_is_counted_too_and_its_abort_closes() -> None:
    """The receiver is remembered before the first byte; the abort ends its session."""
    world, engine = make_world(), BucketEngine()
    engine.fails_at = "commit"
    closing, engine.abort_update = engine.abort_update, lambda: None  # type: ignore[method-assign]
    with pytest.raises(TransitionFailed, match="told to fail"):
        world.trainer.update_weights([engine])
    assert outstanding(world) > 0

    closing()
    assert outstanding(world) == 0


def test_a_receiver_that_is_gone_holds_nothing() -> None:
    """It is remembered weakly: an engine that was dropped does not keep the trainer asleep."""
    world, bad = make_world(), BucketEngine("E1", forgets=True)
    world.trainer.update_weights([bad])
    assert outstanding(world) > 0
    del bad
    gc.collect()

    assert outstanding(world) == 0


def test_a_receiver_that_does_not_answer_is_unknown_and_unknown_is_not_zero() -> None:
    """It is named, and the wake waits for it."""
    world, bad = make_world(), BucketEngine("E1")
    world.trainer.update_weights([bad])
    bad.outstanding_bytes = lambda: 1 // 0  # type: ignore[method-assign]
    world.trainer.sleep()
    with pytest.raises(EventRefused, match=r"held by: E1 \(does not answer\)"):
        world.trainer.wake_up()


class Slotted:
    """A receiver that cannot be referenced weakly."""

    __slots__ = ("held", "name")

    def __init__(self) -> None:
        self.name, self.held = "E2", 7

    def outstanding_bytes(self) -> int:
        return self.held


def test_a_receiver_without_weak_references_is_kept_until_it_is_replaced() -> None:
    """Counted like any other; a new engine of the name takes its place."""
    receivers, first, second = make_world().trainer._parts.runtime.receivers, Slotted(), Slotted()
    receivers.remember(first)  # type: ignore[arg-type]
    assert receivers.outstanding() == {"E2": 7}

    second.held = 0
    receivers.remember(second)  # type: ignore[arg-type]
    assert receivers.outstanding() == {}


def test_an_engine_that_copies_is_no_receiver() -> None:
    """The protocol is optional: what holds no buffers is not asked."""
    world, plain = make_world(), FakeEngine()
    world.trainer.update_weights([plain])

    assert not isinstance(plain, HoldsTransport)
    assert world.trainer._parts.runtime.receivers._known == {}


@pytest.mark.parametrize(
    ("facts", "holds"),
    [
        (Facts(), True),
        (Facts(transport_bytes=1, transport_holders=("E1 (1 bytes)",)), False),
        (Facts(transport_bytes=1), False),
        (Facts(transport_holders=("E1 (does not answer)",)), False),
    ],
)
def test_the_guard_wants_no_byte_and_no_silent_holder(facts: Facts, *, holds: bool) -> None:
    """Zero is an answer, silence is none."""
    assert bool(no_transport_bytes_outstanding(facts)) is holds


def test_a_tensor_of_any_size_goes_through_buckets_whole() -> None:
    """Larger than a bucket, smaller, empty, strided, in any dtype: byte for byte."""
    draw = torch.Generator().manual_seed(3)
    tensors = {
        "large": torch.randn(700, generator=draw),
        "small": torch.randn(3, generator=draw).to(torch.bfloat16),
        "none": torch.empty(0, 4),
        "strided": torch.randn(8, 40, generator=draw).t(),
        "exact": torch.arange(BUCKET, dtype=torch.int16)[: BUCKET // 2],
        "scalar": torch.tensor(2.5, dtype=torch.float64),
    }
    engine = BucketEngine()
    received = engine._through_buckets(tensors.items())

    assert content_of(received) == content_of(tensors)
    assert engine.transport.peak_bytes <= ALIVE * BUCKET


def test_a_receiver_that_keeps_two_buckets_gets_no_third() -> None:
    """It is told so by name, instead of a device that fills up."""
    transport = BucketTransport("E0", BUCKET)
    kept = transport.send([("big", torch.zeros(3 * BUCKET, dtype=torch.uint8))])
    next(kept)
    next(kept)
    with pytest.raises(EngineError, match="engine E0: it holds 2 buckets"):
        next(kept)
    transport.close()

    assert transport.outstanding_bytes() == 0


def test_closing_twice_is_closing_once() -> None:
    """A receiver need not remember."""
    transport = BucketTransport("E0", BUCKET)
    bucket = next(transport.send([("one", torch.zeros(4))]))
    bucket.close()
    bucket.close()

    assert (bucket.size_bytes, bucket.pieces, transport.outstanding_bytes()) == (0, (), 0)


def test_a_bucket_has_a_size() -> None:
    """Bounded means bounded above zero."""
    with pytest.raises(ConfigError, match="positive"):
        BucketTransport("E0", 0)
