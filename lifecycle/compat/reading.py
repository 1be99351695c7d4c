"""Reading named tensors wherever their bytes are: live, or in the saver's own backup while they are paused.

The function of this name in miles and slime returns the live tensor whenever the library answers that there is no
backup, and asks the library also when the answer ends the process. Here the books are asked first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import Tensor

from lifecycle.compat.errors import StaleBackup
from lifecycle.compat.names import FrozenNames, NamedTensors, checked_saver, listed
from lifecycle.errors import UnreadableTensor
from lifecycle.saver import MemorySaver, Window
from lifecycle.saver.windows import Windows


def named_params_and_buffers(
    named: NamedTensors,
    *,
    translate_gpu_to_cpu: bool = False,
    saver: MemorySaver | None = None,
    frozen: Iterable[str] = (),
) -> Iterator[tuple[str, Tensor]]:
    """The named tensors; with *translate_gpu_to_cpu* each from where its bytes are now, zero-copy.

    All of them are looked at before this returns, so that nothing is half sent when one cannot be read; and each is
    looked at again when it is its turn, in case something was paused or resumed in between.

    Args:
        named: (name, tensor) pairs, such as ``model.named_parameters()``, or a mapping.
        translate_gpu_to_cpu: read paused tensors in the saver's backup. Otherwise they are given as they are.
        saver: whose books say what is paused; needed to translate.
        frozen: names or patterns of tensors that never change: a backup that the saver retained serves them.

    Returns:
        Pairs in the order of *named*. See :func:`maybe_get_cpu_backup` for who owns what is given, and until when.

    Raises:
        ConfigError: no names and tensors, or no saver that can be asked.
        UnreadableTensor, StaleBackup: see :func:`maybe_get_cpu_backup`; from the call, or when its turn comes.
    """
    tensors = listed(named)
    if not translate_gpu_to_cpu:
        return iter(tensors.items())
    reader = _Reader(checked_saver(saver), FrozenNames(frozen))
    for name, tensor in tensors.items():
        reader.read(name, tensor)
    return ((name, reader.read(name, tensor)) for name, tensor in tensors.items())


def maybe_get_cpu_backup(tensor: Tensor, saver: MemorySaver, *, name: str = "", frozen: bool = False) -> Tensor:
    """The bytes of one tensor from where they are now: its host backup while it is paused, itself while it is live.

    Args:
        tensor: a parameter or buffer.
        saver: whose books say what is paused.
        name: for messages.
        frozen: its bytes never change, so that a backup of the last pause is right also while it is live.

    Returns:
        The tensor itself, or a CPU tensor of its dtype, shape and strides that aliases the saver's backup. That
        memory belongs to the saver: it is not to be written to, and is gone with the next resume of its tag (with a
        saver that retains backups: changed by the next pause).

    Raises:
        ConfigError: the saver cannot be asked.
        UnreadableTensor: it is paused in a region without a backup in host memory. Asked directly, the native library
            ends the process (backup none), or says nothing and the paused memory would be read (backup disk).
        StaleBackup: it is live and the saver retains a backup of its last pause, which the library would give.
    """
    return _Reader(checked_saver(saver), FrozenNames((name,) if frozen else ())).read(name, tensor)


def own_bytes(name: str, tensor: Tensor, saver: MemorySaver | None) -> Tensor:
    """The tensor without gradient history, or its host backup while it is paused.

    Raises:
        UnreadableTensor: it is paused and its backup is not host memory.
    """
    window = None if saver is None or tensor.numel() == 0 else saver.window(tensor)
    if saver is None or window is None or window.live:
        return tensor.detach()
    found = None if window.host is None else saver.host_backup(tensor)
    if found is None:
        raise UnreadableTensor(name, f"tag {window.tag} is paused without a backup in host memory; resume it first")
    return found


class _Reader:
    def __init__(self, saver: MemorySaver, frozen: FrozenNames) -> None:
        self._saver = saver
        self._windows = Windows(saver)
        self._frozen = frozen

    def read(self, name: str, tensor: Tensor) -> Tensor:
        window = self._windows.of(tensor)
        if window.tag is None or tensor.numel() == 0:
            return tensor
        if window.host is None and window.live:
            return tensor
        if window.host is None:
            raise UnreadableTensor(name or "a tensor", self._why_not(window))
        if window.live and name not in self._frozen:
            raise StaleBackup(
                name or "a tensor",
                f"tag {window.tag} is active, and the backup that the saver retained holds the bytes of its last "
                "pause; read the live tensor (translate_gpu_to_cpu=False), or name it in frozen= if it never changes",
            )
        found = self._saver.host_backup(tensor)
        return self.read(name, tensor) if found is None else found  # another thread has resumed it meanwhile

    def _why_not(self, window: Window) -> str:
        backup = self._saver.tags()[str(window.tag)].backup
        return (
            f"tag {window.tag} is paused and its backup ({backup}) is not in host memory; resume it first, "
            "allocate it with a cpu backup, or keep a copy (TensorBackuper)"
        )
