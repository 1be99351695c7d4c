"""What a receiver is told is checked whole before a byte is looked at; buffers are laid out for views."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lifecycle import ConfigError
from lifecycle.transport.ipc import CudaIpc
from lifecycle.transport.layout import ALIGN_BYTES, Piece, packed
from lifecycle.transport.leased import Unreadable
from lifecycle.transport.memories import by_file, by_host_buffer
from lifecycle.transport.messages import message_of
from lifecycle.transport.ports import LeasedPort
from lifecycle.transport.receiving import Receiver

Message = dict[str, Any]


@pytest.fixture
def port(tmp_path: Path) -> LeasedPort:
    """Host buffers, in a folder of the test's own."""
    return by_host_buffer(2048, folder=tmp_path)


@pytest.fixture
def receiver(tmp_path: Path) -> Receiver:
    """One that looks there, and for files beside it."""
    return Receiver(shared=tmp_path, files=tmp_path / "files")


def row(message: Message, **changes: object) -> Message:
    """The message with its first row changed."""
    return message | {"pieces": [message["pieces"][0] | changes, *message["pieces"][1:]]}


HOSTILE: dict[str, Callable[[Message], object]] = {
    "no message": lambda message: "a pickle",
    "an unknown field": lambda message: message | {"code": "print(1)"},
    "a field that is missing": lambda message: {key: message[key] for key in message if key != "size"},
    "a size that is none": lambda message: message | {"size": "large"},
    "an unknown transport": lambda message: message | {"transport": "telepathy"},
    "a path": lambda message: message | {"file": "../../etc/passwd"},
    "a name that is not ours": lambda message: message | {"file": "shadow"},
    "a name that nothing has": lambda message: message | {"file": "adapter-lifecycle-" + "0" * 32},
    "a file where memory is meant": lambda message: message | {"transport": "file"},
    "a device handle that is none": lambda message: message | {"transport": "device-ipc"},
    "a table that goes over the end": lambda message: row(message, at=2048),
    "a buffer that is larger than the memory": lambda message: row(message, at=1 << 20) | {"size": 1 << 30},
    "a stretch before the buffer": lambda message: row(message, at=-64),
    "a stretch that no view can begin at": lambda message: row(message, at=3),
    "a stretch past the tensor": lambda message: row(message, offset=4),
    "a negative length": lambda message: row(message, shape=[-3]),
    "a dtype that is none": lambda message: row(message, dtype="object"),
    "a negative size": lambda message: row(message, size=-4),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_message_that_is_wrong_is_refused_before_a_byte_is_lent(
    what: str, port: LeasedPort, receiver: Receiver
) -> None:
    """And nothing stays open: the sender gives its buffer back."""
    message = next(port.parcels([("a", torch.zeros(3))]))
    lent: list[Piece] = []
    with pytest.raises(Unreadable):
        receiver.receive(HOSTILE[what](message), lent.append)
    port.settle()

    assert lent == []
    assert port.outstanding_bytes() == 0


def test_the_same_message_unharmed_is_read(port: LeasedPort, receiver: Receiver) -> None:
    """So that the refusals above are of what was changed."""
    message = next(port.parcels([("a", torch.arange(3))]))
    found: list[list[int]] = []
    receiver.receive(message, lambda piece: found.append(piece.content.view(piece.dtype).tolist()))
    port.settle()

    assert found == [[0, 1, 2]]


def test_a_view_that_is_kept_keeps_the_buffer_until_it_is_gone(port: LeasedPort, receiver: Receiver) -> None:
    """Other buffers are read meanwhile; the kept bytes stay what they were."""
    kept: list[Piece] = []
    message = next(port.parcels([("a", torch.ones(3))]))
    with pytest.raises(ValueError, match="a view of a transport buffer was kept"):
        receiver.receive(message, kept.append)
    later = next(port.parcels([("b", torch.zeros(3))]))
    receiver.receive(later, lambda piece: None)
    port.settle()
    assert later["file"] != message["file"]
    assert (receiver.let_go(), port.outstanding_bytes()) == (False, 2048)
    assert kept[0].content.view(torch.float32).tolist() == [1.0] * 3
    kept.clear()

    assert (receiver.let_go(), port.outstanding_bytes()) == (True, 0)


def test_a_file_is_read_as_often_as_it_is_told_of(receiver: Receiver, tmp_path: Path) -> None:
    """By several ranks, each for itself; one that is no safetensors file is refused."""
    port = by_file(2048, folder=tmp_path / "files")
    message = next(port.parcels([("a", torch.arange(3))]))
    found: list[list[int]] = []
    for _ in range(2):
        receiver.receive(message, lambda piece: found.append(piece.content.view(piece.dtype).tolist()))
    (tmp_path / "files" / message["file"]).write_bytes(b"no tensors")
    with pytest.raises(Unreadable, match="SafetensorError"):
        receiver.receive(message, lambda piece: None)
    port.settle()

    assert found == [[0, 1, 2]] * 2


def test_a_link_is_not_followed(port: LeasedPort, receiver: Receiver, tmp_path: Path) -> None:
    """Whoever can put one there would have the receiver read another file."""
    message = next(port.parcels([("a", torch.zeros(3))]))
    (tmp_path / message["file"]).unlink()
    (tmp_path / "secret").write_bytes(b"x" * 4096)
    (tmp_path / message["file"]).symlink_to(tmp_path / "secret")
    with pytest.raises(Unreadable, match="it is a link"):
        receiver.receive(message, lambda piece: None)
    port.settle()

    assert (tmp_path / "secret").exists()


def test_a_buffer_whose_name_was_taken_away_is_not_used_again(port: LeasedPort, receiver: Receiver) -> None:
    """A stranger who tidies up costs one buffer, not the update."""
    names: list[str] = []
    found: list[float] = []
    for message in port.parcels([("a", torch.ones(2000))]):
        names.append(message["file"])
        receiver.receive(message, lambda piece: found.append(float(piece.content.view(piece.dtype).sum())))
        if len(names) == 1:
            (port._folder / names[0]).unlink()
    port.settle()

    assert len(set(names)) == 2
    assert sum(found) == 2000


def test_what_take_raises_comes_through_and_the_buffer_is_let_go_of(port: LeasedPort, receiver: Receiver) -> None:
    """Also while the error, whose frames have had views, is looked at."""
    message = next(port.parcels([("a", torch.zeros(3))]))

    def refuse(piece: Piece) -> None:
        view = piece.content.view(piece.dtype)
        raise KeyError(piece.name, view.numel())

    with pytest.raises(KeyError):
        receiver.receive(message, refuse)
    port.settle()

    assert port.outstanding_bytes() == 0
    assert receiver.let_go()


def test_every_stretch_begins_where_its_dtype_can_be_viewed() -> None:
    """And is at most a buffer; put together they are the tensors."""
    tensors = {"a": torch.arange(7, dtype=torch.uint8), "b": torch.randn(900), "c": torch.randn(33, 40).t()}
    whole = {name: torch.empty(tensor.shape, dtype=tensor.dtype) for name, tensor in tensors.items()}
    places = []
    for memory, pieces in packed(tensors.items(), 1024, lambda: torch.empty(1024, dtype=torch.uint8)):
        places += [one.at_bytes % ALIGN_BYTES for one in pieces]
        for one in pieces:
            assert memory.nbytes >= one.at_bytes + one.content.nbytes
            one.write_into(whole[one.name])

    assert len(places) > 4
    assert set(places) == {0}
    assert all(torch.equal(whole[name], tensors[name]) for name in tensors)


def test_a_dtype_that_no_receiver_knows_is_refused_by_the_sender() -> None:
    """By the tensor's name."""
    piece = Piece("q", torch.Size([2]), torch.quint8, 0, torch.zeros(2, dtype=torch.uint8))
    with pytest.raises(ValueError, match="q has dtype quint8"):
        message_of("file", "name", 2, [piece])


def test_a_folder_of_files_that_is_open_to_others_is_refused_on_both_sides(tmp_path: Path) -> None:
    """Files of weights are nobody else's to read or to write."""
    port = by_file(folder=tmp_path / "private")
    message = next(port.parcels([("a", torch.zeros(3))]))
    (tmp_path / "private").chmod(0o755)
    with pytest.raises(ConfigError, match="mode 0700"):
        by_file(folder=tmp_path / "private")
    with pytest.raises(Unreadable, match="mode 0700"):
        Receiver(files=tmp_path / "private").receive(message, lambda piece: None)
    port.settle()


def test_a_folder_of_files_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    """Before anything is sent."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be kept"):
        by_file(folder=tmp_path / "file" / "below")


@pytest.mark.parametrize("size", [0, 1023, "large"])
def test_a_buffer_has_room_for_a_probe(size: object, tmp_path: Path) -> None:
    """Bounded below too."""
    with pytest.raises(ConfigError, match="bucket_bytes"):
        by_host_buffer(size, folder=tmp_path)  # type: ignore[arg-type]


def test_where_there_is_no_device_its_memory_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the reason that the choice records; a handle is looked at before the driver sees it."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match="there is no CUDA device"):
        CudaIpc().buffer(1024)
    with pytest.raises(ValueError, match="a handle has device, handle"):
        CudaIpc().open({"device": 0})


class Exported:
    """A tensor whose storage exports what torch's does: device, handle, sizes, counter and event."""

    device = "cuda:0"

    def untyped_storage(self) -> Exported:
        return self

    def _share_cuda_(self) -> tuple[object, ...]:
        return (0, b"\x01\x02", 4096, 512, b"counter", 3, b"", True)


def test_a_cuda_handle_goes_through_json_and_comes_out_as_torch_gave_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a driver: what torch's storages give and take is carried bit for bit."""
    opened: list[tuple[object, ...]] = []

    def opening(*given: object) -> torch.UntypedStorage:
        opened.append(given)
        return torch.zeros(4096, dtype=torch.uint8).untyped_storage()

    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "ipc_collect", lambda: None)
    monkeypatch.setattr(torch.UntypedStorage, "_new_shared_cuda", opening)
    handle = json.loads(json.dumps(CudaIpc().export(Exported())))  # type: ignore[arg-type]
    memory = CudaIpc().open(handle)

    assert opened == [(0, b"\x01\x02", 4096, 512, b"counter", 3, b"", True)]
    assert (memory.dtype, memory.nbytes) == (torch.uint8, 4096)
