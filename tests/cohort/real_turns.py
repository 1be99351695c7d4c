"""A cohort over the compiled torch_memory_saver: what it does not refuse in time ends the process."""

from __future__ import annotations

from pathlib import Path

from lifecycle import LifecycleError
from lifecycle.saver.room import CarefulSaver
from tests.cohort.world import NAMES, make_world
from tests.saver.real_port import RealLibrary, RealPort


def main(stub: str, folder: str) -> None:
    """Turns in every order with steps in between; then the device shrinks to what is held. One line a finding."""
    library = RealLibrary(Path(stub))
    world = make_world(saver=CarefulSaver(RealPort(library, folder), disk_dir=folder))
    for name in (*NAMES, *reversed(NAMES), "critic", "actor"):
        held = world.all_bytes()
        with world.cohort.turn(name):
            assert world.all_bytes() == held
            world.train(name)
        assert world.cohort.usage().total == world.saver.usage()
    print("turns held", flush=True)

    library.driver.stub_set_capacity(library.used_bytes())
    held = world.all_bytes()
    try:
        world.cohort.awake(*NAMES)
    except LifecycleError as error:
        print(type(error).__name__, flush=True)
    assert world.all_bytes() == held
    world.cohort.awake("teacher")
    assert world.awake == ("teacher",)
    print("lives", flush=True)
