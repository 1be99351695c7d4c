"""One rank of the demo. Run as ``python -m lifecycle.demo.rank``, by the command and with its pipes.

Its first line of input says what to do. It ends by itself, and when its input ends: whoever started it is gone then.
"""

from __future__ import annotations

import io
import os
import shutil
import threading
from typing import BinaryIO, Final

from lifecycle.demo.errors import PeersLost
from lifecycle.demo.messages import Failure, Message, Progress, Start, decoded, encoded
from lifecycle.demo.seat import backup_folder
from lifecycle.distributed import RankFenced, RanksDisagree, RanksFailed, RanksMissing
from lifecycle.errors import LifecycleError
from lifecycle.process_groups import ProcessGroupError

_JOINT: Final = (RanksDisagree, RanksFailed, RanksMissing)
_FOLLOW: Final = (PeersLost, ProcessGroupError, RanksMissing, RankFenced)
_ABANDONED: Final = 3


def main() -> None:
    """Take part in one run."""
    told, tell = _pipes()
    start = decoded(told.readline(), Start)
    threading.Thread(target=_end_with_the_command, args=(told, start), daemon=True).start()
    _say(tell, _run(start, tell))


def _pipes() -> tuple[io.FileIO, BinaryIO]:
    """Input and output of this process alone: what a library prints goes where errors go."""
    told, tell = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    return io.FileIO(told, "rb"), os.fdopen(tell, "wb")


def _say(tell: BinaryIO, message: Message) -> None:
    tell.write(encoded(message))
    tell.flush()


def _end_with_the_command(told: io.FileIO, start: Start) -> None:
    """Wait for the end of the input, and leave nothing behind. The main thread may be waiting for other ranks."""
    while told.read(1):
        pass
    shutil.rmtree(backup_folder(start.options.out, start.seat), ignore_errors=True)
    os._exit(_ABANDONED)


def _run(start: Start, tell: BinaryIO) -> Message:
    from lifecycle.demo.run import run_demo  # noqa: PLC0415 - heavy: by now this process ends with the command

    def progress(what: str, turns: int) -> None:
        if start.seat.rank == 0:
            _say(tell, Message(progress=Progress(what, turns)))

    try:
        return Message(report=run_demo(start.options, progress, start.seat))
    except Exception as error:  # noqa: BLE001 - the command reports it
        return Message(failure=_failure(start.seat.rank, error))


def _failure(rank: int, error: Exception) -> Failure:
    cause = getattr(error, "cause", None) or error
    why = str(error) if isinstance(error, LifecycleError) else f"{type(error).__name__}: {error}"
    joint, follows = isinstance(cause, _JOINT), isinstance(cause, _FOLLOW)
    return Failure(rank, " ".join(why.split()), type(error).__name__, is_joint=joint, is_consequence=follows)


if __name__ == "__main__":
    main()
