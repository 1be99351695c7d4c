"""Buffers over real processes: who dies lets go, who keeps a view is named, nothing stays in shared memory."""

from __future__ import annotations

import mmap
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
import torch

from lifecycle import EngineError, EventRefused, TrainerState
from lifecycle.transport.leased import sweep
from lifecycle.transport.memories import by_device_ipc, by_file, by_host_buffer
from lifecycle.transport.ports import LeasedPort
from tests.lifecycle.world import make_world
from tests.transport.fake_ipc import FakeIpc
from tests.transport.remote import ROOT, Process, RemoteEngine
from tests.transport.test_choice import holds_the_trainers_bytes, left_in, sha256

BUCKET = 2048

DRAW = torch.Generator().manual_seed(5)

TENSORS = {
    "large": torch.randn(2700, generator=DRAW),
    "rows": torch.randn(90, 17, generator=DRAW),
    "strided": torch.randn(8, 40, generator=DRAW).t(),
    "bytes": torch.randint(0, 256, (13,), dtype=torch.uint8, generator=DRAW),
    "half": torch.randn(3, 5, generator=DRAW).to(torch.bfloat16),
    "eight": torch.randn(70, generator=DRAW).to(torch.float8_e4m3fn),
    "flags": torch.tensor([True, False, True]),
    "none": torch.empty(0, 4),
    "scalar": torch.tensor(2.5, dtype=torch.float64),
    "conjugate": torch.randn(6, dtype=torch.complex64, generator=DRAW).conj(),
}

WAYS: dict[str, Callable[[Process], LeasedPort]] = {
    "device-ipc": lambda process: by_device_ipc(BUCKET, ipc=FakeIpc(process.shared), folder=process.shared),
    "host-buffer": lambda process: by_host_buffer(BUCKET, folder=process.shared),
    "file": lambda process: by_file(BUCKET, folder=process.files),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_tensor_of_any_kind_arrives_byte_for_byte(process: Process, way: str) -> None:
    """Larger than a buffer, strided, empty, conjugated, of any dtype; read by another process."""
    one = RemoteEngine(process, way, [WAYS[way](process)])
    one.begin_update()
    one.send_base("base", 1, TENSORS.items())
    one.commit_update()

    assert one.checksums("base") == {name: sha256(tensor.resolve_conj()) for name, tensor in TENSORS.items()}
    assert one.outstanding_bytes() == 0
    assert left_in(process) == []


@pytest.mark.parametrize("way", ["host-buffer", "file"])
def test_what_is_on_its_way_is_the_owners_alone(process: Process, way: str) -> None:
    """0600, in a file that stands there only while it is read; one file serves buffer after buffer."""
    seen: list[tuple[str, int]] = []
    port = WAYS[way](process)
    for message in port.parcels([("a", torch.zeros(3000))]):
        folder = process.shared if way == "host-buffer" else process.files
        seen.append((message["file"], stat.S_IMODE((folder / message["file"]).stat().st_mode)))
    port.settle()

    assert len(seen) > 3
    assert set(seen) == {(seen[0][0], 0o600)}
    assert left_in(process) == []


@pytest.fixture
def mortal(process: Process) -> Iterator[Process]:
    """A child of the test's own, to be killed."""
    child = Process(process.shared, process.files)
    yield child
    child.kill()


def test_an_engine_that_is_killed_while_it_reads_leaves_nothing_in_shared_memory(
    process: Process, mortal: Process
) -> None:
    """Its lock goes with it: the push fails, the trainer can wake, a new process gets everything."""
    world = make_world()
    one = RemoteEngine(mortal, "E0", [by_host_buffer(BUCKET, folder=mortal.shared)])
    one.transport._way("E0-0")
    world.trainer.sleep(offload=True)
    with pytest.raises(EngineError, match="its process ended"):
        one.transport.send("E0-0", [("a", torch.zeros(9))], lambda message: mortal.ask("E0", do="die", message=message))
    one.transport.settle()
    assert (left_in(mortal), one.outstanding_bytes()) == ([], 0)

    one.process, one.instance = process, 1
    world.trainer.update_weights([one])
    assert holds_the_trainers_bytes(world, one)
    world.trainer.wake_up()
    assert left_in(mortal) == []


def test_a_receiver_that_keeps_views_is_named_and_stops_the_wake_up_until_it_lets_go(process: Process) -> None:
    """Its buffer is not used again meanwhile, and given back once the views are gone."""
    world = make_world()
    one = RemoteEngine(process, "E7", [by_host_buffer(BUCKET, folder=process.shared)])
    world.trainer.sleep(offload=True)
    world.trainer.update_weights([one])
    with pytest.raises(EngineError, match="a view of a transport buffer was kept"):
        one.transport.send(
            "E7-0", [("a", torch.zeros(9))], lambda message: process.ask("E7", do="keep", message=message)
        )
    one.transport.settle()
    assert one.outstanding_bytes() == BUCKET
    with pytest.raises(EventRefused, match=rf"held by: E7 \({BUCKET} bytes\)"):
        world.trainer.wake_up()

    assert process.ask("E7", do="forget") is True
    world.trainer.wake_up()
    assert world.trainer.state is TrainerState.AWAKE
    assert left_in(process) == []


def test_a_receiver_that_keeps_every_buffer_gets_no_other(process: Process) -> None:
    """The error names it, instead of memory that fills up."""
    one = RemoteEngine(process, "E8", [by_host_buffer(BUCKET, folder=process.shared)])
    one.transport._way("one")
    readers: list[int] = []

    def keep(message: dict[str, object]) -> None:
        readers.append(os.open(process.shared / str(message["file"]), os.O_RDONLY))
        flock(readers[-1])

    with pytest.raises(EngineError, match=rf"engine E8: it holds 2 buffers \({2 * BUCKET} bytes\)"):
        one.transport.send("one", [("a", torch.zeros(4000))], keep)  # type: ignore[arg-type]
    one.transport.settle()
    assert one.outstanding_bytes() == 2 * BUCKET
    for descriptor in readers:
        os.close(descriptor)

    assert one.outstanding_bytes() == 0
    assert left_in(process) == []


def flock(descriptor: int) -> None:
    """As a reader locks it."""
    import fcntl  # noqa: PLC0415

    fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)


def test_two_readers_of_one_buffer_both_have_to_let_go(process: Process) -> None:
    """The ranks of an engine read the same buffer; it is used again after the last."""
    port = by_host_buffer(BUCKET, folder=process.shared)
    message = next(port.parcels([("a", torch.zeros(9))]))
    readers = [os.open(process.shared / message["file"], os.O_RDONLY) for _ in range(2)]
    for descriptor in readers:
        flock(descriptor)
    port.settle()
    sizes = []
    for descriptor in readers:
        os.close(descriptor)
        sizes.append(port.outstanding_bytes())

    assert sizes == [BUCKET, 0]


SENDER = """
import sys, time, torch
from pathlib import Path
from lifecycle.transport.memories import by_host_buffer, by_file
ports = [by_host_buffer(2048, folder=Path(sys.argv[1])), by_file(2048, folder=Path(sys.argv[2]))]
sent = [next(port.parcels([("a", torch.zeros(9))])) for port in ports]
print(*(one["file"] for one in sent), flush=True)
time.sleep(60)
"""


def test_what_a_killed_sender_left_is_removed_by_the_next_one(process: Process) -> None:
    """And what a sender that lives has is not."""
    command = [sys.executable, "-c", SENDER, str(process.shared), str(process.files)]
    sender = subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE)
    assert sender.stdout is not None
    names = set(sender.stdout.readline().split())
    assert len(names) == 2
    assert set(left_in(process)) == names
    assert (sweep(process.shared), sweep(process.files)) == (0, 0)
    sender.kill()
    sender.wait(20)
    sender.stdout.close()
    for way in ("host-buffer", "file"):
        port = WAYS[way](process)
        list(port.parcels([("a", torch.zeros(9))]))
        port.settle()

    assert left_in(process) == []


def test_a_forked_child_of_the_trainer_keeps_no_buffer(process: Process) -> None:
    """Data workers are forked at any time: the memory goes back all the same."""
    port = by_host_buffer(BUCKET, folder=process.shared)
    message = next(port.parcels([("a", torch.zeros(9))]))
    descriptor = os.open(process.shared / message["file"], os.O_RDONLY)
    waits, goes_on = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(waits, 1)
        os._exit(0)
    port.settle()
    size = os.fstat(descriptor).st_size
    os.write(goes_on, b"x")
    os.waitpid(child, 0)
    for one in (descriptor, waits, goes_on):
        os.close(one)

    assert (size, left_in(process)) == (0, [])


def test_a_full_shared_memory_is_an_error_and_not_the_end_of_the_process(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room is taken before it is written to, so that the next way can be tried."""

    def full(descriptor: int, offset: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    one = RemoteEngine(process, "E3", [WAYS["host-buffer"](process), WAYS["file"](process)])
    one.transport._way("one")

    assert one.transport.chosen == "file"
    assert "No space left" in one.transport.reasons["host-buffer"]
    assert left_in(process) == []


def test_a_buffer_takes_room_at_once(process: Process) -> None:
    """A mapping of a file with holes would end the process where the memory is full."""
    port = by_host_buffer(64 * mmap.PAGESIZE, folder=process.shared)
    message = next(port.parcels([("a", torch.zeros(9))]))
    taken = (process.shared / message["file"]).stat().st_blocks * 512
    port.settle()

    assert taken >= 64 * mmap.PAGESIZE


def test_a_reader_that_writes_changes_nothing_of_the_sender(process: Process) -> None:
    """Its mapping is private: the trainer's buffer is the trainer's."""
    from lifecycle.transport.layout import Piece  # noqa: PLC0415
    from lifecycle.transport.receiving import Receiver  # noqa: PLC0415

    port = by_host_buffer(BUCKET, folder=process.shared)
    message = next(port.parcels([("a", torch.ones(9))]))
    found: list[float] = []

    def spoil(piece: Piece) -> None:
        piece.content.zero_()

    def read(piece: Piece) -> None:
        found.append(float(piece.content.view(piece.dtype).sum()))

    receiver = Receiver(shared=process.shared, files=process.files)
    receiver.receive(message, spoil)
    receiver.receive(message, read)
    port.settle()

    assert found == [9.0]
