"""A registry's file that somebody else has written, cut or replaced: an error that says what is wrong, no registry."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lifecycle.adapters import AdapterRegistry, AdapterSettings, RegistryFileError
from lifecycle.adapters import saved as saved_module

Change = Callable[[dict[str, Any]], object]
_ORIGIN = {"adapter": "a", "registration_id": 1, "step": 3}


def registry() -> AdapterRegistry:
    """Three adapters, one of them completed, and a batch."""
    made = AdapterRegistry(slots=3)
    for name in ("gone", "a", "b"):
        made.register(name, settings=AdapterSettings(save=Path("/saves") / name, num_step=9))
    made.record_weight_update(["gone", "a", "b"])
    made.deregister("gone")
    made.retire_adapters()
    made.free_slot("gone")
    made.record_batch_adapters(4, {"a": 1, "b": 2}, ["a"])
    return made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A saved registry."""
    path = tmp_path / "registry.json"
    registry().save(path)
    return path


def refused(path: Path, why: str) -> None:
    """Loading it is an error that names the file and says why."""
    with pytest.raises(RegistryFileError, match=why) as caught:
        AdapterRegistry.load(path)
    assert caught.value.path == path


def rewrite(path: Path, change: Change) -> None:
    """Change the content, and make the hash right again: whoever can write the file can do that."""
    whole = json.loads(path.read_bytes())
    change(whole["registry"])
    body = json.dumps(whole["registry"])
    whole["sha256"] = hashlib.sha256(body.encode()).hexdigest()
    rest = json.dumps({key: whole[key] for key in ("schema", "sha256")})
    path.write_text(f'{rest[:-1]}, "registry": {body}}}')


def put(*keys: str | int, value: object) -> Change:
    """Set what stands at the end of a path of keys."""

    def change(content: Any) -> None:
        for key in keys[:-1]:
            content = content[key]
        content[keys[-1]] = value

    return change


def drop(*keys: str | int) -> Change:
    """Remove what stands at the end of a path of keys."""

    def change(content: Any) -> None:
        for key in keys[:-1]:
            content = content[key]
        del content[keys[-1]]

    return change


def test_the_way_these_tests_rewrite_a_file_is_accepted(file: Path) -> None:
    """The control: without a change the rewritten file is the registry."""
    rewrite(file, lambda content: None)

    assert AdapterRegistry.load(file).snapshot() == registry().snapshot()


def test_a_file_that_is_cut_anywhere_is_refused(file: Path) -> None:
    """From nothing at all to all but the last brace."""
    whole = file.read_bytes().rstrip()
    for length in range(0, len(whole), 37):
        file.write_bytes(whole[:length])
        refused(file, "truncated or malformed")
    file.write_bytes(whole[:-1])
    refused(file, "truncated or malformed")


def test_a_byte_that_has_changed_is_noticed(file: Path) -> None:
    """Also where the file is still good JSON with right types: a version that went back would serve old weights."""
    text = file.read_text()
    assert '"slot_versions":[1,1,1]' in text
    file.write_text(text.replace('"slot_versions":[1,1,1]', '"slot_versions":[0,0,0]'))

    refused(file, "not what was written")


@pytest.mark.parametrize("schema", ["adapter-lifecycle/registry/2", "", "x" * 100_000])
def test_a_file_of_another_schema_is_refused_and_both_are_named(file: Path, schema: str) -> None:
    """It may mean something else by the same keys."""
    whole = json.loads(file.read_bytes())
    file.write_text(json.dumps(whole | {"schema": schema}))

    refused(file, rf"its schema is '{schema[:80]}', this release reads 'adapter-lifecycle/registry/1'")


@pytest.mark.parametrize(
    "content", [b"", b"null", b"[]", b"3", b"{}", b"\xff\xfe", b'{"schema": 3}', b"[" * 100_000, b'{"a":' * 100_000]
)
def test_a_file_that_is_something_else_is_refused(file: Path, content: bytes) -> None:
    """Empty, no object, no UTF-8, or nested without end."""
    file.write_bytes(content)

    refused(file, "truncated or malformed")


@pytest.mark.parametrize(
    "change",
    [
        put("slot_versions", value=[]),
        put("slot_versions", value=[1, 1, -1]),
        put("slot_versions", value=[1, 1, 1.0]),
        put("slot_versions", value=[1, 1, True]),
        put("slot_versions", value="111"),
        put("slot_versions", value=[1, 1, 10**30]),
        put("next_registration_id", value=0),
        put("next_registration_id", value="4"),
        put("adapters", value={}),
        put("adapters", 0, value=None),
        put("adapters", 0, "state", value="served"),
        put("adapters", 0, "step", value=-1),
        put("adapters", 0, "step", value=None),
        put("adapters", 0, "adapter", "slot", value=-1),
        put("adapters", 0, "adapter", "name", value=3),
        put("adapters", 0, "settings", "num_step", value=0),
        put("adapters", 0, "settings", "trainable", value=1),
        put("adapters", 0, "settings", "save", value=["/x"]),
        put("adapters", 0, "source", "rank", value=0),
        put("adapters", 0, "source", "alpha", value="8"),
        put("adapters", 0, "source", "seed", value=2**63),
        put("adapters", 0, "source", "identity", value={}),
        put("adapters", 0, "source", "checkpoint", value={"origin": _ORIGIN, "manifest_sha256": "0" * 64}),
        put("adapters", 0, "resumed_from", value={"adapter": "a", "registration_id": 1}),
        put("adapters", 0, "more", value=1),
        put("more", value=1),
        drop("batches"),
        drop("adapters", 0, "lost"),
        put("batches", 0, "groups", 0, value=["a", 1]),
        put("batches", 0, "groups", 0, 1, value=0),
        put("batches", 0, "rollout_id", value="4"),
    ],
)
def test_a_value_of_a_wrong_type_or_range_is_refused(file: Path, change: Change) -> None:
    """Nothing is converted, nothing unknown is passed over, nothing missing is made up."""
    rewrite(file, change)

    refused(file, "truncated or malformed")


def _completed_in_a_slot(content: dict[str, Any]) -> None:
    content["adapters"].append(content["completed"].pop())


def _many(key: str, *, numbered: Callable[[Any, int], object], count: int) -> Change:
    def change(content: dict[str, Any]) -> None:
        copies = [json.loads(json.dumps(content[key][0])) for _ in range(count)]
        for number, one in enumerate(copies):
            numbered(one, number)
        content[key] = copies
        content["next_registration_id"] = 10**6

    return change


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_completed_in_a_slot, "'gone' is completed and holds a slot"),
        (put("completed", 0, "state", value="active"), "stands among the completed and is not"),
        (put("adapters", 0, "adapter", "name", value="../x"), "has '/' in it"),
        (put("adapters", 0, "adapter", "name", value=".."), "means a directory"),
        (put("adapters", 0, "adapter", "name", value="b"), "the name 'b' stands 2 times"),
        (put("adapters", 0, "adapter", "slot", value=2), "the slot 2 stands 2 times"),
        (put("adapters", 0, "adapter", "slot", value=3), "'a' has slot 3 of 3"),
        (put("adapters", 0, "adapter", "registration_id", value=3), "the registration id 3 stands 2 times"),
        (put("adapters", 0, "adapter", "registration_id", value=1), "the registration id 1 stands 2 times"),
        (put("adapters", 0, "adapter", "registration_id", value=4), "'a' has the id 4, the next one is 4"),
        (put("adapters", 0, "settings", "save", value="/saves/b"), "the save directory '/saves/b' stands 2 times"),
        (put("adapters", 0, "settings", "save", value="/saves/b/step_1"), "'/saves/b/step_1' lies in that of another"),
        (put("adapters", 0, "settings", "save", value="saves"), "not absolute"),
        (put("adapters", 0, "settings", "num_epoch", value=1), "both given"),
        (put("adapters", 0, "num_step", value=8), "runs for 8 steps, and was registered for 9"),
        (put("adapters", 0, "source", value=None), "neither source nor loss"),
        (put("adapters", 0, "lost", value="gone"), "a source that is lost"),
        (put("adapters", 0, "source", "path", value="/etc"), "a source that nobody can have given"),
        (put("adapters", 0, "source", "alpha", value=-1.0), "a source that nobody can have given"),
        (put("adapters", 0, "source", "target_modules", value=[]), "a source that nobody can have given"),
        (put("batches", 0, "steps", value=["c"]), "batch 4 steps adapters that are not in it"),
        (put("batches", 0, "steps", value=["b", "a"]), "or not in order"),
        (put("batches", 0, "groups", 1, 0, "name", value="a"), "the name in batch 4 'a' stands 2 times"),
        (_many("batches", numbered=lambda one, number: None, count=2), "the rollout id 4 stands 2 times"),
        (_many("batches", numbered=lambda one, n: one.update(rollout_id=n), count=17), "17 batches"),
        (_many("completed", numbered=lambda one, n: one["adapter"].update(registration_id=n + 9), count=1025), "1025"),
    ],
)  # fmt: skip
def test_a_registry_that_contradicts_itself_is_refused_and_the_contradiction_named(
    file: Path, change: Change, why: str
) -> None:
    """What the registry keeps true of itself is true of what it is loaded from."""
    rewrite(file, change)

    refused(file, f"contradicts itself: .*{why}")


def test_a_link_is_not_followed(file: Path, tmp_path: Path) -> None:
    """Neither to read nor to write: whoever placed it chooses the file."""
    link = tmp_path / "link.json"
    link.symlink_to(file)
    before = file.read_bytes()

    refused(link, "it is a link")
    with pytest.raises(RegistryFileError, match="it is a link"):
        AdapterRegistry(slots=1).save(link)
    assert file.read_bytes() == before
    assert link.is_symlink()


def test_what_is_no_plain_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    """A directory, a pipe that nobody writes to, nothing at all, a path that is none."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    refused(pipe, "no plain file")
    refused(tmp_path, "no plain file|cannot be read")
    refused(tmp_path / "nothing", "there is no such file")
    refused(tmp_path / "no\x00thing", "cannot be read")
    for place in (pipe, tmp_path, tmp_path / "no" / "directory", tmp_path / "no\x00thing"):
        with pytest.raises(RegistryFileError):
            AdapterRegistry(slots=1).save(place)
    assert sorted(tmp_path.iterdir()) == [pipe]


def test_a_file_larger_than_any_registry_is_not_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its size is looked at before memory is taken."""
    monkeypatch.setattr(saved_module, "FILE_BYTES_MAX", 100)

    refused(file, "at most 100 can be right")


@given(data=st.data())
@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_damage_is_an_error_of_the_registry_file_or_harmless(file: Path, data: st.DataObject) -> None:
    """Bytes put in, taken out or replaced anywhere: the file is refused, or it is the same registry."""
    registry().save(file)
    whole = bytearray(file.read_bytes())
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at : at + data.draw(st.integers(0, 5))] = data.draw(st.binary(max_size=5))
    file.write_bytes(bytes(whole))
    try:
        loaded = AdapterRegistry.load(file)
    except RegistryFileError:
        return
    assert loaded.snapshot() == registry().snapshot()
