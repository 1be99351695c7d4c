"""Metrics for Prometheus. The names are those of :mod:`lifecycle.metrics.families`, with a prefix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Final, Self

from lifecycle.distributed.hosting import LOOPBACK
from lifecycle.errors import ConfigError
from lifecycle.metrics.families import FAMILIES, SECONDS, Family
from lifecycle.metrics.known import KNOWN
from lifecycle.metrics.metrics import Metrics
from lifecycle.metrics.seconds import BOUNDS_S

try:
    from prometheus_client import REGISTRY, CollectorRegistry, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
except ImportError as missing:
    raise ConfigError("Prometheus needs prometheus_client; install the extra: adapter-lifecycle[metrics]") from missing

PREFIX: Final = "adapter_lifecycle_"
COMMON: Final = ("model", "rank")
"""Labels of every metric, before its own."""

_BUCKETS: Final = (*map(str, BOUNDS_S), "+Inf")


class PrometheusExporter:
    """Gives the metrics of one trainer, or of several in this process, to a registry.

    A scrape reads what the last events left behind: it waits for no event and changes nothing. Counters that the
    transition table lets happen are there from the beginning, with 0. A trainer that is gone has no metrics any more;
    the exporter keeps none alive.

    Args:
        metrics: of one trainer or several, each with its own model.
        registry: where they are registered; the one that ``prometheus_client`` has when None.

    Raises:
        ConfigError: something else is given, two have the same model and rank, or the registry has these metrics
            already.
    """

    def __init__(self, metrics: Metrics | Iterable[Metrics], registry: CollectorRegistry | None = None) -> None:
        self._metrics = (metrics,) if isinstance(metrics, Metrics) else _several(metrics)
        whose = [(one.model, one.rank) for one in self._metrics]
        if len(set(whose)) != len(whose):
            raise ConfigError(f"two of the metrics are of the same model and rank ({whose}); give each model a name")
        self._registry = REGISTRY if registry is None else registry
        try:
            self._registry.register(self)
        except ValueError as error:
            why = "the registry has these metrics already; give one exporter all of them, or close() the other"
            raise ConfigError(f"{why} ({error})") from error
        self._is_registered = True
        self._stop: Callable[[], None] | None = None

    def serve(self, port: int = 0, host: str = LOOPBACK) -> str:
        """Serve the registry over HTTP until :meth:`close`.

        Args:
            port: 0 takes one that is free.
            host: the address (IPv4 or IPv6) or name to listen on; loopback unless told otherwise, as anyone who reaches
                it can read it.

        Returns:
            The URL to scrape.

        Raises:
            ConfigError: it serves already, or cannot listen there.
        """
        if self._stop is not None:
            raise ConfigError("this exporter serves already; close() it first")
        try:
            server, thread = start_http_server(port, addr=host, registry=self._registry)
        except (OSError, OverflowError, UnicodeError, TypeError) as error:
            raise ConfigError(f"metrics cannot be served on {host}:{port}: {error}; use another address") from error

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        self._stop = stop
        return f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/metrics"

    def close(self) -> None:
        """Stop serving and leave the registry. Idempotent."""
        if self._stop is not None:
            self._stop()
        self._stop = None
        if self._is_registered:
            self._registry.unregister(self)
        self._is_registered = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def describe(self) -> Iterator[Metric]:
        """Every metric without values: the names that a registry gives to nobody else."""
        yield from (*_empty().values(), _empty_seconds())

    def collect(self) -> Iterator[Metric]:
        """Every metric with its values of now."""
        found, seconds = _empty(), _empty_seconds()
        for one in self._metrics:
            reading = one.newest()
            if reading is None:
                continue
            common = one.model, str(one.rank)
            now = {(family, labels): value for family, labels, value in reading.values()}
            for (family, labels), value in (dict.fromkeys(KNOWN, 0.0) | now).items():
                found[family].add_metric((*common, *labels), value)
            for event, took in reading.seconds.items():
                buckets = list(zip(_BUCKETS, map(float, accumulate(took.counts)), strict=True))
                seconds.add_metric((*common, event), buckets, took.sum_s)
        yield from (*found.values(), seconds)


def _several(metrics: Iterable[Metrics]) -> tuple[Metrics, ...]:
    found = tuple(metrics) if isinstance(metrics, Iterable) else ()
    if not found or not all(isinstance(one, Metrics) for one in found):
        raise ConfigError(f"metrics is {metrics!r}; give lifecycle.metrics.Metrics(trainer), or several of them")
    return found


def _empty() -> dict[Family, CounterMetricFamily | GaugeMetricFamily]:
    """Every metric but the histogram."""
    kinds: dict[str, type[CounterMetricFamily | GaugeMetricFamily]] = {
        "counter": CounterMetricFamily,
        "gauge": GaugeMetricFamily,
    }
    return {
        one: kinds[one.kind](PREFIX + one.name, one.says, labels=(*COMMON, *one.labels))
        for one in FAMILIES
        if one is not SECONDS
    }


def _empty_seconds() -> HistogramMetricFamily:
    return HistogramMetricFamily(PREFIX + SECONDS.name, SECONDS.says, labels=(*COMMON, *SECONDS.labels))
