"""What the driver says of its devices, and whether torch would use them. No context is made: no memory is taken."""

from __future__ import annotations

import ctypes
import json
from typing import Any, Final

_NO_DRIVER: Final = 9
_TEXT_BYTES: Final = 96


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def from_driver(library: str) -> dict[str, Any]:
    """Version, the newest CUDA that it runs, and devices, by NVML; an empty version where there is no driver.

    Args:
        library: name or path of NVML.
    """
    try:
        nvml = ctypes.CDLL(library)
    except OSError:
        return {"driver": ""}
    if code := nvml.nvmlInit_v2():
        why = {} if code == _NO_DRIVER else {"why": f"the driver's NVML answers with error {code}"}
        return {"driver": "", **why}
    text, count, runs = ctypes.create_string_buffer(_TEXT_BYTES), ctypes.c_uint(), ctypes.c_int()
    nvml.nvmlSystemGetDriverVersion(text, _TEXT_BYTES)
    nvml.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(runs))
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    return {
        "driver": text.value.decode(),
        "runs": f"{runs.value // 1000}.{runs.value % 1000 // 10}",
        "devices": [_device(nvml, index) for index in range(count.value)],
    }


def _device(nvml: Any, index: int) -> tuple[str, int, int]:
    handle, name, memory = ctypes.c_void_p(), ctypes.create_string_buffer(_TEXT_BYTES), _Memory()
    nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
    nvml.nvmlDeviceGetName(handle, name, _TEXT_BYTES)
    nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
    return name.value.decode(), memory.total, memory.free


def from_torch() -> dict[str, Any]:
    """Its version, the CUDA that it was built for, and devices that it would use. It is told to ask NVML, not CUDA."""
    try:
        import torch  # noqa: PLC0415 - what the driver says is worth having without it
    except BaseException as error:  # noqa: BLE001 - whatever it raises
        return {"why": f"torch cannot be imported: {type(error).__name__}: {error}"}
    usable = int(torch.cuda.device_count()) if torch.cuda.is_available() else 0
    return {"torch": str(torch.__version__), "build": str(torch.version.cuda or ""), "usable": usable}


if __name__ == "__main__":
    print(json.dumps({**from_driver("libnvidia-ml.so.1"), **from_torch()}))  # noqa: T201 - the answer
