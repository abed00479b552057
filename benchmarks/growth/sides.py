"""The parts of the benchmark, each done in a process of its own: a repository grows, is asked, and loses events."""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from benchmarks.catalog.peer import peak_rss_mib
from benchmarks.eventlog.bulk import BASE_EVENTS, tables, write_journals
from custody.errors import NotFoundError
from custody.lineage import Bounds
from custody.model import Event
from custody.recovery import STEPS
from custody.repository import Repository
from custody.retention.disk_usage import measure_disk
from custody.sample import SampleOptions, sample_files
from custody.vfs import PosixFileSystem
from custody.workspace import Workspace

_GROUP_EVENTS = 1_000_000
_FILE_EVENTS = 1000
_UUIDS = 100
_LINEAGE_EVENTS = 50_000
Figures = dict[str, float]
Question = Callable[[], object]
Ask = Callable[[Repository, random.Random, int], Question]


def grow(root: Path, size: int, files: int) -> Figures:
    """Let a repository grow to a size; return what the last events cost, and memory in MiB and bytes an event."""
    repository = Repository.open(root) if root.exists() else Repository.create(root)
    # What is written in bulk then counts as this writer's: of journals of nobody a sweep compares each event.
    with repository.writer():
        pass
    begun, had = time.monotonic(), _events_of(repository)
    costs: Figures = {}
    while (done := _events_of(repository)) < size:
        count = min(_GROUP_EVENTS, size - done)
        costs = _group(repository, _next_id(repository), count)
        click.echo(f"{done + count:,} events after {time.monotonic() - begun:.0f} s", err=True)
    seconds = time.monotonic() - begun
    costs["events/s from columns to searchable, wall"] = round((size - had) / max(seconds, 1e-9))
    costs["most memory of a pass, MiB"] = round(peak_rss_mib())
    costs |= _ingested(repository, files, seed=size)
    use = measure_disk(repository.settings, PosixFileSystem())
    for kind in ("logs", "index", "catalog"):
        costs[f"{kind}, bytes an event"] = round(use.kinds.get(kind, 0) / _events_of(repository), 1)
    return costs


def _group(repository: Repository, first_event_id: int, count: int) -> Figures:
    """Bring a group of events from columns to being searchable; return µs of CPU an event, by step."""
    made = list(tables(count, first_event_id=first_event_id, first_tile=-(-first_event_id // BASE_EVENTS)))
    costs: Figures = {}
    with _cost(costs, "journals, written in bulk", count):
        write_journals(PosixFileSystem(), repository.settings, made)
    _pass(repository, costs, count, "")
    return costs


def _ingested(repository: Repository, files: int, seed: int) -> Figures:
    """Ingest files of NiFi's JSON and bring them to being searchable; return µs of CPU an event."""
    costs: Figures = {}
    count = files * _FILE_EVENTS
    with tempfile.TemporaryDirectory(dir=repository.settings.root.parent) as folder:
        options = SampleOptions(events=count, batch_size=_FILE_EVENTS, nodes=1, seed=seed)
        paths = []
        for name, data in sample_files(options):
            paths.append(Path(folder) / name)
            paths[-1].write_bytes(data)
        with _cost(costs, "ingest of NiFi's JSON", count), repository.ingest() as work:
            stored = sum(work.file(path).stored for path in paths)
        if stored != count:
            raise AssertionError(f"expected {count} events to be stored, got {stored}")
    _pass(repository, costs, count, f", {count:,} events")
    return costs


def _pass(repository: Repository, costs: Figures, count: int, suffix: str) -> None:
    for name, step in STEPS.items():
        units = step.units(repository.settings)
        with _cost(costs, f"step {name}{suffix}", count):
            for unit in units:
                step.run(Workspace(repository.settings, unit.writer), unit)


@contextmanager
def _cost(costs: Figures, name: str, events: int) -> Iterator[None]:
    started = time.process_time()
    yield
    costs[f"{name}, µs of CPU an event"] = round(1e6 * (time.process_time() - started) / events, 2)


def _by_id(repository: Repository, chance: random.Random, end: int) -> Question:
    event_id = _any_event(repository, chance, end).event_id
    # A new reader: that of before has the block.
    reader = Repository.open(repository.settings.root)
    reader.get(_first_id(repository))
    return lambda: reader.get(event_id)


def _by_uuid(repository: Repository, chance: random.Random, end: int) -> Question:
    uuid = _any_event(repository, chance, end).flowfile_uuid
    return lambda: repository.search(f"flowfile_uuid:{uuid}", limit=20)


def _by_uuids(repository: Repository, chance: random.Random, end: int) -> Question:
    uuids = {_any_event(repository, chance, end).flowfile_uuid for _ in range(_UUIDS)}
    text = f"flowfile_uuid:({' OR '.join(sorted(uuids))})"
    return lambda: repository.search(text, limit=20)


def _by_three_terms(repository: Repository, chance: random.Random, end: int) -> Question:
    event = _any_event(repository, chance, end)
    text = (
        f"flowfile_uuid:{event.flowfile_uuid} AND component_id:{event.component_id} AND event_type:{event.event_type}"
    )
    return lambda: repository.search(text, limit=20)


def _newest(repository: Repository, chance: random.Random, end: int) -> Question:
    return lambda: repository.search("event_type:SEND", limit=20)


def _of_a_day(repository: Repository, chance: random.Random, end: int) -> Question:
    day = _any_event(repository, chance, end).event_time // 86_400_000 * 86_400_000
    text = f"event_type:DROP AND event_time:[{day} TO {day + 86_399_999}]"
    return lambda: repository.search(text, limit=20)


def _lineage(repository: Repository, chance: random.Random, end: int) -> Question:
    uuid = _any_event(repository, chance, end).flowfile_uuid
    # The sample told again has the same identifiers each time: followed, they would join what grows.
    bounds = Bounds(_LINEAGE_EVENTS, identifier_flowfiles_max=1)
    return lambda: repository.lineage([uuid], bounds)


_QUESTIONS: dict[str, Ask] = {
    "an event by its id": _by_id,
    "search by a uuid": _by_uuid,
    "search by three terms": _by_three_terms,
    "search by 100 uuids": _by_uuids,
    "search of a type and a day": _of_a_day,
    "20 newest of a type": _newest,
    "lineage": _lineage,
}


def ask_all(root: Path, tries: int) -> Figures:
    """Ask a repository in a process that did nothing else; return ms of CPU, and memory in MiB."""
    figures: Figures = {}
    started = time.process_time()
    repository = Repository.open(root)
    end = _next_id(repository)
    repository.get(_first_id(repository))
    figures["opening and the first event, ms of CPU"] = round(1e3 * (time.process_time() - started), 1)
    chance = random.Random(end)  # noqa: S311 - which events are asked for
    for name, ask in _QUESTIONS.items():
        _keep(figures, name, [_timed(ask(repository, chance, end)) for _ in range(tries)])
    figures["plan of retention, ms of CPU"] = round(_timed(repository.plan_retention), 1)
    figures["most memory of the questions, MiB"] = round(peak_rss_mib())
    return figures


def expire(root: Path) -> Figures:
    """Let the oldest log go for want of room, and delete its files and those of its shard; return µs of CPU an event.

    Each size loses about as many events, so what grows with the repository shows in each of them.
    """
    settings = Repository.open(root).settings
    used = measure_disk(settings, PosixFileSystem()).total_bytes
    # One byte too many: a single log goes. Without a grace it is deleted in the pass that marks it.
    limits = {"bytes_max": used - 1, "purge_percent": 100, "grace": "0 seconds"}
    section = settings.retention.model_copy(update=limits)
    repository = Repository(settings.model_copy(update={"retention": section}))
    had = _events_of(repository)
    costs: Figures = {}
    started = time.process_time()
    # What was settled by the first pass is collected by the second.
    for _ in range(2):
        repository.apply_retention()
    taken = time.process_time() - started
    gone = had - _events_of(repository)
    if not gone:
        raise AssertionError("expected the oldest log to expire, got none")
    costs["retention, a log deleted, ms of CPU"] = round(1e3 * taken, 1)
    costs["retention, µs of CPU an event that went"] = round(1e6 * taken / gone, 2)
    freed = used - measure_disk(settings, PosixFileSystem()).total_bytes
    costs["bytes freed an event that went"] = round(freed / gone, 1)
    return costs


def _timed(ask: Callable[[], object]) -> float:
    started = time.process_time()
    ask()
    return 1e3 * (time.process_time() - started)


def _keep(figures: Figures, name: str, taken: list[float]) -> None:
    figures[f"{name}, p50, ms of CPU"] = round(statistics.median(taken), 2)
    figures[f"{name}, p99, ms of CPU"] = round(sorted(taken)[-(-99 * len(taken) // 100) - 1], 2)


def _events_of(repository: Repository) -> int:
    return sum(file.rows for file in repository.workspace().state().files.values())


def _first_id(repository: Repository) -> int:
    return min(file.first_event_id for file in repository.workspace().state().files.values())


def _next_id(repository: Repository) -> int:
    return max((file.last_event_id for file in repository.workspace().state().files.values()), default=-1) + 1


def _any_event(repository: Repository, chance: random.Random, end: int) -> Event:
    while True:
        # Between what was written in bulk and what was ingested a few ids may belong to nobody.
        with suppress(NotFoundError):
            return repository.get(chance.randrange(end))
