"""The transport is chosen by a probe of the very operation, one engine at a time, and never changes bytes (FB-58)."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from lifecycle import ConfigError, EngineError, Moved, TransitionFailed
from lifecycle.transport import ALIVE, ChoosesTransport, HoldsTransport, TransportBroken
from lifecycle.transport.chosen import ChosenTransport
from lifecycle.transport.leased import LeasedFile, Unreadable
from lifecycle.transport.memories import by_device_ipc, by_file, by_host_buffer
from lifecycle.transport.ports import LeasedPort, Memory, Transport
from tests.lifecycle.world import World, make_world
from tests.transport.fake_ipc import FakeIpc
from tests.transport.remote import Process, RemoteEngine

BUCKET = 2048
_numbers = itertools.count()


def ports(process: Process, ipc: FakeIpc) -> list[LeasedPort]:
    """The three ways, the fastest first."""
    return [
        by_device_ipc(BUCKET, ipc=ipc, folder=process.shared),
        by_host_buffer(BUCKET, folder=process.shared),
        by_file(BUCKET, folder=process.files),
    ]


def engine(process: Process, *, fails_at: int = 0) -> RemoteEngine:
    """A new engine in that process; its device memory fails at that export, -1 for each, 0 for none."""
    return RemoteEngine(process, f"E{next(_numbers)}", ports(process, FakeIpc(process.shared, fails_at=fails_at)))


def holds_the_trainers_bytes(world: World, one: RemoteEngine) -> bool:
    """Whether each tensor there has the SHA-256 of the trainer's, under the version that the trainer wants."""
    parts = world.trainer._parts
    assert one.report().versions == dict(parts.versions.wanted)
    with world.trainer.weights("compare") as lease:
        return all(
            one.checksums(group) == {name: sha256(lease[name]) for name in held}
            for group, held in parts.inventory.groups().items()
        )


def sha256(tensor: Tensor) -> str:
    """Of its contiguous bytes."""
    return hashlib.sha256(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()).hexdigest()


def notes(world: World) -> list[dict[str, Any]]:
    """What the audit log says of transports."""
    return [dict(one) for one in world.records("noted") if "transport" in str(one["note"])]


class FailingMemory:
    """Shared memory that is full after so many buffers were handed over."""

    def __init__(self, real: Memory, after: int) -> None:
        self.transport = real.transport
        self.make = real.make
        self._real, self._left = real, after

    def hand_over(self, file: LeasedFile, memory: Tensor, used_bytes: int) -> Mapping[str, str | int]:
        self._left -= 1
        if self._left < 0:
            raise OSError("no space left")
        return self._real.hand_over(file, memory, used_bytes)


def test_where_device_memory_cannot_be_shared_the_host_buffer_is_taken_and_the_log_says_why(process: Process) -> None:
    """FB-58, scenario 1: digests are equal, later syncs do not probe again."""
    world, one = make_world(), engine(process, fails_at=-1)
    world.trainer.update_weights([one])
    probes = one.probes
    for _ in range(3):
        world.train("A")
        world.trainer.update_weights([one])

    assert one.transport.chosen is Transport.HOST_BUFFER
    assert holds_the_trainers_bytes(world, one)
    assert one.probes == probes == 1
    (note,) = notes(world)
    assert (note["note"], note["engine"], note["transport"]) == ("a transport was chosen", one.name, "host-buffer")
    assert note["because"] == {"device-ipc": "RuntimeError: CUDA error: invalid device context"}


def test_a_transport_that_breaks_part_way_is_replaced_by_the_next_from_the_first_buffer(process: Process) -> None:
    """FB-58, scenario 2: the probe is export one, the update breaks at its second buffer; the version moves once."""
    world, one = make_world(), engine(process, fails_at=3)
    outcome = world.trainer.update_weights([one])

    assert isinstance(outcome, Moved)
    assert (one.aborts, one.commits) == (1, 1)
    assert one.transport.chosen is Transport.HOST_BUFFER
    assert holds_the_trainers_bytes(world, one)
    assert [note["note"] for note in notes(world)] == [
        "a transport was chosen", "a transport broke", "a transport was chosen",
    ]  # fmt: skip
    assert notes(world)[2]["because"] == {"device-ipc": "it broke: RuntimeError: CUDA error: invalid device context"}


def test_host_buffers_are_bounded_and_none_is_left_after_the_update(process: Process) -> None:
    """FB-58, scenario 3: a base of a megabyte goes through buffers of two KiB."""
    world, one = make_world(ballast_bytes=2**20), engine(process, fails_at=-1)
    world.trainer.update_weights([one])
    buffers = one.transport._ports[1]

    assert isinstance(buffers, LeasedPort)
    assert 0 < buffers.peak_bytes <= ALIVE * BUCKET
    assert world.trainer.facts().transport_bytes == 0
    assert left_in(process) == []
    assert holds_the_trainers_bytes(world, one)


def left_in(process: Process) -> list[str]:
    """Transport files that exist."""
    return [path.name for folder in (process.shared, process.files) for path in folder.glob("adapter-lifecycle-*")]


def test_each_engine_gets_its_own_transport_and_all_end_at_one_version(process: Process) -> None:
    """FB-58, scenario 4: E0 can, E1 cannot."""
    world, can, cannot = make_world(), engine(process), engine(process, fails_at=-1)
    world.trainer.update_weights([can, cannot])

    assert (can.transport.chosen, cannot.transport.chosen) == (Transport.DEVICE_IPC, Transport.HOST_BUFFER)
    assert can.transport.reasons == {}
    assert holds_the_trainers_bytes(world, can)
    assert holds_the_trainers_bytes(world, cannot)


def test_files_are_the_last_resort(process: Process) -> None:
    """Device memory fails and the host buffers lie where the engine does not look."""
    world, one = make_world(), engine(process)
    elsewhere = by_host_buffer(BUCKET, folder=process.files)
    one.transport._ports = (
        ports(process, FakeIpc(process.shared, fails_at=-1))[0],
        elsewhere,
        ports(process, FakeIpc(process.shared))[2],
    )
    world.trainer.update_weights([one])

    assert one.transport.chosen is Transport.FILE
    assert set(one.transport.reasons) == {"device-ipc", "host-buffer"}
    assert "have to see the same directory" in one.transport.reasons["host-buffer"]
    assert holds_the_trainers_bytes(world, one)
    assert left_in(process) == []


def test_a_second_break_in_one_update_fences_and_the_next_pass_repairs_it(process: Process) -> None:
    """An update is begun again once. What broke is not tried again while another way is left."""
    world, one = make_world(), engine(process, fails_at=3)
    buffers = one.transport._ports[1]
    assert isinstance(buffers, LeasedPort)
    buffers._of = FailingMemory(buffers._of, after=2)
    with pytest.raises(TransitionFailed, match="host-buffer broke: OSError: no space left"):
        world.trainer.update_weights([one])
    assert one.report().versions == {}

    world.trainer.update_weights([one])
    assert one.transport.chosen is Transport.FILE
    assert holds_the_trainers_bytes(world, one)


def test_a_restarted_engine_is_probed_anew(process: Process) -> None:
    """Its instance id is another: what could not be shared with the old process may be with the new one."""
    world, one = make_world(), engine(process, fails_at=-1)
    world.trainer.update_weights([one])
    ipc = one.transport._ports[0]._of._ipc  # type: ignore[attr-defined]
    ipc.fails_at, one.instance = 0, 1
    for group in tuple(one.report().versions):
        one._ask("unload", group=group)
    world.trainer.update_weights([one])

    assert one.transport.chosen is Transport.DEVICE_IPC
    assert holds_the_trainers_bytes(world, one)


def test_a_probe_leaves_engine_and_random_numbers_as_they_are(process: Process) -> None:
    """Nothing is written there, nothing stays allocated, training draws what it would have drawn."""
    one = engine(process)
    torch.manual_seed(3)
    drawn = torch.rand(4)
    torch.manual_seed(3)
    one.transport._way("first")

    assert one.process.ask(one.name, do="report", engine=one.name)["taken"] == 0
    assert (one.probes, one.report().versions, left_in(process)) == (1, {}, [])
    assert torch.equal(torch.rand(4), drawn)


def refusing(message: Mapping[str, Any]) -> Mapping[str, str]:
    """A receiver that can read nothing."""
    raise Unreadable("no such capability")


def test_where_nothing_works_the_error_says_why_each_way_does_not(process: Process) -> None:
    """And all are probed again next time."""
    chosen = ChosenTransport("E9", ports(process, FakeIpc(process.shared)), refusing)
    for _ in range(2):
        with pytest.raises(EngineError, match=r"device-ipc: .*; host-buffer: .*; file: .*no such capability") as error:
            chosen.send("one", [("a", torch.zeros(3))], refusing)  # type: ignore[arg-type]

    assert error.value.engine == "E9"
    assert [note for note, _ in chosen.transport_notes()] == ["no transport works"] * 2


def test_bytes_that_arrive_changed_rule_a_transport_out(process: Process) -> None:
    """It is the digests that decide, not that nothing was raised."""
    ways = ports(process, FakeIpc(process.shared))[1:]
    answers = iter([{"probe.uint8": "0" * 64}])

    def probe(message: Mapping[str, Any]) -> Mapping[str, str]:
        wrong = next(answers, None)
        found: Mapping[str, str] = process.ask("E9", do="probe", message=message)
        return {**found, **(wrong or {})}

    chosen = ChosenTransport("E9", ways, probe)
    chosen._way("one")

    assert chosen.chosen is Transport.FILE
    assert chosen.reasons == {"host-buffer": "the bytes that arrived are others: probe.uint8"}


def test_an_engine_that_does_not_answer_the_probe_says_nothing_of_the_transport(process: Process) -> None:
    """Its own error is raised, and no way is ruled out."""

    def silent(message: Mapping[str, Any]) -> Mapping[str, str]:
        raise EngineError("E9", "it does not answer")

    chosen = ChosenTransport("E9", ports(process, FakeIpc(process.shared)), silent)
    with pytest.raises(EngineError, match=r"^engine E9: it does not answer$"):
        chosen._way("one")

    assert chosen.transport_notes() == ()
    assert (chosen.chosen, chosen.reasons, left_in(process)) == (None, {}, [])


def test_an_error_of_reading_or_of_the_engine_is_no_break_of_the_transport(process: Process) -> None:
    """Both come through as themselves; the way stays chosen."""
    one = engine(process)

    def unreadable() -> Iterator[tuple[str, Tensor]]:
        yield "a", torch.zeros(3)
        raise LookupError("the lease has ended")

    def full(message: Mapping[str, Any]) -> None:
        raise EngineError(one.name, "every slot is taken")

    with pytest.raises(LookupError, match="lease has ended"):
        one.transport.send("one", unreadable(), full)
    with pytest.raises(EngineError, match="every slot is taken"):
        one.transport.send("one", [("a", torch.zeros(3))], full)
    one.transport.settle()

    assert one.transport.chosen is Transport.DEVICE_IPC
    assert left_in(process) == []


def test_a_break_of_the_only_transport_is_not_tried_again_in_this_update(process: Process) -> None:
    """The error says so; the next update probes it again."""
    one = RemoteEngine(process, f"E{next(_numbers)}", [by_host_buffer(BUCKET, folder=process.shared)])
    with pytest.raises(TransportBroken, match="no other is left") as broken:
        one.transport.send("one", [("a", torch.zeros(3))], refusing)  # type: ignore[arg-type]

    assert (broken.value.transport, broken.value.another) == (Transport.HOST_BUFFER, False)
    assert one.transport._way("one").transport is Transport.HOST_BUFFER


def test_an_update_is_not_begun_again_where_no_other_transport_is_left(process: Process) -> None:
    """It fails and says so; the next pass probes what there is and repairs."""
    world, ipc = make_world(), FakeIpc(process.shared, fails_at=3)
    one = RemoteEngine(process, f"E{next(_numbers)}", [by_device_ipc(BUCKET, ipc=ipc, folder=process.shared)])
    with pytest.raises(TransitionFailed, match="no other is left"):
        world.trainer.update_weights([one])
    assert (one.aborts, one.commits) == (1, 0)

    world.trainer.update_weights([one])
    assert holds_the_trainers_bytes(world, one)


def test_ways_are_given_once_each_and_at_least_one(process: Process) -> None:
    """Refused before anything is sent."""
    way = by_host_buffer(BUCKET, folder=process.shared)
    for given in ([], [way, way]):
        with pytest.raises(ConfigError, match="at least one transport"):
            ChosenTransport("E9", given, refusing)


def test_the_engine_speaks_both_optional_protocols(process: Process) -> None:
    """So that the push asks it."""
    assert isinstance(engine(process), HoldsTransport)
    assert isinstance(engine(process), ChoosesTransport)
