"""Whatever a trainer is told, its metrics say the same as the log that it writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from lifecycle import AuditLog, LifecycleError
from lifecycle.audit.read import read_log
from lifecycle.metrics import Metrics
from lifecycle.metrics.families import FAMILIES
from lifecycle.metrics.prometheus import PrometheusExporter
from lifecycle.places import SNAPSHOTS
from states import Effect, TrainerEvent
from tests.lifecycle.test_refusals import fault
from tests.lifecycle.world import FakeEngine, make_world

NAMES = st.sampled_from(["A", "B", "C"])
EVENTS = ("sleep", "offload", "wake_up", "reconcile_adapters", "recover")
EFFECTS = st.sampled_from([Effect.PAUSE_SCRATCH, Effect.CLEAR_CACHES, Effect.KEEP_GRADIENTS])
Samples = dict[tuple[str, tuple[str, ...]], float]


LABELS = {family.name: family.labels for family in FAMILIES}


def _key(name: str, labels: dict[str, str]) -> tuple[str, tuple[str, ...]]:
    """Name and own labels in the order of the table; of a histogram's samples the bound comes last."""
    own = LABELS.get(name) or (*LABELS["event_seconds"], *(["le"] if "le" in labels else []))
    return name, tuple(labels[one] for one in own)


class CountedMachine(RuleBasedStateMachine):
    """A trainer with a log in a file and a scrape over HTTP; what happened before both is taken off."""

    @initialize(rank=st.integers(0, 3))
    def start(self, rank: int) -> None:
        """A fresh world, watched from its beginning."""
        self.folder = TemporaryDirectory()
        self.path = Path(self.folder.name, "audit.jsonl")
        self.world, self.engines = make_world(), [FakeEngine("E0"), FakeEngine("E1")]
        self.world.trainer._runner.recorder._audit = AuditLog(self.path)
        self.metrics = Metrics(self.world.trainer, rank=rank)
        self.exporter = PrometheusExporter(self.metrics, CollectorRegistry())
        self.url = self.exporter.serve()
        self.before = self.scraped()

    def teardown(self) -> None:
        """The port and the files are given back."""
        if hasattr(self, "exporter"):
            self.exporter.close()
            self.folder.cleanup()

    def scraped(self) -> Samples:
        """Every sample by name and own labels."""
        families = text_string_to_metric_families(httpx.get(self.url).text)
        found = [sample for family in families for sample in family.samples]
        assert {(one.labels["model"], one.labels["rank"]) for one in found} == {("actor", str(self.metrics.rank))}
        samples = {_key(one.name.removeprefix("adapter_lifecycle_"), one.labels): one.value for one in found}
        assert len(samples) == len(found)
        return samples

    def send(self, call: Callable[[], object]) -> None:
        """A refusal and a failure are told too."""
        try:
            call()
        except LifecycleError as error:
            error.__traceback__ = None

    @rule(events=st.lists(st.sampled_from(EVENTS), min_size=2, max_size=8))
    def move(self, events: list[str]) -> None:
        """Where they may, where they need not, and where they may not."""
        for event in events:
            self.send(getattr(self.world.trainer, event))

    @rule(names=st.lists(NAMES, min_size=1, unique=True))
    def train(self, names: list[str]) -> None:
        """A real step."""
        if set(names) <= set(self.world.host.loaded()):
            self.send(lambda: self.world.train(*names))

    @rule(name=NAMES)
    def register(self, name: str) -> None:
        """Anew, or for the first time."""
        self.world.host.register(name, "ABC".index(name))

    @rule(name=NAMES)
    def deregister(self, name: str) -> None:
        """It is retired at the next reconcile."""
        self.world.host.wanted.pop(name, None)

    @rule(bad=st.sampled_from(["", "begin", "commit", "adapter:A", "base:buffers"]))
    def push(self, bad: str) -> None:
        """To both engines, of which the second may fail."""
        self.engines[1].fails_at = bad
        self.send(lambda: self.world.trainer.update_weights(self.engines))

    @rule(tag=st.sampled_from(["ref", "mine"]))
    def keep(self, tag: str) -> None:
        """A call that is no event, and may be refused as one."""
        self.send(lambda: self.world.trainer.keep_model(tag))

    @rule()
    def read(self) -> None:
        """Another one."""
        self.send(lambda: self.world.trainer.weights("reader").close())

    @rule(effect=EFFECTS)
    def fail(self, effect: Effect) -> None:
        """An effect of the sleep fails, and is undone."""
        effects = self.world.trainer._runner.effects
        good = effects[effect]
        effects[effect] = lambda *_: (_ for _ in ()).throw(RuntimeError("told to fail"))  # type: ignore[assignment]
        self.send(self.world.trainer.sleep)
        effects[effect] = good

    @rule()
    def break_down(self) -> None:
        """An undo fails; what is asked of a faulted trainer is refused, until it has recovered."""
        self.send(self.world.trainer.wake_up)
        if self.world.trainer.may("sleep"):
            fault(self.world)
            self.send(self.world.trainer.offload)
            self.metrics_say_what_the_log_says()
            self.world.trainer.recover()

    @invariant()
    def metrics_say_what_the_log_says(self) -> None:
        """Counts, bytes and durations from the records alone, the rest from the last of them."""
        if not hasattr(self, "exporter"):
            return
        now, records = self.scraped(), read_log(self.path)
        for name, told in _told(records).items():
            grown = {key: now[key] - self.before.get(key, 0.0) for key in now if key[0] == name}
            if name == "moved_bytes_total":  # what calls on named copies copied is in the ledger alone
                grown = {key: value for key, value in grown.items() if key[1][0] in set(TrainerEvent)}
            assert {key[1]: value for key, value in grown.items() if value} == pytest.approx(told, abs=1e-5), name
        ended = [one for one in records if "held" in one]
        if ended:
            assert _by_place(now) == pytest.approx(_held(ended[-1]))
        assert now["state", (self.world.trainer.state.value,)] == 1
        assert sum(value for (name, _), value in now.items() if name == "state") == 1
        assert self.world.trainer.callback_errors == ()

    @invariant()
    def the_dict_says_what_the_scrape_says(self) -> None:
        """Every value of it, but for buckets; nothing but floats."""
        if not hasattr(self, "exporter"):
            return
        flat, now = self.metrics.as_dict(""), self.scraped()
        assert {type(value) for value in flat.values()} == {float}
        for key, value in flat.items():
            name, *labels = key.split("/")
            if name == "event_seconds":
                name, labels = f"{name}_{labels[-1]}", labels[:-1]
            assert now[name, tuple(labels)] == value, key


def _told(records: Iterable[Any]) -> dict[str, dict[tuple[str, ...], float]]:
    """What each counter has to say after these records."""
    names = ("transitions_total", "unchanged_total", "refusals_total", "failures_total", "moved_bytes_total")
    found: dict[str, Counter[tuple[str, ...]]] = {one: Counter() for one in (*names, "event_seconds_count")}
    seconds: dict[tuple[str, ...], float] = {}
    for one in records:
        event = one["event"].removeprefix("lifecycle.")
        if event == "moved":
            found["transitions_total"][one["trigger"], one["edge"]] += 1
            found["event_seconds_count"][(one["trigger"],)] += 1
            seconds[one["trigger"],] = seconds.get((one["trigger"],), 0.0) + one["duration_s"]
        elif event == "failed":
            found["failures_total"][one["trigger"], one["effect"]] += 1
        elif event == "unchanged":
            found["unchanged_total"][(one["trigger"],)] += 1
        elif event == "refused":
            failed = [verdict["name"] for verdict in one["verdicts"] if not verdict["holds"]]
            found["refusals_total"].update((one["trigger"], name) for name in failed)
        for kind, size_bytes in one.get("moved", {}).items():
            found["moved_bytes_total"][one["trigger"], kind] += size_bytes
    zeros = {name: {key: float(count) for key, count in counts.items() if count} for name, counts in found.items()}
    return zeros | {"event_seconds_sum": seconds}


def _held(record: Any) -> dict[str, float]:
    """Bytes by place as a record has them; what named copies hold changes without one."""
    held = {place: sum(tags.values()) for place, tags in record["held"].items() if place != SNAPSHOTS}
    return {place: size_bytes for place, size_bytes in held.items() if size_bytes}


def _by_place(now: Samples) -> dict[str, float]:
    found: Counter[str] = Counter()
    for (name, labels), value in now.items():
        if name == "held_bytes" and labels[0] != SNAPSHOTS:
            found[labels[0]] += value  # type: ignore[assignment]
    return {place: value for place, value in found.items() if value}


pytestmark = pytest.mark.timeout(600)

TestCountedMachine = CountedMachine.TestCase
TestCountedMachine.settings = settings(
    max_examples=12, stateful_step_count=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
