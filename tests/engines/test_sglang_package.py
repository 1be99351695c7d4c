"""What is sent to SGLang, and what is believed of it, against the published package."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lifecycle.engines import BASE_ONLY
from lifecycle.engines.sglang.calls import SglangCalls
from lifecycle.engines.sglang.tensors import chunks, serialized
from tests.engines.sglang_host import Heard, SglangHost, sglang
from tests.engines.sglang_package import Package, download
from tests.engines.sglang_rules import Died, Refused, Sglang, digest_of, read_tensors
from tests.engines.sglang_world import adapter, answer, base, engine_at, push, started

WEIGHT_UPDATER = "managers/scheduler_components/weight_updater.py"
PYTHON_TYPES: dict[str, Callable[[Any], bool]] = {
    "str": lambda value: isinstance(value, str),
    "bool": lambda value: isinstance(value, bool),
    "Optional[str]": lambda value: value is None or isinstance(value, str),
    "Optional[List[str]]": lambda value: value is None or all(isinstance(one, str) for one in value),
    "Dict[str, Any]": lambda value: isinstance(value, dict),
    "Optional[Dict[str, str]]": lambda value: isinstance(value, dict) and all(map(str.__instancecheck__, value)),
    "Annotated[List[bytes], Base64Bytes()]": lambda value: all(base64.b64decode(one, validate=True) for one in value),
}


@pytest.fixture(scope="module")
def package(request: pytest.FixtureRequest) -> Package:
    """The wheel; kept in pytest's cache from run to run."""
    return Package(download(Path(request.config.cache.mkdir("sglang"))))


def everything(host: SglangHost) -> list[Heard]:
    """One of each request that the engine ever sends."""
    engine = engine_at(host, pinned=True)
    push(engine, adapter("A", 1), base_version=2, seed=5)
    push(engine_at(host, by_value=True), adapter("A", 2), base_version=2, seed=5)
    engine.release(["weights", "kv_cache", "cuda_graph"])
    engine.resume(["weights", "kv_cache", "cuda_graph"])
    push(engine, adapter("A", 3), base_version=3)
    answer(engine, BASE_ONLY)
    answer(engine, "A")
    engine._calls.busy()
    return host.heard


@pytest.fixture(scope="module")
def heard() -> list[Heard]:
    """What a server was asked by all of it."""
    with sglang(started()) as host:
        return list(everything(host))


def test_every_request_goes_to_a_path_that_exists(package: Package, heard: list[Heard]) -> None:
    """With the method that it is served under."""
    sent = {(one.method, one.path) for one in heard}

    assert sent - package.routes.keys() == set()
    assert len(sent) == 18


def test_every_request_is_made_by_the_engine() -> None:
    """No method of the calls is left out above."""
    with sglang(started()) as host:
        used: set[str] = set()
        names = [name for name in vars(SglangCalls) if not name.startswith("_")]
        for name in names:
            _note(used, SglangCalls, name)
        try:
            everything(host)
        finally:
            for name in names:
                setattr(SglangCalls, name, getattr(SglangCalls, name).__wrapped__)

    assert used == set(names)


def test_every_field_that_is_sent_exists_and_no_required_one_is_missing(package: Package, heard: list[Heard]) -> None:
    """SGLang ignores a field that it does not know, in silence: a misspelt one would be lost."""
    wrong = []
    for one in heard:
        name = package.body_class(one.method, one.path)
        fields = package.fields(name) if name else {}
        body = one.body or {}
        wrong += [f"{one.path}: {field} is no field" for field in body.keys() - fields.keys()]
        wrong += [
            f"{one.path}: {key} is missing" for key, field in fields.items() if field.required and key not in body
        ]

    assert wrong == []


def test_every_value_that_is_sent_has_the_type_of_its_field(package: Package, heard: list[Heard]) -> None:
    """By the annotations of the request classes; ``/generate`` has a decoder of its own."""
    checked = set()
    for one in (one for one in heard if one.method == "POST" and one.path != "/generate" and one.body):
        fields = package.fields(package.body_class(one.method, one.path) or "")
        for key, value in one.body.items():
            annotation = fields[key].annotation
            if annotation.startswith("Literal"):
                assert repr(value) in annotation, f"{one.path} {key}"
            else:
                assert PYTHON_TYPES[annotation](value), f"{one.path} {key}"
            checked.add((one.path, key))

    assert len(checked) == 19


def test_a_request_to_generate_fulfils_the_schema(package: Package, heard: list[Heard], tmp_path: Path) -> None:
    """SGLang decodes the body with its generated decoder before anything else."""
    decoder = package.generate_contract(tmp_path).GenerateRequest
    bodies = [one.body for one in heard if one.path == "/generate"]

    assert [decoder.from_json_value(body).lora_path is None for body in bodies] == [True, False]
    with pytest.raises(ValueError, match="TokenIds"):
        decoder.from_json_value(bodies[0] | {"input_ids": "no"})


def test_query_parameters_exist(package: Package, heard: list[Heard]) -> None:
    """Of those requests that have some."""
    sent = {(one.method, one.path): set(one.query) for one in heard if one.query}

    assert {key: names - package.query(*key) for key, names in sent.items()} == {key: set() for key in sent}
    assert sent.keys() == {("POST", "/flush_cache"), ("GET", "/v1/loads")}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int8, torch.bool])
def test_tensors_are_read_back_bit_for_bit_by_its_own_unpickler(package: Package, dtype: torch.dtype) -> None:
    """Views, transposed ones and parameters too; its list of allowed globals lets all of them pass."""
    whole = torch.randn(6, 4).to(dtype)
    parameter = torch.nn.Parameter(torch.randn(2, 2))
    tensors = {"view": whole[1:3], "turned": whole.T, "one": whole[0, 0], "none": whole[:0], "trained": parameter}
    found = package.unpickle(base64.b64decode(serialized(tensors)))
    pairs = package.unpickle(base64.b64decode(serialized(list(tensors.items()))))

    assert found.keys() == tensors.keys()
    assert all(found[name].dtype == one.dtype and torch.equal(found[name], one) for name, one in tensors.items())
    assert [name for name, _ in pairs] == list(tensors)


def test_what_is_read_is_what_the_rules_of_the_tests_read(package: Package) -> None:
    """The server of the tests has an unpickler of its own."""
    text = serialized(base(5))

    assert digest_of(package.unpickle(base64.b64decode(text))) == digest_of(read_tensors(text)) == digest_of(base(5))


def test_a_view_brings_only_its_own_bytes() -> None:
    """An adapter lies in a slot of a much larger storage."""
    whole = torch.zeros(1_000_000)

    assert len(serialized({"a": whole[:4]})) < 2_000


def test_chunks_are_bounded_and_leave_nothing_out() -> None:
    """A tensor that is larger than the bound is alone."""
    pairs = [(str(size), torch.zeros(size, dtype=torch.uint8)) for size in (3, 4, 9, 1, 1, 1)]

    assert [[name for name, _ in chunk] for chunk in chunks(pairs, 7)] == [["3", "4"], ["9"], ["1", "1", "1"]]
    assert list(chunks([], 7)) == []


class Theirs:
    """The memory methods of SGLang's scheduler, on a saver that ends the process where torch_memory_saver does."""

    def __init__(self, package: Package) -> None:
        names = ("KV_CACHE", "WEIGHTS", "CUDA_GRAPH")
        tags = {f"GPU_MEMORY_TYPE_{name}": name.lower() for name in names}
        output = {f"{kind}MemoryOccupationReqOutput": SimpleNamespace for kind in ("Release", "Resume")}
        session = {f"{kind}WeightUpdateReqOutput": SimpleNamespace for kind in ("Begin", "End")}
        quiet = SimpleNamespace(synchronize=lambda: None)
        fake_torch = SimpleNamespace(
            get_device_module=lambda: quiet, distributed=SimpleNamespace(barrier=lambda *_, **__: None)
        )
        space: dict[str, Any] = (
            tags
            | output
            | session
            | {
                "GPU_MEMORY_ALL_TYPES": list(tags.values()),
                "DisaggregationMode": SimpleNamespace(DECODE=1, PREFILL=2),
                "torch": fake_torch,
                "_export_static_state": lambda _: {},
                "_import_static_state": lambda *_: None,
                "_WeightUpdateSession": lambda selector: SimpleNamespace(selector=selector, loaded_weights=False),
            }
        )
        calls = ("release_memory_occupation", "resume_memory_occupation", "begin_weight_update", "end_weight_update")
        self._calls = package.methods(WEIGHT_UPDATER, "SchedulerWeightUpdaterManager", calls, space)
        self.running = 0
        self._paused: set[str] = set()
        self._me = SimpleNamespace(
            scheduler=None,
            is_fully_idle=lambda **_: not self.running,
            offload_tags=set(),
            memory_saver_adapter=SimpleNamespace(pause=self._pause, resume=self._paused.discard),
            flush_cache=lambda: True,
            tp_cpu_group=None,
            tp_worker=SimpleNamespace(model_runner=SimpleNamespace(model=None)),
            stashed_model_static_state=None,
            _assert_weight_cache_inactive=lambda _: None,
            _select_runners=lambda *_: [],
            _session=None,
        )

    def _pause(self, tag: str) -> None:
        if tag in self._paused:
            raise SystemExit(1)
        self._paused.add(tag)

    def ask(self, call: str, tags: list[str] | None) -> str:
        try:
            said = self._calls[call](self._me, SimpleNamespace(tags=tags, selector="target"))
        except (AssertionError, KeyError, SystemExit):
            return "died"
        return "refused" if getattr(said, "success", True) is False else "done"


class Ours:
    """The rules of the tests."""

    def __init__(self) -> None:
        self.process = Sglang(started())

    @property
    def running(self) -> int:
        return len(self.process.running)

    @running.setter
    def running(self, count: int) -> None:
        self.process.running = [None] * count

    def ask(self, call: str, tags: list[str] | None) -> str:
        try:
            getattr(self.process, call)({"tags": tags})
        except Died:
            return "died"
        except Refused:
            return "refused"
        return "done"


RELEASE, RESUME, BEGIN, END = (
    "release_memory_occupation", "resume_memory_occupation", "begin_weight_update", "end_weight_update",
)  # fmt: skip
SEQUENCES: list[list[tuple[str, list[str] | None]]] = [
    [(RELEASE, ["weights"]), (RELEASE, ["weights"])],
    [(RELEASE, ["weights"]), (RELEASE, ["kv_cache", "weights"])],
    [(RELEASE, ["weights"]), (RELEASE, ["kv_cache"]), (RESUME, ["weights", "kv_cache"])],
    [(RELEASE, None), (RESUME, ["kv_cache"]), (RESUME, ["weights", "cuda_graph"])],
    [(RELEASE, None), (RELEASE, ["cuda_graph"])],
    [(RESUME, ["weights"])],
    [(RESUME, None)],
    [(RELEASE, ["kv_cache"]), (RESUME, None)],
    [(RELEASE, ["kv_cache"]), (RESUME, ["kv_cache"]), (RESUME, ["kv_cache"])],
    [(RELEASE, ["kv_cache"]), (RESUME, ["kv_cache"]), (RELEASE, ["kv_cache"])],
    [(BEGIN, None), (BEGIN, None), (END, None), (END, None), (BEGIN, None)],
    [(END, None)],
]


@pytest.mark.parametrize("sequence", SEQUENCES)
@pytest.mark.parametrize("running", [0, 1])
def test_the_rules_of_the_tests_are_those_of_the_package(
    package: Package, sequence: list[tuple[str, list[str] | None]], running: int
) -> None:
    """The same calls to the package's own methods and to the server of the tests end alike, each one of them."""
    outcomes: list[list[str]] = []
    for server in (Theirs(package), Ours()):
        server.running = running
        said: list[str] = []
        for call, tags in sequence:
            if "died" not in said:
                said.append(server.ask(call, tags))
        outcomes.append(said)

    assert outcomes[0] == outcomes[1]


class TheirAdapters:
    """The adapter checks of SGLang's LoRA manager."""

    def __init__(self, package: Package, per_batch: int, rank_max: int) -> None:
        calls = ("_load_lora_adapter", "validate_new_adapter", "create_lora_update_result", "_unload_lora_adapter")
        logger = SimpleNamespace(warning=lambda *_: None, info=lambda *_: None)
        space = {"logger": logger, "LoRAUpdateOutput": SimpleNamespace, "LoRAConfig": self._config}
        found = package.methods("lora/lora_manager.py", "LoRAManager", calls, space)
        self._rank = 0
        self._me = SimpleNamespace(
            attn_dp_enabled=False,
            base_hf_config=SimpleNamespace(vocab_size=10),
            loras={},
            configs={},
            lora_refs={},
            num_pinned_loras=0,
            max_loras_per_batch=per_batch,
            memory_pool=SimpleNamespace(can_support=lambda config: config.r <= rank_max, remove_lora=lambda _: None),
            load_lora_weights=lambda ref: self._me.loras.update({ref.lora_id: ref}),
        )
        for name in calls:
            setattr(self._me, name, found[name].__get__(self._me))

    def _config(self, *_: object, **__: object) -> SimpleNamespace:
        return SimpleNamespace(r=self._rank, lora_added_tokens_size=0, use_dora=False)

    def load(self, name: str, rank: int, *, pinned: bool) -> bool:
        self._rank = rank
        identity = f"{name}-{len(self._me.loras)}"
        ref = SimpleNamespace(lora_id=identity, lora_name=name, lora_path=f"/{identity}", pinned=pinned)
        return bool(self._me._load_lora_adapter(ref).success)


def test_the_adapter_rules_of_the_tests_are_those_of_the_package(package: Package) -> None:
    """Which loads are refused: a name that is loaded, a rank that is too large, the last place pinned."""
    process = Sglang(started(max_loras_per_batch=3, max_lora_rank=8))
    theirs = TheirAdapters(package, per_batch=3, rank_max=8)
    loads = [("A", 2, True), ("A", 2, False), ("B", 9, False), ("B", 8, True), ("C", 2, True), ("C", 2, False)]
    said = [theirs.load(name, rank, pinned=pinned) for name, rank, pinned in loads]

    assert said == [_loads(process, name, rank, pinned=pinned) for name, rank, pinned in loads]
    assert said == [True, False, False, True, False, True]


def test_the_package_still_answers_as_the_rules_say(package: Package) -> None:
    """What the rules cannot be run against: where pauses wait, and that an old adapter is loaded again by itself."""
    manager = package.source("managers/tokenizer_manager.py")
    updater = package.source(WEIGHT_UPDATER)
    scheduler = package.source("managers/scheduler.py")

    assert "self.is_pause_cond.wait_for(lambda: not self.is_pause)" in manager
    assert "Failed to implicitly load LoRA adapter" in manager
    assert "must run between" in updater
    assert "parent_process.send_signal(signal.SIGQUIT)" in scheduler
    assert "has an incomplete unload" in package.source("managers/tokenizer_control_mixin.py")


def test_what_tells_one_start_from_another_is_said(package: Package) -> None:
    """``/server_info`` has the times of the start, and the seed; one is drawn where none was given."""
    assert '"startup_time"' in package.source("entrypoints/http_server.py")
    assert "scheduler_e2e" in package.source("observability/startup_time.py")
    assert "random_seed=random.randint(" in package.source("arg_groups/serving_hook.py")


def _loads(process: Sglang, name: str, rank: int, *, pinned: bool) -> bool:
    payload = adapter(name, 1, rank)
    config = {"r": rank, "lora_alpha": 4.0}
    try:
        process._load(name, "/a", config, payload.tensors, pinned=pinned)
    except Refused:
        return False
    return True


def _note(used: set[str], owner: type, name: str) -> None:
    plain = getattr(owner, name)

    def noted(*given: Any, **named: Any) -> Any:
        used.add(name)
        return plain(*given, **named)

    noted.__wrapped__ = plain  # type: ignore[attr-defined]
    setattr(owner, name, noted)
