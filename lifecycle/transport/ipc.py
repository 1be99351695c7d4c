"""Memory of a device in two processes at once. The real one is CUDA's; it exists where the driver lets it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

import torch
from torch import Tensor, UntypedStorage

_NAMES: Final = ("device", "handle", "size", "offset", "counter", "counter_offset", "event", "event_sync")
_BYTES: Final = frozenset({"handle", "counter", "event"})


class DeviceIpc(Protocol):
    """How a device's memory is exported and opened."""

    def buffer(self, size_bytes: int) -> Tensor:
        """Memory that can be exported: uint8 ``[size_bytes]``. Never that of a memory saver, which cannot.

        Raises:
            RuntimeError: there is no such device, or no room on it.
        """

    def export(self, buffer: Tensor) -> Mapping[str, str | int]:
        """A handle that another process can open, as JSON values. What was written to the buffer is there for it.

        Raises:
            RuntimeError: the driver does not let it.
        """

    def open(self, handle: Mapping[str, str | int]) -> Tensor:
        """In the other process: the exporter's memory, uint8. Let go of with its last reference.

        Raises:
            RuntimeError: the driver does not let it.
            ValueError: it is no handle.
        """


class CudaIpc:
    """CUDA's handles, by way of torch's storages. Tensors are copied into its buffers: they are packed anew there.

    Call it outside of the saver's regions, as a push does: what torch allocates is then its own.
    """

    def buffer(self, size_bytes: int) -> Tensor:
        """See :meth:`DeviceIpc.buffer`; on the current device."""
        if not torch.cuda.is_available():
            raise RuntimeError("there is no CUDA device")
        return torch.empty(size_bytes, dtype=torch.uint8, device="cuda")

    def export(self, buffer: Tensor) -> Mapping[str, str | int]:
        """See :meth:`DeviceIpc.export`."""
        torch.cuda.synchronize(buffer.device)
        torch.cuda.ipc_collect()  # type: ignore[no-untyped-call]  # what earlier receivers have let go of
        shared = buffer.untyped_storage()._share_cuda_()  # type: ignore[no-untyped-call]  # what torch.multiprocessing sends
        return {name: value.hex() if name in _BYTES else int(value) for name, value in zip(_NAMES, shared, strict=True)}

    def open(self, handle: Mapping[str, str | int]) -> Tensor:
        """See :meth:`DeviceIpc.open`."""
        if handle.keys() != set(_NAMES):
            raise ValueError(f"a handle has {', '.join(_NAMES)}; this one has {', '.join(sorted(handle)) or 'nothing'}")
        told: dict[str, Any] = {
            name: bytes.fromhex(str(value)) if name in _BYTES else int(value) for name, value in handle.items()
        }
        told["event_sync"] = bool(told["event_sync"])
        storage = UntypedStorage._new_shared_cuda(*(told[name] for name in _NAMES))  # noqa: SLF001 - as above
        return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
