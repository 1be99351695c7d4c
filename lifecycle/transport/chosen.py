"""The way that is taken to one engine: the fastest that carried a real tensor there and back in a probe."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from lifecycle.errors import ConfigError, EngineError
from lifecycle.transport.leased import Unreadable
from lifecycle.transport.ports import StillHeld, Transport, TransportPort
from lifecycle.transport.receivers import Note, TransportBroken
from lifecycle.weights.chunks import buffer_of, host_chunks

Message = Mapping[str, Any]
Probe = Callable[[Message], Mapping[str, str]]
Deliver = Callable[[Message], None]

_NOTES_KEPT: Final = 64


class ChosenTransport:
    """Sends tensors to one engine by the first of several ways that works there.

    The first send to an instance of the engine probes the ways in order: small tensors go through the very mechanism,
    the engine reads them back and answers their digests. Nothing of the engine's is written. A probe that fails is no
    error; why it failed stands in the note of the choice. Later sends do not probe.

    Args:
        engine: its name.
        ports: the ways, the fastest first.
        probe: hands the engine a message and gives its answer, SHA-256 by tensor name. Raises Unreadable where the
            engine says that it cannot read it.

    Raises:
        ConfigError: there is no way, or one twice.
    """

    def __init__(self, engine: str, ports: Sequence[TransportPort], probe: Probe) -> None:
        kinds = [one.transport for one in ports]
        if not kinds or len(set(kinds)) < len(kinds):
            raise ConfigError(f"engine {engine} is sent to by {kinds}; give at least one transport, each once")
        self._engine = engine
        self._ports = tuple(ports)
        self._probe = probe
        self._chosen: TransportPort | None = None
        self._instance = ""
        self._reasons: dict[str, str] = {}
        self._notes: list[Note] = []

    @property
    def chosen(self) -> Transport | None:
        """The way that is taken, None before the first send."""
        return None if self._chosen is None else self._chosen.transport

    @property
    def reasons(self) -> Mapping[str, str]:
        """Why the faster ones are not taken, by their names."""
        return dict(self._reasons)

    def transport_notes(self) -> tuple[Note, ...]:
        """See :meth:`ChoosesTransport.transport_notes`."""
        told, self._notes = tuple(self._notes), []
        return told

    def outstanding_bytes(self) -> int:
        """Bytes of buffers that the engine has not let go of, on whichever way."""
        return sum(port.outstanding_bytes() for port in self._ports)

    def settle(self) -> None:
        """The update was committed or aborted: buffers go back, those still read as soon as they are let go of."""
        for port in self._ports:
            port.settle()

    def send(self, instance_id: str, tensors: Iterable[tuple[str, Tensor]], deliver: Deliver) -> None:
        """Send tensors, buffer by buffer.

        Args:
            instance_id: of the engine now; another than before is probed anew.
            tensors: what the iterable raises comes through as it is.
            deliver: hands the engine a message and returns when it has copied. Raises Unreadable where the engine says
                that it cannot read it; what else it raises comes through.

        Raises:
            TransportBroken: the way broke. The update is to be aborted and begun again, from its first buffer.
            EngineError: no way works, or the engine keeps the buffers.
        """
        port = self._way(instance_id)
        source = _Source(tensors)
        try:
            for message in port.parcels(source):
                try:
                    deliver(message)
                except Unreadable:
                    raise
                except Exception as error:
                    source.error = error
                    raise
        except StillHeld as error:
            raise EngineError(self._engine, f"{error}; it has to close them as it reads") from error
        except Exception as error:
            if error is source.error:
                raise
            raise self._broke(port, error) from error

    def _way(self, instance_id: str) -> TransportPort:
        if self._instance != instance_id:
            self._instance, self._chosen, self._reasons = instance_id, None, {}
        if self._chosen is None:
            self._chosen = self._choose()
        return self._chosen

    def _choose(self) -> TransportPort:
        for port in self._ports:
            if port.transport in self._reasons:
                continue  # it broke
            why = self._tried(port)
            if not why:
                self._tell("a transport was chosen", transport=port.transport, because=dict(self._reasons))
                return port
            self._reasons[port.transport] = why
        told, self._reasons = dict(self._reasons), {}
        self._tell("no transport works", because=told)
        raise EngineError(self._engine, "; ".join(f"{kind}: {why}" for kind, why in told.items()))

    def _tried(self, port: TransportPort) -> str:
        """Why a way does not work, empty when it does."""
        sent = _samples()
        try:
            for message in port.parcels(sent.items()):
                answer = self._probe(message)
                wrong = sorted(name for name, digest in _digests(sent).items() if answer.get(name) != digest)
                if wrong:
                    return f"the bytes that arrived are others: {', '.join(wrong)}"
        except EngineError:
            raise  # the engine does not answer: that says nothing of the way
        except Exception as error:  # noqa: BLE001 - whatever it is, this way does not work
            return f"{type(error).__name__}: {error}"
        finally:
            port.settle()
        return ""

    def _broke(self, port: TransportPort, error: Exception) -> TransportBroken:
        port.settle()
        why = f"{type(error).__name__}: {error}"
        self._chosen, self._reasons[port.transport] = None, f"it broke: {why}"
        another = any(one.transport not in self._reasons for one in self._ports)
        if not another:
            self._reasons = {}
        self._tell("a transport broke", transport=port.transport, error=why)
        return TransportBroken(self._engine, port.transport, why, another=another)

    def _tell(self, note: str, **keys: object) -> None:
        self._notes.append((note, {"engine": self._engine, "instance": self._instance, **keys}))
        del self._notes[:-_NOTES_KEPT]


class _Source:
    """Tensors on their way, and the error that is not the way's: of reading them, or of the engine."""

    def __init__(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        self._tensors = tensors
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        try:
            yield from self._tensors
        except Exception as error:
            self.error = error
            raise


def _samples() -> dict[str, Tensor]:
    """Small tensors of several dtypes, one of them strided: another each time, so that no old answer is right."""
    draw = torch.Generator().manual_seed(secrets.randbits(63))  # of its own: training's random numbers stay as they are
    return {
        "probe.float32": torch.rand(5, 7, generator=draw).t(),
        "probe.bfloat16": torch.rand(3, 11, generator=draw).to(torch.bfloat16),
        "probe.uint8": torch.randint(0, 256, (129,), dtype=torch.uint8, generator=draw),
    }


def _digests(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    found = {}
    for name, tensor in tensors.items():
        total = hashlib.sha256()
        for chunk in host_chunks(tensor):
            total.update(buffer_of(chunk))
        found[name] = total.hexdigest()
    return found
