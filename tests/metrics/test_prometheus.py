"""The same numbers in Prometheus' words, over HTTP on loopback."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from lifecycle import ConfigError, HostArena, Moved
from lifecycle.distributed.hosting import LOOPBACK
from lifecycle.metrics import Metrics, prometheus
from lifecycle.metrics.families import FAMILIES
from lifecycle.metrics.prometheus import PrometheusExporter
from tests.lifecycle.test_refusals import fault
from tests.lifecycle.world import FakeEngine, World, make_world

ROOT = Path(__file__).parents[2]


def _value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"adapter_lifecycle_{name}", {"model": "actor", "rank": "0", **labels})


def _exported(rank: int = 0) -> tuple[World, CollectorRegistry, PrometheusExporter]:
    world, registry = make_world(), CollectorRegistry()
    return world, registry, PrometheusExporter(Metrics(world.trainer, rank=rank), registry)


def test_each_value_is_a_sample_under_its_name_and_labels() -> None:
    """One of each kind, compared with what the trainer says."""
    world, registry, _ = _exported()
    slept = world.trainer.sleep()
    world.trainer.update_weights([FakeEngine()])

    assert isinstance(slept, Moved)
    assert _value(registry, "state", state="sleeping") == 1
    assert _value(registry, "state", state="awake") == 0
    assert _value(registry, "transitions_total", event="sleep", edge="quiesces") == 1
    assert _value(registry, "event_seconds_count", event="sleep") == 1
    assert _value(registry, "event_seconds_sum", event="sleep") == slept.duration_s
    assert _value(registry, "event_seconds_bucket", event="sleep", le="+Inf") == 1
    assert _value(registry, "event_seconds_bucket", event="sleep", le="300.0") == 1
    assert _value(registry, "engine_pending_pushes", engine="E0") == 0
    device_bytes = world.trainer.ledger.held.device["actor/base"]
    assert _value(registry, "held_bytes", place="device", part="base") == device_bytes


def test_what_is_exported_is_well_formed() -> None:
    """Prometheus' own parser reads it: every metric once, with its kind, its help and the labels of the table."""
    world, registry, _ = _exported(rank=5)
    world.trainer.sleep()
    parsed = {one.name: one for one in text_string_to_metric_families(generate_latest(registry).decode())}

    assert len(parsed) == len(FAMILIES)
    for family in FAMILIES:
        one = parsed[f"adapter_lifecycle_{family.name}".removesuffix("_total")]
        assert (one.type, one.documentation) == (family.kind, family.says)
        for sample in one.samples:
            assert set(sample.labels) - {"le"} == {"model", "rank", *family.labels}
            assert sample.labels["rank"] == "5"


def test_several_trainers_of_a_process_are_told_apart_by_their_model() -> None:
    """One exporter has them all; each metric still stands there once."""
    arena, registry = HostArena(), CollectorRegistry()
    actor, critic = make_world(arena=arena), make_world(arena=arena, model="critic")
    PrometheusExporter([Metrics(actor.trainer), Metrics(critic.trainer)], registry)
    critic.trainer.sleep()

    assert _value(registry, "state", state="awake") == 1
    assert _value(registry, "state", state="sleeping", model="critic") == 1


def test_two_trainers_of_one_name_are_refused() -> None:
    """Their values could not be told apart."""
    metrics = [Metrics(make_world().trainer), Metrics(make_world().trainer)]

    with pytest.raises(ConfigError, match="give each model a name"):
        PrometheusExporter(metrics, CollectorRegistry())


def test_a_registry_takes_one_exporter_until_it_is_closed() -> None:
    """A second one says what to do."""
    world, registry, exporter = _exported()
    with pytest.raises(ConfigError, match=r"give one exporter all of them, or close\(\) the other"):
        PrometheusExporter(Metrics(world.trainer), registry)
    exporter.close()
    exporter.close()

    PrometheusExporter(Metrics(world.trainer), registry)


def test_it_serves_on_loopback_until_it_is_closed() -> None:
    """Nobody else on the network reads it unless that is said."""
    world, _, exporter = _exported()
    world.trainer.sleep()
    with exporter:
        url = exporter.serve()
        text = httpx.get(url).text
        with pytest.raises(ConfigError, match="serves already"):
            exporter.serve()

    assert url.startswith("http://127.0.0.1:")
    assert 'adapter_lifecycle_state{model="actor",rank="0",state="sleeping"} 1.0' in text
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)


def test_an_address_that_is_taken_is_said() -> None:
    """With the address, and what to do."""
    _, _, exporter = _exported()
    _, _, other = _exported()
    with exporter, other:
        port = int(exporter.serve().rsplit(":", 1)[1].split("/")[0])
        with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{port}.*use another address"):
            other.serve(port)
        with pytest.raises(ConfigError, match="use another address"):
            other.serve(70000)


def test_without_the_package_the_flat_numbers_work_and_the_error_names_the_extra() -> None:
    """Nothing else needs it."""
    program = """
import sys
sys.modules["prometheus_client"] = None
import lifecycle.metrics
try:
    import lifecycle.metrics.prometheus
except lifecycle.ConfigError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "Prometheus needs prometheus_client; install the extra: adapter-lifecycle[metrics]\n"


def test_what_may_happen_is_there_before_it_does() -> None:
    """With 0: of a count that begins with 1 no rate shows the first time, which of a failure is what matters."""
    world, registry, _ = _exported()

    assert _value(registry, "failures_total", event="sleep", effect="tear-down-groups") == 0
    assert _value(registry, "transitions_total", event="offload", edge="offloads-to-disk") == 0
    assert _value(registry, "unchanged_total", event="wake_up") == 0
    assert _value(registry, "refusals_total", event="sleep", guard="no-step-in-flight") == 0
    before = {(one.name, *one.labels.values()) for family in registry.collect() for one in family.samples}
    fault(world)
    after = {(one.name, *one.labels.values()) for family in registry.collect() for one in family.samples}

    assert _value(registry, "failures_total", event="sleep", effect="tear-down-groups") == 1
    assert after == before  # a fault brings no new series
    assert len(before) < 200


def test_a_trainer_that_is_gone_has_no_metrics_and_is_kept_by_nobody() -> None:
    """Neither the registry nor the server keeps its memory; what is left of it is no series that stands still."""
    world, _, exporter = _exported()
    watched = weakref.ref(world.trainer)
    metrics = exporter._metrics[0]
    with exporter:
        url = exporter.serve()
        assert "adapter_lifecycle_state{" in httpx.get(url).text
        del world
        gc.collect()
        text = httpx.get(url).text

    assert watched() is None
    assert "adapter_lifecycle_state{" not in text
    assert "# TYPE adapter_lifecycle_state gauge" in text
    for read in (metrics.reading, metrics.as_dict):
        with pytest.raises(ConfigError, match="the trainer of these metrics is gone"):
            read()


@pytest.mark.parametrize("given", [None, [], [None], "metrics", 3])
def test_only_metrics_are_exported(given: Any) -> None:
    """Anything else is an error of ours, and registers nothing."""
    registry = CollectorRegistry()

    with pytest.raises(ConfigError, match=r"give lifecycle\.metrics\.Metrics\(trainer\)"):
        PrometheusExporter(given, registry)
    assert generate_latest(registry) == b""


@pytest.mark.parametrize(
    ("port", "host"),
    [("9464", LOOPBACK), (-1, LOOPBACK), (0, "a" * 300), (0, "no-such-host.invalid"), (None, LOOPBACK)],
)
def test_an_address_that_is_none_is_an_error_of_ours(port: Any, host: str) -> None:
    """And the exporter goes on without a server."""
    _, _, exporter = _exported()

    with exporter:
        with pytest.raises(ConfigError, match="use another address"):
            exporter.serve(port, host)
        assert exporter.serve().startswith("http://127.0.0.1:")


def test_an_address_of_ipv6_is_in_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the URL is one."""
    server = SimpleNamespace(server_port=5, shutdown=lambda: None, server_close=lambda: None)
    thread = SimpleNamespace(join=lambda: None)
    monkeypatch.setattr(prometheus, "start_http_server", lambda *_, **__: (server, thread))
    _, _, exporter = _exported()

    with exporter:
        assert exporter.serve(5, "::1") == "http://[::1]:5/metrics"


def test_in_multiprocess_mode_each_process_serves_its_own(tmp_path: Path) -> None:
    """The values are read when they are scraped: nothing of them is in the files that processes share."""
    program = """
import httpx
from lifecycle.metrics import Metrics
from lifecycle.metrics.prometheus import PrometheusExporter
from tests.lifecycle.world import make_world

world = make_world()
with PrometheusExporter(Metrics(world.trainer, rank=3)) as exporter:
    world.trainer.sleep()
    print([line for line in httpx.get(exporter.serve()).text.splitlines() if 'state="sleeping"' in line][0])
"""
    env = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env, cwd=ROOT
    )

    assert done.stdout == 'adapter_lifecycle_state{model="actor",rank="3",state="sleeping"} 1.0\n'
    assert list(tmp_path.iterdir()) == []
