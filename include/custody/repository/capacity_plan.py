"""Capacity: what a repository becomes with so many events a day for so many years, by simulation.

One day is simulated pass by pass with the settings that decide it: when groups are sealed, which groups are merged into
a unit (the rollover's own `plan_units`), where units are cut into logs, which logs a compaction joins, and when a
checkpoint is due. Days are alike, so that the years follow from one day and from the retention. Sizes of an event come
from simulated NiFi events (`SAMPLE`); another size of events scales them.

`limits` compares the result with what a machine and the settings bear, and names the settings that hold. What a
search asks and takes is no limit but a cost: `questions` has its requests to an object store
(`custody.repository.request_plan`), `SearchSeconds` its time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from custody.catalog.footers import BLOOM_BYTES_MAX, FOOTER_BYTES_MAX
from custody.config import Settings
from custody.errors import InvalidInputError
from custody.journal import Group
from custody.maintenance.maintenance_steps import Compact
from custody.repository.request_plan import (
    MANIFEST_SHARE,
    Prices,
    QuestionRequests,
    Requests,
    StoredRepository,
    compaction_requests,
    kept_filters,
    pass_requests,
    point_read,
    put_requests,
    search,
)
from custody.rollover.keeping_filters import SHARDS_MIN
from custody.rollover.merge import plan_units
from custody.workspace.step import MEMORY_BYTES_MIN

DAYS_A_YEAR = 365
_DAYS_A_MONTH = DAYS_A_YEAR / 12
_DAY_SECONDS = 86_400
_COMPACT_SECONDS = 3600.0
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class EventBytes:
    """Bytes of an event in each kind of file, on average."""

    journal: float
    plain: float
    """As the rollover counts them to cut logs."""
    encoded: float
    """As Parquet counts them before compression, to fill blocks and to join logs."""
    log: float
    toc: float
    shard: float

    def scaled(self, journal: float) -> EventBytes:
        """Return the sizes of events that take `journal` bytes in a journal; all sizes in proportion."""
        factor = journal / self.journal
        return EventBytes(
            journal,
            self.plain * factor,
            self.encoded * factor,
            self.log * factor,
            self.toc,
            self.shard * factor,
        )


SAMPLE = EventBytes(journal=1107, plain=1110, encoded=428, log=76.3, toc=0.65, shard=28.9)
"""Of 60,000 simulated NiFi events (`custody sample`), in one log with the settings of a new repository."""
ENTRY_BYTES, BLOOM_BYTES_A_BLOCK, FOOTER_BYTES_A_BLOCK = 700, 1045, 1100
"""Of a live log in the catalog: by itself, with its shard; its bloom filters, and its footer, for each block."""
_BLOCK_SHARE = 0.82
"""How full a block is of `eventlog.block_bytes_max`, on average of the same log."""
ROLLOVER_BYTES_A_SECOND = 9300 * SAMPLE.journal
"""Of journals by one process without Spark, on one core of a small machine; measured with the same events."""
_LOG_FRACTION, _LOG_BYTES_MIN = 0.5, 1 << 20
OPEN_SECONDS, OPEN_SECONDS_A_BYTE = 0.45e-3, 1e-11
ASK_SECONDS = 40e-6
"""CPU time of a search for a term that a shard has not: to open one, by its bytes, and to ask one that is open.

Measured on shards of 1,000 to a million events."""
TOLD_SECONDS, TOLD_AGAIN_SECONDS = 10e-6, 0.5e-6
"""CPU time of a search for a shard whose filter is in a file: of the first of a process, and of another one.

Measured on 500 shards."""
OPEN_BYTES = 15 << 10
"""Memory of an open shard, besides its manifest and the pages that the system may drop again."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What comes in, and how often steps run; sizes in bytes."""

    events_per_day: float
    years: float
    event_bytes: float = SAMPLE.journal
    retention_days: float | None = None
    history_days: float | None = None
    writers: int = 1
    pass_seconds: float = 60.0
    compact_seconds: float | None = _COMPACT_SECONDS
    cores: float = 1.0
    """That do the rollover of all writers."""

    def check(self) -> None:
        """Raise InvalidInputError for a workload that makes no sense."""
        for field in ("events_per_day", "event_bytes", "writers", "pass_seconds", "cores"):
            value = getattr(self, field)
            if not 1 <= value < math.inf:
                raise InvalidInputError(f"{field.replace('_', '-')}: expected 1 or more, got {value}.")
        if not 0 < self.years <= 1000:
            raise InvalidInputError(f"years: expected more than 0 and at most 1000, got {self.years}.")
        for name, span in (("retention-days", self.retention_days), ("history-days", self.history_days)):
            if span is not None and not 0 < span < math.inf:
                raise InvalidInputError(f"{name}: expected more than 0, got {span}.")


@dataclass(slots=True)
class DayOfAWriter:
    """A simulated span of one writer: counts of what its passes made."""

    groups: int = 0
    units: int = 0
    rewrites: int = 0
    logs_written: int = 0
    rewritten_events: float = 0.0
    largest_rewrite: float = 0.0
    """Events of the largest log that a compaction wrote."""
    logs: list[float] | None = None
    """Events of the live logs, in their order."""
    passes: int = 0
    busy_passes: int = 0
    """Those that had something to roll over."""
    logs_rolled: int = 0
    """Logs that the rollover wrote; a compaction writes more."""
    checkpoints: int = 0
    """Those that are due by their number of transactions."""
    waiting_bytes: float = 0.0
    """Most bytes of journals that waited."""

    @property
    def transactions(self) -> int:
        """One for each unit, one for each rewrite."""
        return self.units + self.rewrites


def simulate_day(
    settings: Settings, workload: Workload, seconds: float = _DAY_SECONDS, sizes: EventBytes | None = None
) -> DayOfAWriter:
    """Simulate the passes of one writer; events come at an even rate, and have the sizes of the sample by default."""
    sizes = sizes or SAMPLE.scaled(workload.event_bytes)
    rate = workload.events_per_day / workload.writers / _DAY_SECONDS * sizes.journal
    day, live = DayOfAWriter(), list[float]()
    sealed: list[float] = []
    opened = 0.0
    compact_at = workload.compact_seconds or math.inf
    now, age = 0.0, 0
    while now + workload.pass_seconds <= seconds + 1e-6:
        now += workload.pass_seconds
        new, opened = _sealed_groups(settings, opened, rate, workload.pass_seconds)
        sealed += new
        day.groups += len(new)
        day.waiting_bytes = max(day.waiting_bytes, sum(sealed) + opened)
        day.busy_passes += bool(sealed)
        for unit in _units(settings, sealed):
            day.units += 1
            age += 1
            cut = _cut(settings, sizes, unit)
            day.logs_rolled += len(cut)
            live += cut
        sealed = []
        day.passes += 1
        if age >= settings.catalog.checkpoint_every:
            day.checkpoints, age = day.checkpoints + 1, 0
        if now >= compact_at - 1e-6:
            before = day.rewrites
            _compact(settings, sizes, live, day)
            age += day.rewrites - before
            compact_at += workload.compact_seconds or math.inf
    day.logs = live
    return day


def _sealed_groups(settings: Settings, opened: float, rate: float, seconds: float) -> tuple[list[float], float]:
    """Return the bytes of the groups that are sealed in a span, and of the one that is open at its end.

    A group is sealed when it is full, or old.
    """
    journal = settings.journal
    full = min(float(journal.seal_bytes), max(rate * journal.seal_seconds, rate))
    groups = []
    total = opened + rate * seconds
    while total >= full > 0:
        groups.append(full)
        total -= full
    return groups, total


def _units(settings: Settings, sealed: Sequence[float]) -> Iterator[float]:
    """Yield the bytes of the units that the groups become."""
    groups = [Group("w", number, (), ()) for number in range(len(sealed))]
    target = settings.eventlog.log_bytes_target
    for unit in plan_units(groups, lambda group: int(sealed[group.first_event_id]), target):
        yield sum(sealed[group.first_event_id] for group in unit)


def _cut(settings: Settings, sizes: EventBytes, unit: float) -> list[float]:
    """Return the events of the logs that a unit is cut into: full ones, and one with the rest."""
    events = unit / sizes.journal
    most = max(1.0, math.floor(settings.eventlog.log_bytes_target / sizes.plain))
    logs = [most] * int(events // most)
    rest = events - most * len(logs)
    return logs + ([rest] if rest >= 1 or not logs else [])


def _compact(settings: Settings, sizes: EventBytes, live: list[float], day: DayOfAWriter) -> None:
    """Join small neighbours, as `custody.maintenance.rewriting` does: of at most half of a log's size."""
    target = settings.eventlog.log_bytes_target / sizes.encoded
    joined: list[float] = []
    run: list[float] = []

    def end() -> None:
        if len(run) > 1:
            day.rewrites += 1
            day.logs_written += 1
            day.rewritten_events += sum(run)
            day.largest_rewrite = max(day.largest_rewrite, sum(run))
        joined.extend([sum(run)] if run else [])
        run.clear()

    for log in live:
        # A large log is joined with none, and stands between its neighbours.
        if log > target / 2 or (run and sum(run) + log > target):
            end()
        if log > target / 2:
            joined.append(log)
        else:
            run.append(log)
    end()
    live[:] = joined


class CapacityLimit(msgspec.Struct, frozen=True, kw_only=True):
    """Something that has a bound: how much of it there will be, and what raises the bound."""

    name: str
    value: float
    bound: float
    unit: str
    breaks_after_days: float | None
    """When the bound is reached, None for not within the time."""
    remedy: str


class SearchSeconds(msgspec.Struct, frozen=True, kw_only=True):
    """CPU time of a search without times for a term that one shard has, on files of this machine."""

    first: float
    """The first search of a process, which opens the shards whose filters are in no file."""
    again: float
    """Another one of the same process: filters cost nothing, open shards little, others are opened."""


class StoreCost(msgspec.Struct, frozen=True, kw_only=True):
    """What an object store costs at the end of the years, by the prices that were given."""

    storage_a_month: float
    writing_a_month: float
    """Requests of passes, checkpoints and compactions."""
    thousand_questions: dict[str, float]
    """Requests of so many, by the name of the question: each of another process, on the disk of the one before."""


class CapacityPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A repository at the end of its years; sizes in bytes, of all writers together unless it says otherwise."""

    events_per_day: float
    event_bytes: float
    years: float
    writers: int
    retention_days: float | None
    history_days: float | None
    groups_per_day: float
    passes_per_day: float
    transactions_per_day: float
    checkpoints_per_day: float
    logs_written_per_day: float
    live_logs: float
    log_bytes: float
    """Bytes of one live log, on average."""
    shards: float
    files: float
    """Files on the disks: live logs with tables of contents, shards, transactions and checkpoints that are kept."""
    live_events: float
    live_bytes: float
    catalog_bytes: float
    kept_old_bytes: float
    """Logs that a compaction replaced and the history still lists."""
    disk_bytes: float
    transactions_kept: float
    checkpoint_bytes: float
    """Of one writer's newest checkpoint."""
    state_bytes: float
    """Least memory of a reader for all catalogs."""
    rollover_cores: float
    waiting_bytes: float
    search_shards: float
    """Shards that a search without a bound on time asks."""
    search_day_shards: float
    """Shards that a search of one day asks."""
    compaction_bytes: float
    """Memory of the compaction that writes the largest log."""
    open_shards_bytes: float
    """Memory of the shards that a process keeps open."""
    search_seconds: SearchSeconds
    questions: tuple[QuestionRequests, ...]
    """What questions ask of an object store."""
    writing_requests_per_day: Requests
    """What passes, checkpoints and compactions of all writers ask of an object store."""
    cost: StoreCost | None = None
    """None without prices."""
    limits: tuple[CapacityLimit, ...]
    """In the order in which they break; those that hold are last."""


# By layout: how many files a shard is, and bytes of its index for one of the sample, whose shards are packed.
_FILES_A_SHARD = {"packed": 2, "whoosh": 11}
_SHARD_FACTOR = {"packed": 1.0, "whoosh": 5.4}


def plan_capacity(
    settings: Settings, workload: Workload, memory_bytes: float = 8 * _GIB, prices: Prices | None = None
) -> CapacityPlan:
    """Return what a repository becomes; `memory_bytes` is what a reader may take.

    Raises:
        InvalidInputError: the workload makes no sense.
    """
    workload.check()
    sizes, writers = SAMPLE.scaled(workload.event_bytes), workload.writers
    day = simulate_day(settings, workload)
    logs = day.logs or []
    days = workload.years * DAYS_A_YEAR
    kept_days = min(days, workload.retention_days or math.inf)
    history_days = min(days, workload.history_days or math.inf)
    events_a_log = sum(logs) / len(logs) if logs else 0.0
    entry = entry_bytes(settings, sizes, events_a_log)
    live_logs = len(logs) * kept_days
    # Checkpoints leave footers out.
    checkpoint = live_logs * entry_bytes(settings, sizes, events_a_log, with_footer=False)
    checkpoints = checkpoints_per_day(day, entry, checkpoint)
    live_events = workload.events_per_day * kept_days
    live_bytes = live_events * (sizes.log + sizes.toc + sizes.shard * _SHARD_FACTOR[settings.index.layout])
    transaction_bytes = (day.units + day.rewrites) * history_days * entry
    # Checkpoints grow with the repository until the retention begins: half of the last one on average until then.
    average = checkpoint * (1 - min(kept_days, days) / 2 / days) if workload.history_days is None else checkpoint
    catalog_bytes = writers * (transaction_bytes + checkpoints * history_days * average + checkpoint)
    old = writers * day.rewritten_events * history_days * sizes.log
    files_a_log = 2 + _FILES_A_SHARD[settings.index.layout]
    shard_bytes = events_a_log * sizes.shard * _SHARD_FACTOR[settings.index.layout]
    shards = live_logs * writers
    open_shards = min(settings.query.open_shards_max, shards)
    writing = _writing_requests(settings, sizes, workload, day, checkpoints)
    questions = _questions(workload, day, checkpoints, kept_days, shard_bytes)
    disk = live_bytes + old + catalog_bytes
    values = {
        "live_logs": live_logs * writers,
        "catalog_bytes": catalog_bytes,
        "checkpoint": checkpoint,
        "state": checkpoint * writers,
        "disk": disk,
        "open_shards": open_shards * (OPEN_BYTES + 2 * MANIFEST_SHARE * shard_bytes),
        "cores": workload.events_per_day * sizes.journal / _DAY_SECONDS / ROLLOVER_BYTES_A_SECOND,
        "waiting": day.waiting_bytes,
        "compaction": MEMORY_BYTES_MIN + Compact.memory_a_byte * day.largest_rewrite * sizes.log,
    }
    transactions_kept = day.transactions * history_days * writers
    checkpoints_kept = checkpoints * history_days * writers
    return CapacityPlan(
        events_per_day=workload.events_per_day,
        event_bytes=workload.event_bytes,
        years=workload.years,
        writers=writers,
        retention_days=workload.retention_days,
        history_days=workload.history_days,
        groups_per_day=float(day.groups * writers),
        passes_per_day=float(day.passes),
        transactions_per_day=float(day.transactions * writers),
        checkpoints_per_day=checkpoints * writers,
        logs_written_per_day=float(len(logs) * writers),
        live_logs=values["live_logs"],
        log_bytes=events_a_log * sizes.log,
        shards=values["live_logs"],
        files=values["live_logs"] * files_a_log + transactions_kept + 2 * checkpoints_kept,
        live_events=live_events,
        live_bytes=live_bytes,
        catalog_bytes=catalog_bytes,
        kept_old_bytes=old,
        disk_bytes=values["disk"],
        transactions_kept=transactions_kept,
        checkpoint_bytes=checkpoint,
        state_bytes=values["state"],
        rollover_cores=values["cores"],
        waiting_bytes=day.waiting_bytes * writers,
        search_shards=values["live_logs"],
        search_day_shards=float(len(logs) * writers),
        compaction_bytes=values["compaction"],
        open_shards_bytes=values["open_shards"],
        search_seconds=_search_seconds(shards, shard_bytes, open_shards, writers, settings.catalog.checkpoint_every),
        questions=questions,
        writing_requests_per_day=writing,
        cost=None if prices is None else _cost(prices, disk, writing, questions),
        limits=tuple(_limits(settings, workload, values, memory_bytes, kept_days)),
    )


def _questions(
    workload: Workload, day: DayOfAWriter, checkpoints: float, kept_days: float, shard_bytes: float
) -> tuple[QuestionRequests, ...]:
    """Return the requests of each kind of question at the end of the years."""
    logs, writers = float(len(day.logs or ())), workload.writers
    shards = logs * kept_days * writers
    stored = StoredRepository(
        writers=writers,
        behind=day.transactions / checkpoints / 2 if checkpoints else float(day.transactions),
        days=kept_days,
        logs_a_day=logs,
        shard_bytes=shard_bytes,
    )
    kept = kept_filters(shards * shard_bytes, writers)
    return (
        point_read(stored),
        search(stored, "search of a day", logs * writers, min(1.0, kept_days), kept),
        search(stored, "search without times", shards, kept_days, kept),
        # It looks all FlowFiles of a step up at once, in shards that are open since the first one.
        search(stored, "lineage of a FlowFile", shards, kept_days, kept),
    )


def _search_seconds(
    shards: float, shard_bytes: float, open_shards: float, writers: int, checkpoint_every: int
) -> SearchSeconds:
    opening = OPEN_SECONDS + OPEN_SECONDS_A_BYTE * shard_bytes
    # Files of filters are written with checkpoints: of each writer up to so many shards, or logs, are in none.
    opened = min(shards, writers * (SHARDS_MIN + checkpoint_every))
    told = shards - opened
    asked = opened * (1 - kept_filters(opened * shard_bytes, writers))
    # The cache keeps those that were used last, and a search asks in one order: of more shards than that none is open.
    each = ASK_SECONDS if asked <= open_shards else opening
    return SearchSeconds(first=opened * opening + told * TOLD_SECONDS, again=asked * each + told * TOLD_AGAIN_SECONDS)


def _writing_requests(
    settings: Settings, sizes: EventBytes, workload: Workload, day: DayOfAWriter, checkpoints: float
) -> Requests:
    """Return what a day's passes, checkpoints and compactions of all writers ask of an object store."""
    behind = day.transactions / checkpoints / 2 if checkpoints else float(day.transactions)
    busy = day.busy_passes
    each = pass_requests(day.logs_rolled / busy, checkpoints / busy, behind) * busy if busy else Requests()
    each += pass_requests(0, 0, behind) * (day.passes - busy)
    if workload.compact_seconds:
        runs = int(_DAY_SECONDS / workload.compact_seconds)
        each += compaction_requests(day.rewrites / runs) * runs if runs else Requests()
    rolled = sum(day.logs or ()) / day.logs_rolled if day.logs_rolled else 0.0
    joined = day.rewritten_events / day.logs_written if day.logs_written else 0.0
    for count, events in ((day.logs_rolled, rolled), (day.logs_written, joined)):
        for size in (sizes.log, sizes.shard * _SHARD_FACTOR[settings.index.layout]):
            parts = put_requests(events * size, settings.repository.multipart_bytes)
            each += Requests(reads=parts.reads, writes=parts.writes - 1) * count
    return each * workload.writers


def _cost(prices: Prices, disk: float, writing: Requests, questions: Sequence[QuestionRequests]) -> StoreCost:
    return StoreCost(
        storage_a_month=prices.of_storage(disk),
        writing_a_month=prices.of_requests(writing * _DAYS_A_MONTH),
        thousand_questions={item.name: prices.of_requests(item.new_process * 1000) for item in questions},
    )


def entry_bytes(settings: Settings, sizes: EventBytes, events: float, *, with_footer: bool = True) -> float:
    """Return the bytes of a live log with so many events in the catalog; what is too large is left to the file."""
    blocks = max(1, math.ceil(events * sizes.encoded / (settings.eventlog.block_bytes_max * _BLOCK_SHARE)))
    footer, blooms = blocks * FOOTER_BYTES_A_BLOCK, blocks * BLOOM_BYTES_A_BLOCK
    kept = footer if with_footer and footer <= FOOTER_BYTES_MAX else 0
    return ENTRY_BYTES + kept + (blooms if blooms <= BLOOM_BYTES_MAX else 0)


def checkpoints_per_day(day: DayOfAWriter, entry: float, checkpoint: float) -> float:
    """Return how many checkpoints one writer's passes write in a day: at most one a pass."""
    heavy = math.ceil(max(_LOG_BYTES_MIN, _LOG_FRACTION * checkpoint) / entry)
    return max(float(day.checkpoints), min(float(day.passes), day.transactions / heavy))


def _limits(
    settings: Settings, workload: Workload, values: dict[str, float], memory_bytes: float, kept_days: float
) -> list[CapacityLimit]:
    days = workload.years * DAYS_A_YEAR

    def limit(name: str, value: float, bound: float, unit: str, remedy: str, *, grows: bool = True) -> CapacityLimit:
        is_broken = value > bound
        after = None if not is_broken else kept_days * bound / value if grows else 0.0
        return CapacityLimit(
            name=name, value=value, bound=bound, unit=unit, breaks_after_days=after, remedy=remedy if is_broken else ""
        )

    fewer = "raise eventlog.log_bytes_target (16 GiB at most) and journal.seal_bytes, or keep events for fewer days"
    limits = [
        limit("catalogs in a reader's memory", values["state"], memory_bytes, "bytes", fewer),
        limit("open shards in a reader's memory", values["open_shards"], memory_bytes, "bytes",
              "lower query.open_shards_max"),
        limit("memory of a compaction", values["compaction"], memory_bytes, "bytes",
              "lower eventlog.log_bytes_target, or give the machine of step compact as much (--memory-gib)",
              grows=False),
        limit("one checkpoint", values["checkpoint"], float(_GIB), "bytes",
              f"share the events among more writers, or {fewer}"),
        limit("catalog on disk", values["catalog_bytes"], max(values["disk"] / 10, float(_GIB)), "bytes",
              "set catalog.history_age_max, and raise catalog.checkpoint_every"),
        limit("journals that wait, of one writer", values["waiting"], settings.journal.waiting_bytes_max, "bytes",
              "run passes more often (CUSTODY_ROLLOVER_WATCH), share the events among more writers, or raise "
              "journal.waiting_bytes_max", grows=False),
        limit("cores of the rollover", values["cores"], workload.cores, "cores",
              f"{math.ceil(values['cores'])} cores (--cores): Spark, or custody run all --local --workers",
              grows=False),
    ]  # fmt: skip
    return sorted(limits, key=lambda item: (item.breaks_after_days is None, item.breaks_after_days or 0.0, days))
