"""An adapter on its way to a server lies in a directory that is its owner's alone, and is gone after the load."""

from __future__ import annotations

import os
import shutil
import stat
import weakref
from pathlib import Path

import pytest

from lifecycle.adapters.files import read_adapter
from lifecycle.engines.adapter_files import PREFIX, AdapterFiles
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
    """One that was given stays, and has it in it."""
    own, given = AdapterFiles(), AdapterFiles(tmp_path / "mine")
    roots = own.root, given.root
    del own, given

    assert [root.exists() for root in roots] == [False, False]
    assert roots[1].parent == tmp_path / "mine"
    assert _mode(tmp_path / "mine") == 0o700


def test_what_lies_beside_its_adapters_is_left_alone(tmp_path: Path) -> None:
    """Files of the user, and those of another engine that was given the same directory."""
    mine = tmp_path / "llama" / "v1"
    mine.mkdir(parents=True)
    one, other = AdapterFiles(tmp_path), AdapterFiles(tmp_path)
    place = one.write(adapter("A", 3, seed=1))
    other.write(adapter("A", 3, seed=1))
    other.keep([])

    assert place.is_dir()
    assert mine.is_dir()
    assert not other.is_ours(place)


def test_what_somebody_wrote_who_is_gone_is_taken_over(tmp_path: Path) -> None:
    """A killed process has left its directory, one that ended has removed it; those of other programs are theirs."""
    killed, ended, lives = AdapterFiles(tmp_path), AdapterFiles(tmp_path), AdapterFiles(tmp_path)
    places = [one.write(adapter("A", 3, seed=1)) for one in (killed, ended, lives)]
    kept = shutil.copytree(killed.root, tmp_path / f"{PREFIX}killed") / "A" / "v3"
    del killed, ended
    files = AdapterFiles(tmp_path)
    strange = (tmp_path / "llama", tmp_path, Path("/models/a"), Path("relative"))

    assert [files.is_ours(one) for one in (kept, *places)] == [True, True, True, False]
    assert [files.is_ours(one) for one in strange] == [False] * 4


def test_what_a_load_that_was_killed_left_behind_is_written_anew(tmp_path: Path) -> None:
    """The path of a version may exist already; what lies there is not mixed with the new files."""
    files = AdapterFiles(tmp_path)
    (files.root / "A" / "v3").mkdir(parents=True, mode=0o700)
    (files.root / "A" / "v3" / "stray").write_text("old")
    with files.written(adapter("A", 3, seed=1)) as place:
        names = sorted(path.name for path in place.iterdir())

    assert names == ["adapter_config.json", "adapter_model.safetensors"]


def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    """Before anything is written."""
    files = AdapterFiles(tmp_path)
    with pytest.raises(AdapterError), files.written(adapter("../A", 3, seed=1)):
        pass

    assert [*files.root.iterdir(), *tmp_path.iterdir()] == [files.root]


def test_a_directory_that_others_may_write_is_refused(tmp_path: Path) -> None:
    """Somebody else could put an adapter of his own there."""
    tmp_path.chmod(0o777)
    with pytest.raises(ConfigError, match="others may write"):
        AdapterFiles(tmp_path)


def test_no_room_is_an_error_that_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    """A file stands where the directory would be."""
    files = AdapterFiles(tmp_path)
    (files.root / "A").write_text("in the way")
    with pytest.raises(AdapterError, match="cannot be written"), files.written(adapter("A", 3, seed=1)):
        pass

    assert (files.root / "A").read_text() == "in the way"


def test_an_adapter_that_is_kept_stays_until_it_is_not_named_any_more(tmp_path: Path) -> None:
    """For a server that may read it again; every other version goes."""
    files = AdapterFiles(tmp_path)
    places = [files.write(adapter(name, version, seed=1)) for name, version in (("a", 1), ("a", 2), ("b", 1))]
    files.keep(places[1:2])

    assert [place.exists() for place in places] == [False, True, False]
    assert places[1] == files.place("a", 2)
    assert [one.name for one in files.root.iterdir()] == ["a"]


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
