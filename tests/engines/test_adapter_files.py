"""An adapter on its way to a server lies in a directory that is its owner's alone, and is gone after the load."""

from __future__ import annotations

import os
import stat
import weakref
from pathlib import Path

import pytest

from lifecycle.adapters.files import read_adapter
from lifecycle.engines.adapter_files import AdapterFiles
from lifecycle.errors import AdapterError, ConfigError
from tests.engines.world import adapter


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_written_adapter_is_a_peft_directory_with_the_bytes_of_the_payload() -> None:
    """Read back with the reader of this library, name by name and bit by bit."""
    payload = adapter("A", 3, seed=1)
    with AdapterFiles().written(payload) as place:
        found = read_adapter("A", place)

    assert (found.config.rank, found.config.alpha) == (payload.rank, payload.alpha)
    assert set(found.config.target_modules or ()) == set(payload.target_modules)
    assert found.tensors.keys() == payload.tensors.keys()
    assert all(found.tensors[name].equal(one) for name, one in payload.tensors.items())


def test_each_version_has_a_path_of_its_own_that_names_it() -> None:
    """A server that lists paths can be asked which version it holds; two versions may be on their way at once."""
    files = AdapterFiles()
    with files.written(adapter("A", 3, seed=1)) as first, files.written(adapter("A", 4, seed=2)) as second:
        both = sorted(path.name for path in (files.root / "A").iterdir())

    assert [first.relative_to(files.root).parts, second.relative_to(files.root).parts] == [("A", "v3"), ("A", "v4")]
    assert both == ["v3", "v4"]


def test_nobody_else_can_read_it() -> None:
    """Directories are 0700, files 0600."""
    files = AdapterFiles()
    with files.written(adapter("A", 3, seed=1)) as place:
        modes = {_mode(path) for path in (files.root, place.parent, place)}, {_mode(path) for path in place.iterdir()}

    assert modes == ({0o700}, {0o600})


def test_it_is_gone_after_the_load_and_after_a_load_that_failed() -> None:
    """Otherwise a server would load old bytes again by itself, and memory would fill up."""
    files = AdapterFiles()
    with files.written(adapter("A", 3, seed=1)):
        pass
    with pytest.raises(RuntimeError), files.written(adapter("A", 4, seed=1)):
        raise RuntimeError("the load failed")

    assert list(files.root.iterdir()) == []


def test_its_own_directory_goes_with_it(tmp_path: Path) -> None:
    """One that was given stays."""
    own, given = AdapterFiles(), AdapterFiles(tmp_path / "mine")
    roots = own.root, given.root
    del own, given

    assert [root.exists() for root in roots] == [False, True]
    assert _mode(tmp_path / "mine") == 0o700


def test_what_a_load_that_was_killed_left_behind_is_written_anew(tmp_path: Path) -> None:
    """The path of a version may exist already; what lies there is not mixed with the new files."""
    (tmp_path / "A" / "v3").mkdir(parents=True, mode=0o700)
    (tmp_path / "A" / "v3" / "stray").write_text("old")
    with AdapterFiles(tmp_path).written(adapter("A", 3, seed=1)) as place:
        names = sorted(path.name for path in place.iterdir())

    assert names == ["adapter_config.json", "adapter_model.safetensors"]


def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    """Before anything is written."""
    with pytest.raises(AdapterError), AdapterFiles(tmp_path).written(adapter("../A", 3, seed=1)):
        pass

    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_others_may_write_is_refused(tmp_path: Path) -> None:
    """Somebody else could put an adapter of his own there."""
    tmp_path.chmod(0o777)
    with pytest.raises(ConfigError, match="others may write"):
        AdapterFiles(tmp_path)


def test_no_room_is_an_error_that_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    """A file stands where the directory would be."""
    (tmp_path / "A").write_text("in the way")
    with (
        pytest.raises(AdapterError, match="cannot be written"),
        AdapterFiles(tmp_path).written(adapter("A", 3, seed=1)),
    ):
        pass

    assert (tmp_path / "A").read_text() == "in the way"


def test_an_adapter_that_is_kept_stays_until_it_is_not_named_any_more(tmp_path: Path) -> None:
    """For a server that may read it again; every other version goes."""
    files = AdapterFiles(tmp_path)
    places = [files.write(adapter(name, version, seed=1)) for name, version in (("a", 1), ("a", 2), ("b", 1))]
    files.keep(places[1:2])

    assert [place.exists() for place in places] == [False, True, False]
    assert places[1] == files.place("a", 2)
    assert [one.name for one in tmp_path.iterdir()] == ["a"]


def test_a_child_that_is_forked_leaves_them_there() -> None:
    """Its end is not the trainer's: the server still reads them."""
    files = AdapterFiles()
    place = files.write(adapter("A", 3, seed=1))
    child = os.fork()
    if child == 0:
        try:
            weakref.finalize._exitfunc()  # type: ignore[attr-defined]  # as a normal end does
        finally:
            os._exit(0)
    os.waitpid(child, 0)

    assert sorted(one.name for one in place.iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
