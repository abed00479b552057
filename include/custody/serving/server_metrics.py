"""The numbers of the server in the text form of Prometheus: requests, refusals, times, what waits, and the doors' own.

With several workers each answers for all of them: it asks the others over sockets in a folder that they share, and
adds the label `worker`. A worker that does not answer in time is left out; `custody_workers_answering` says how many
did.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families

from custody.store.traffic import PROCESS

if TYPE_CHECKING:
    from custody.serving.door import Door, Measure

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "custody_"
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ASK_SECONDS = 2.0
_BYTES_MAX = 16 << 20
_LOGGER = logging.getLogger(__name__)


class ServerMetrics:
    """The numbers of one worker, and by its siblings those of all.

    Args:
        repository: returns the numbers of the repository, asked at each look, in a thread.
    """

    def __init__(self, repository: Callable[[], Iterable[Measure]] = tuple) -> None:
        self._registry = CollectorRegistry()
        self._repository = repository
        self._doors: Sequence[Door] = ()
        self._siblings: Callable[[], Sequence[Path]] = tuple
        self._worker: str | None = None
        self._requests = Counter(
            "custody_requests", "Requests that were answered.", ("door", "status"), registry=self._registry
        )
        self._refusals = Counter(
            "custody_refusals", "Requests that were refused, by reason.", ("door", "reason"), registry=self._registry
        )
        self._seconds = Histogram(
            "custody_request_seconds",
            "Seconds from the head of a request to the end of its answer.",
            ("door",),
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._busy = Gauge("custody_requests_under_way", "Requests under way.", registry=self._registry)
        self._held = Gauge("custody_body_bytes_held", "Bytes of bodies held.", registry=self._registry)

    def watch(self, doors: Sequence[Door]) -> None:
        """Show the numbers of these doors, too."""
        self._doors = doors

    def share(self, worker: int, siblings: Callable[[], Sequence[Path]]) -> None:
        """Answer for several workers: this one's number, and the sockets of the others."""
        self._worker = str(worker)
        self._siblings = siblings

    def entered(self, busy: int) -> None:
        """Note that a request came."""
        self._busy.set(busy)

    def held(self, size: int) -> None:
        """Note how many bytes of bodies are held."""
        self._held.set(size)

    def left(self, busy: int, held: int) -> None:
        """Note that a request went."""
        self._busy.set(busy)
        self._held.set(held)

    def answered(self, door: str, status: int, reason: str, seconds: float) -> None:
        """Count an answer."""
        self._requests.labels(door, str(status)).inc()
        if reason:
            self._refusals.labels(door, reason).inc()
        self._seconds.labels(door).observe(seconds)

    async def own_text(self) -> bytes:
        """Return the numbers of this worker alone."""
        families = await asyncio.to_thread(self._families)
        return generate_latest(_Given(families))

    async def text(self) -> bytes:
        """Return the numbers of all workers, and of the repository."""
        answers = await asyncio.gather(*(_asked(path) for path in self._siblings()))
        texts = [await self.own_text(), *(answer for answer in answers if answer is not None)]
        shared = await asyncio.to_thread(lambda: [_family(measure) for measure in self._repository()])
        count = GaugeMetricFamily("custody_workers_answering", "Workers whose numbers are here.", value=len(texts))
        merged = _merged(family for text in texts for family in text_string_to_metric_families(text.decode()))
        return generate_latest(_Given([*merged, *_merged([*shared, count])]))

    def _families(self) -> list[Metric]:
        own = [measure for door in self._doors for measure in door.metrics()]
        measures = (_family(measure) for measure in (*own, *_store_measures()))
        families = [*map(_without_times, self._registry.collect()), *_merged(measures)]
        if self._worker is None:
            return families
        return [_labelled(family, self._worker) for family in families]


class _Given:
    """Collects families that are there already."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)


def _store_measures() -> Iterator[Measure]:
    """Yield what this process asked of object stores; nothing where the store is a folder."""
    from custody.serving.door import Measure

    asked = PROCESS.traffic
    for kind, number in asked.requests.items():
        labels = (("kind", kind),)
        yield Measure("store_requests", "counter", "Requests to the object store.", number, labels)
    for way, size in (("read", asked.bytes_read), ("written", asked.bytes_written)) if asked.count else ():
        yield Measure("store_bytes", "counter", "Bytes read from the object store, and written.", size, (("way", way),))


def _family(measure: Measure) -> Metric:
    names = [name for name, _ in measure.labels]
    kind = CounterMetricFamily if measure.kind == "counter" else GaugeMetricFamily
    family: Metric = kind(_PREFIX + measure.name, measure.help, labels=names)
    family.add_metric([value for _, value in measure.labels], measure.value)  # type: ignore[attr-defined]
    return family


def _without_times(family: Metric) -> Metric:
    """Return a family without the times at which its counters began, which the text form has no type for."""
    changed = Metric(family.name, family.documentation, family.type)
    changed.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
    return changed


def _labelled(family: Metric, worker: str) -> Metric:
    changed = Metric(family.name, family.documentation, family.type)
    changed.samples = [sample._replace(labels={**sample.labels, "worker": worker}) for sample in family.samples]
    return changed


def _merged(families: Iterable[Metric]) -> list[Metric]:
    """Return families of one name as one, for a text may name each only once."""
    by_name: dict[str, Metric] = {}
    for family in families:
        known = by_name.setdefault(family.name, family)
        if known is not family:
            known.samples = [*known.samples, *family.samples]
    return list(by_name.values())


async def _asked(path: Path) -> bytes | None:
    """Return the numbers of another worker, None where it does not answer."""
    try:
        async with asyncio.timeout(_ASK_SECONDS):
            reader, writer = await asyncio.open_unix_connection(str(path))
            try:
                text = await reader.read(-1)
            finally:
                writer.close()
    except (OSError, TimeoutError) as error:
        _LOGGER.warning("a worker does not say its numbers: %s", error)
        return None
    return text[:_BYTES_MAX]
