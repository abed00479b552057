"""The retention plan: which live logs expire, and why; and marking, which carries it out in the catalog.

First go the logs of which every event is too old. If more than the limit is left on disk, the oldest logs go, each
writer's in the order of their ids and the writers merged by time, until the lower watermark is reached. A log with a
held event stays, and so does one whose journals or staged unit are still there. Files that wait for their deletion
count as gone already: no event goes in their place.

Marking takes the chosen logs out of the catalog, in one transaction a writer; no file is deleted here. From then on no
reader finds the events; a reader that has begun still finds the files. The transaction names the holds that it knew, so
that it does not apply when another was made meanwhile. Its mark names the files until they are deleted, and the journal
groups for as long as a delayed rollover could bring them back.
"""

from __future__ import annotations

import heapq
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from custody.catalog import (
    EXPIRED,
    Action,
    AddFile,
    AddMark,
    AddTombstone,
    MarkedShard,
    RemoveFile,
    RemoveShard,
    RemoveTombstone,
    RespectHolds,
)
from custody.catalog.difference_summary import masked_reason
from custody.clock import Clock
from custody.config import Settings
from custody.maintenance import hold_conditions
from custody.retention.candidates import ExpiryCandidates, HeldLog, log_files
from custody.retention.disk_usage import DiskUse, allocated_folder_bytes, measure_disk, waiting_bytes
from custody.retention.history import HistoryPlan, is_history_limited, plan_history
from custody.retention.rules import AgePolicy, Hiding
from custody.retention.swh_builds import former_builds
from custody.retention.unused_contents import ContentUse
from custody.vfs import FileSystem
from custody.workspace import Workspace

BY_AGE = "age"
BY_SIZE = "size"


class Expiring(msgspec.Struct, frozen=True, kw_only=True):
    """A live log that expires; times in ms since the epoch, bytes on disk with its shards and contents."""

    writer: str
    path: str
    why: str
    """`age`: all its events are too old; `size`: it is among the oldest, and room is needed."""
    events: int
    first_event_id: int
    last_event_id: int
    first_event_time_ms: int
    last_event_time_ms: int
    bytes: int


class RetentionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a retention pass at `now_ms`; sizes in bytes."""

    now_ms: int
    limit_bytes: int | None
    used_bytes: int
    """On disk now, everything counted."""
    waiting_bytes: int
    """The part of it that is live no longer and waits for its deletion."""
    after_bytes: int
    """On disk once the plan is carried out and the waiting files are deleted."""
    expiring: tuple[Expiring, ...]
    held: tuple[HeldLog, ...]
    """Logs that would expire but for a hold."""
    hiding: tuple[Hiding, ...]
    """Rules that begin to hide events of logs that stay."""
    problem: str | None = None
    """Why the limit cannot be kept, None when it can."""
    history: tuple[HistoryPlan, ...] = ()
    """What the limits on the history of the catalogs let go, and what stops them, for each writer they concern."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.expiring or self.hiding or any(not each.is_empty for each in self.history))


@dataclass
class ExpiryChoice:
    """The plan, and what it was made from: the logs that go by writer, and the candidates of each writer."""

    plan: RetentionPlan
    writers: dict[str, ExpiryCandidates]
    gone: dict[str, dict[str, AddFile]] = field(default_factory=dict)


def choose_expired(settings: Settings, fs: FileSystem, clock: Clock, workspaces: Sequence[Workspace]) -> ExpiryChoice:
    """Look at all writers and choose what expires."""
    now_ms = clock.now_ms()
    chosen = settings.retention
    policy = AgePolicy(now_ms, chosen.age_max_ms, chosen.keep_rules)
    surveyed = [ExpiryCandidates.of(item, policy, hold_conditions(item, workspaces)) for item in workspaces]
    use = measure_disk(settings, fs)
    contents = ContentUse(settings, fs, clock, surveyed)
    waiting = sum(waiting_bytes(item, now_ms) for item in workspaces)
    # Files that wait for their deletion count as gone: no event goes because they are still there.
    is_over = chosen.bytes_max is not None and use.total_bytes - waiting > chosen.bytes_max
    if is_over and use.kinds.get("content"):  # reads the claims of all events, so only when room is needed
        waiting += contents.unused_bytes
    if is_over and use.kinds.get("software"):
        waiting += sum(
            allocated_folder_bytes(fs, folder) for folder in former_builds(settings, fs, clock, needs_room=True)
        )
    chooser = _Chooser(surveyed, contents)
    # Age before size: what is too old goes in any case, and may free enough.
    chooser.by_age()
    if chosen.bytes_max is not None and use.total_bytes - waiting > chosen.bytes_max:
        chooser.by_size(use.total_bytes - waiting - chosen.bytes_max * chosen.purge_percent // 100)
    after = use.total_bytes - waiting - chooser.freed
    plan = RetentionPlan(
        now_ms=now_ms,
        limit_bytes=chosen.bytes_max,
        used_bytes=use.total_bytes,
        waiting_bytes=waiting,
        after_bytes=after,
        expiring=tuple(chooser.expiring),
        held=tuple(chooser.held.values()),
        hiding=tuple(_hiding(surveyed)),
        problem=_problem(chosen.bytes_max, after, use, tuple(chooser.held.values())),
        history=tuple(_history(workspaces)),
    )
    return ExpiryChoice(plan, {item.workspace.writer: item for item in surveyed}, chooser.gone)


class _Chooser:
    """Chooses logs of several writers; the room of a shard, or of contents, counts with its last log."""

    def __init__(self, writers: Sequence[ExpiryCandidates], contents: ContentUse) -> None:
        self._writers = writers
        self._contents = contents
        self.gone: dict[str, dict[str, AddFile]] = {item.workspace.writer: {} for item in writers}
        self.expiring: list[Expiring] = []
        self.held: dict[tuple[str, str], HeldLog] = {}
        self.freed = 0

    def by_age(self) -> None:
        """Choose the logs whose events are all too old."""
        for writer in self._writers:
            for file in writer.candidates:
                if writer.is_expired(file):
                    self._try(writer, file, BY_AGE)

    def by_size(self, needed_bytes: int) -> None:
        """Choose the oldest logs until so many bytes are freed."""
        # Each writer's logs go in the order of their ids, so that no hole opens in the middle of a writer.
        queues = [self._queue(number, writer) for number, writer in enumerate(self._writers)]
        for _, number, _, file in heapq.merge(*queues):
            if self.freed >= needed_bytes:
                return
            self._try(self._writers[number], file, BY_SIZE)

    def _queue(self, number: int, writer: ExpiryCandidates) -> Iterator[tuple[int, int, int, AddFile]]:
        """Yield a writer's logs in the order of their ids; times that go back do not change that order."""
        time = -(1 << 63)
        for file in writer.candidates:
            # Old history that was brought in late does not go before newer events that were stored earlier.
            time = max(time, file.first_event_time_ms)
            if file.path not in self.gone[writer.workspace.writer] and writer.is_in_reach(file):
                yield time, number, file.first_event_id, file

    def _try(self, writer: ExpiryCandidates, file: AddFile, why: str) -> None:
        name = writer.workspace.writer
        # Looked at last: only for logs that would go is it worth reading events.
        if writer.holders(file):
            self.held.setdefault((name, file.path), writer.held_log(file))
            return
        expiring = self.gone[name]
        # Before its room is counted: a shard's room counts with the last of its logs, this one included.
        expiring[file.path] = file
        size = writer.room(file, writer.leaving([file.path], expiring)) + self._contents.released(name, file.path)
        self.freed += size
        self.expiring.append(
            Expiring(
                writer=name,
                path=file.path,
                why=why,
                events=file.rows,
                first_event_id=file.first_event_id,
                last_event_id=file.last_event_id,
                first_event_time_ms=file.first_event_time_ms,
                last_event_time_ms=file.last_event_time_ms,
                bytes=size,
            )
        )


def _hiding(writers: Sequence[ExpiryCandidates]) -> Iterator[Hiding]:
    added = {(_reason(stone, writer), stone.to_time_ms) for writer in writers for stone in writer.hiding[1]}
    dropped = {(_reason(stone, writer), 0) for writer in writers for stone in writer.hiding[0]}
    dropped -= {(reason, 0) for reason, _ in added}
    for reason, before_ms in sorted(added | dropped):
        yield Hiding(rule=reason.removeprefix("retention: "), before_ms=before_ms)


def _reason(stone: AddTombstone, writer: ExpiryCandidates) -> str:
    """Return the rule that a tombstone carries out, as whoever asks for the plan may see it."""
    visibility = writer.workspace.visibility
    return stone.reason if visibility is None else masked_reason(stone, visibility.mask)


def _history(workspaces: Sequence[Workspace]) -> Iterator[HistoryPlan]:
    plans = (plan_history(workspace) for workspace in workspaces if is_history_limited(workspace))
    return (plan for plan in plans if not plan.is_empty or plan.limited_by)


def _problem(limit: int | None, after: int, use: DiskUse, held: Sequence[HeldLog]) -> str | None:
    if limit is None or after <= limit:
        return None
    holds = sorted({name for log in held for name in log.holds})
    held_bytes = f"{sum(log.bytes for log in held)} bytes are held by {', '.join(holds)}; " if holds else ""
    rest = ", ".join(f"{kind} {size}" for kind, size in use.kinds.items() if kind not in ("logs", "trash") and size)
    return (
        f"retention.bytes_max: expected at most {limit} bytes after everything that may go, got {after}. {held_bytes}"
        f"on disk are besides event logs: {rest}. Raise the limit, release a hold, or run the rollover."
    )


def mark_expired(choice: ExpiryChoice) -> dict[str, int]:
    """Carry out a choice; return the revision of each writer's transaction.

    Durability: on return the transactions survive power loss. On raise some writers may be done: plan again.

    Raises:
        ConflictError: a log was compacted, or a hold was made, in the meantime; that writer's catalog is unchanged.
    """
    revisions = {}
    for name, writer in choice.writers.items():
        writer.workspace.catalog.settle()  # a transaction of a process that died may have done all this already
        actions = list(_actions(writer, choice.gone.get(name, {}), choice.plan.now_ms))
        if actions:
            # A hold that was made since the plan makes the commit fail instead of losing the held events.
            respected = Action(respect_holds=RespectHolds(names=sorted(writer.state.holds)))
            revisions[name] = writer.workspace.catalog.commit([*actions, respected]).revision
    return revisions


def _actions(writer: ExpiryCandidates, expiring: Mapping[str, AddFile], now_ms: int) -> Iterator[Action]:
    if expiring:
        shards = writer.leaving(list(expiring), expiring)
        yield from (Action(remove_file=RemoveFile(path=path, reason=EXPIRED)) for path in sorted(expiring))
        yield from (Action(remove_shard=RemoveShard(name=shard.name, reason=EXPIRED)) for shard in shards)
        # The mark remembers only groups that no live log names any more; the others stay live by their logs.
        remaining = {
            group for path, file in writer.state.files.items() if path not in expiring for group in file.groups
        }
        yield Action(
            add_mark=AddMark(
                id=uuid.uuid4().bytes,
                paths=sorted(path for file in expiring.values() for path in log_files(file)),
                shards=[MarkedShard(name=shard.name, container=shard.container) for shard in shards],
                groups=sorted({group for file in expiring.values() for group in file.groups} - remaining),
                events=sum(file.rows for file in expiring.values()),
                size_bytes=sum(writer.room(file, ()) for file in expiring.values()),
                created_ms=now_ms,
            )
        )
    dropped, added = writer.hiding
    yield from (Action(remove_tombstone=RemoveTombstone(id=stone.id)) for stone in dropped)
    yield from (Action(add_tombstone=stone) for stone in added)
