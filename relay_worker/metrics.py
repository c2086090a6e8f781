"""Provide Prometheus metrics of the relay, in a separate registry.

Labels contain no stream, token or account, so that the metrics do not reveal who exchanges data with whom.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from relay_worker.errors import RequestRefusedError
from relay_worker.model import RelayUsage

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics(Collector):
    """Counters of one relay."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "crystal_relay_requests", "Requests.", ["route", "method", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "crystal_relay_request_seconds", "Time of a request.", ["route"], buckets=SECONDS, registry=self.registry
        )
        # Looking up the labels costs as much as counting. Their values are few: none is chosen by a client.
        self.requests_of, self.seconds_of = cache(self.requests.labels), cache(self.seconds.labels)
        self.put_bytes = Counter("crystal_relay_put_bytes", "Bytes of stored bodies.", registry=self.registry)
        self.expired = Counter("crystal_relay_expired_blobs", "Blobs that nobody read in time.", registry=self.registry)
        self.connections = Gauge("crystal_relay_connections", "Open connections.", registry=self.registry)
        self.connections_refused = Counter(
            "crystal_relay_connections_refused",
            "Connections, and requests of a trusted proxy, closed over a limit: of one address, or in total.",
            ["reason"],
            registry=self.registry,
        )
        self.batch = Histogram(
            "crystal_relay_commit_batch",
            "Requests that shared a commit.",
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
            registry=self.registry,
        )
        self.commit_seconds = Histogram(
            "crystal_relay_commit_seconds", "Time of a commit.", buckets=SECONDS, registry=self.registry
        )

    def observe_commit(self, jobs: int, seconds: float) -> None:
        """Record a commit. Called by the store's writer."""
        self.batch.observe(jobs)
        self.commit_seconds.observe(seconds)

    def watch(self, usage: Callable[[], RelayUsage], now: Callable[[], int]) -> None:
        """Query the store for its usage whenever the metrics are read."""
        self._usage, self._now = usage, now
        self.registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Yield one gauge per value of the store's usage; none while the store does not answer."""
        try:
            usage = self._usage()
        except RequestRefusedError:
            return
        oldest = 0.0 if usage.oldest_unread_at is None else max(0, self._now() - usage.oldest_unread_at) / 1000
        for name, text, value in (
            ("blobs", "Stored blobs.", usage.blobs),
            ("objects", "Stored objects.", usage.objects),
            ("stored_bytes", "Bytes of stored bodies.", usage.bytes),
            ("streams", "Streams.", usage.streams),
            ("tokens", "Valid tokens.", usage.tokens),
            ("oldest_unread_seconds", "Age of the oldest blob that nobody has read.", oldest),
        ):
            yield GaugeMetricFamily(f"crystal_relay_{name}", text, value=value)
