"""Garbage collection: data files that no kept revision lists go to the trash, and are deleted in a later run.

Data is listed first and the catalog is loaded second, so that a file which is written and committed meanwhile is either
not in the listing or in the catalog. A file that is written and not yet committed is young, and young files stay.

A name whose events are yet to become live is never moved: a writer may put the file anew and list it while it is on its
way to the trash, and a reader would miss it until it is back. Such a file is a leftover of the pipeline, which replaces
it, or a log of a lost transaction, which a repair lists again.

Much time may pass between the look and the move, for a process may be stopped. So age and catalog are looked at again
right before each file is moved, and the catalog once more right after it. A listed file that is found in the trash is
moved back, also by the next run if this one ends in between.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from custody.catalog.catalog import Catalog
from custody.catalog.second_copies import copied_ids, ids_added_by
from custody.catalog.state import CatalogState, PrunedError
from custody.catalog.transaction_pb2 import AddFile
from custody.clock import Clock
from custody.errors import NotFoundError, StorageError
from custody.format.names import (
    INDEX,
    parse_event_log,
    parse_shard,
    parse_stored_shard,
    parse_trash,
    stored_shard,
    trash_path,
)
from custody.store import ObjectInfo

HOUR_MS = 3_600_000
# A file is written first and listed later: a younger one may still wait for its commit.
OLDER_THAN_MS = 24 * HOUR_MS
# For this long a file that is needed after all can be brought back.
TRASH_KEPT_MS = 7 * 24 * HOUR_MS
# Each failed try means that others pruned what was being read; the last one raises.
_READ_ATTEMPTS = 5


@dataclass
class GarbageReport:
    """The result of a run: keys relative to the database, and bytes."""

    moved: list[str] = field(default_factory=list)
    moved_bytes: int = 0
    deleted: list[str] = field(default_factory=list)
    deleted_bytes: int = 0
    restored: list[str] = field(default_factory=list)
    young: list[str] = field(default_factory=list)
    """Not listed, but too young to be told from what is being written."""
    ahead: list[str] = field(default_factory=list)
    """Not listed, of events behind all that were ever live: they may be listed yet."""
    unknown: list[str] = field(default_factory=list)
    """Names that are not custody's; they are left alone."""
    left: int = 0
    """How many more files would be moved without the limit."""


def collect_garbage(
    catalog: Catalog,
    clock: Clock,
    *,
    older_than_ms: int = OLDER_THAN_MS,
    trash_kept_ms: int = TRASH_KEPT_MS,
    limit: int | None = None,
    dry_run: bool = False,
) -> GarbageReport:
    """Move unlisted files to the trash and delete what has been there long enough; a dry run only looks.

    With a `limit` at most so many files are moved and at most so many deleted; the next run goes on.

    Raises:
        CorruptionError: the catalog cannot be read; then nothing is touched.
        EarlierStateError: a later state was seen of the catalog; then nothing is touched.
        PrunedError: others pruned it again and again while it was read; then nothing is touched.
        StripeMissingError: a stripe is not there; then nothing is touched.
    """
    files, now = catalog.objects.files, clock.now_ms()
    # Data before the catalog: a file that is committed in between is then in the catalog that is loaded second.
    data = [*files.names("data/"), *(files.names(f"{INDEX}/") if files.copies is not None else ())]
    # The trash is listed before this run moves anything, so no file is deleted in the run that moved it.
    trash = list(files.list("trash/"))
    # What a later state lists, an earlier one takes for garbage.
    catalog.require_newest(catalog.load())
    run = _Run(catalog, now, older_than_ms, dry_run=dry_run)
    run.empty_trash(trash, now - trash_kept_ms, limit)
    run.move(data, limit)
    if catalog.copies is not None and not dry_run:
        catalog.copies.tidy(
            _copied_ids_of_history(catalog), now - older_than_ms
        )  # the events that they hid are deleted
    return run.report


def _copied_ids_of_history(catalog: Catalog) -> set[str]:
    """Return the ids of all tombstones and marks that any kept revision has."""
    state = catalog.load()
    if state.revision < 0:
        return set()
    ids = copied_ids(catalog.at(state.floor))
    for transaction in catalog.timeline(state.floor):
        ids.update(ids_added_by(transaction.actions))
    return ids


def kept_files(catalog: Catalog) -> set[str]:
    """Return the paths of all files, tables of contents included, that any kept revision lists.

    Raises:
        CorruptionError: the catalog cannot be read.
        PrunedError: others pruned it again and again while it was read.
    """
    return _listed_paths(catalog).paths


class _ListedPaths:
    """The paths that any kept revision lists; `refresh` adds those that were committed since."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.paths: set[str] = set()
        self._seen = -1
        self._next_event_id = 0
        # From the floor on, not the newest state only: earlier revisions are readable too and need their files.
        state = catalog.load()
        if state.revision >= 0:
            self._add(catalog.at(state.floor).files.values())
            self._follow(state.floor)
            self._add_shards(state)

    def refresh(self) -> None:
        """Add what was committed since; of revisions that were pruned already, what is still live."""
        state = self._catalog.load()
        if state.revision == self._seen:
            return
        try:
            self._follow(max(self._seen, state.floor))
        # The revisions in between are gone, and so is the need for their files; only the live ones count.
        except PrunedError:
            self._seen = state.revision
        self._add(state.files.values())
        self._add_shards(state)

    def is_ahead(self, path: str) -> bool:
        """Whether a name is that of events which were not live yet when the catalog was looked at last."""
        shard = parse_shard(parse_stored_shard(path) or "")
        first = shard[1] if shard is not None else parse_event_log(path)
        return first is not None and first >= self._next_event_id

    def _add_shards(self, state: CatalogState) -> None:
        self._next_event_id = max(self._next_event_id, state.next_event_id)
        # Of the newest state only: who looks at an earlier one reads the logs where a shard is gone.
        self.paths.update(stored_shard(name) for name in state.shards)

    def _follow(self, start: int) -> None:
        for transaction in self._catalog.timeline(start):
            self._add(action.add_file for action in transaction.actions if action.HasField("add_file"))
            self._seen = transaction.revision

    def _add(self, files: Iterable[AddFile]) -> None:
        self.paths.update(path for file in files for path in (file.path, file.toc_path) if path)


def _listed_paths(catalog: Catalog) -> _ListedPaths:
    for _ in range(_READ_ATTEMPTS - 1):
        try:
            return _ListedPaths(catalog)
        except PrunedError:
            continue  # others pruned what was being read: begin again at the new floor
    return _ListedPaths(catalog)


def _is_own(path: str) -> bool:
    """Whether a path is one that custody gives to data."""
    return parse_event_log(path) is not None or parse_stored_shard(path) is not None


class _Run:
    """One run: looks again right before each file goes, and right after, as others commit meanwhile."""

    def __init__(self, catalog: Catalog, now_ms: int, older_than_ms: int, *, dry_run: bool) -> None:
        self._files = catalog.objects.files
        # Object stores give a moved object a new time.
        self._keeps_times = catalog.objects.store.keeps_times
        self._now = now_ms
        self._older_than_ms = older_than_ms
        self._dry_run = dry_run
        self.report = GarbageReport()
        self._listed = _listed_paths(catalog)

    def empty_trash(self, trash: list[ObjectInfo], before_ms: int, limit: int | None) -> None:
        """Move back what is listed, delete what was moved before a time."""
        report = self.report
        for info in trash:
            moved, path = parse_trash(info.key) or (0, "")
            # Only names that custody itself gives are touched: anything else may belong to a user.
            if not _is_own(path):
                report.unknown.append(info.key)
            elif self._is_listed(path):
                # A run that ended between the move and the second look leaves a listed file here. One whose place is
                # taken again stays until the path is listed no more.
                if not self._files.exists(path):
                    report.restored.append(path)
                    self._put_back(info.key, path)
            elif moved <= before_ms and (limit is None or len(report.deleted) < limit):
                report.deleted.append(path)
                report.deleted_bytes += info.size_bytes
                if not self._dry_run:
                    self._files.delete(info.key)
                    self._files.drop_folder(info.key.rpartition("/")[0] + "/")

    def move(self, data: list[str], limit: int | None) -> None:
        """Move what is not listed and old to the trash."""
        report = self.report
        for path in data:
            # Of what is listed, as nearly all is, the name is enough.
            if self._is_listed(path) or (info := self._files.head(path)) is None:
                continue
            if not _is_own(path):
                report.unknown.append(path)
            elif info.modified_ms > self._now - self._older_than_ms:
                report.young.append(path)
            elif self._listed.is_ahead(path):
                report.ahead.append(path)
            elif limit is not None and len(report.moved) >= limit:
                report.left += 1
            elif self._dry_run or self._moved(info, path):
                report.moved.append(path)
                report.moved_bytes += info.size_bytes

    def _moved(self, info: ObjectInfo, path: str) -> bool:
        """Move a file unless it was written anew or listed meanwhile; put it back when it was listed in between."""
        now = self._files.head(path)
        if now is None:
            return False
        if now.modified_ms > self._now - self._older_than_ms:
            self.report.young.append(path)
            return False
        if self._is_listed(path):
            return False
        target = trash_path(path, self._now)
        try:
            # Moved, not deleted: for as long as it lies in the trash, a commit that lists it after all can have it
            # back.
            self._files.move(path, target)
        except (StorageError, NotFoundError):
            if self._files.exists(path):
                raise
            return False  # another run was quicker
        if self._is_listed(path):
            self._put_back(target, path)
            self.report.restored.append(path)
            return False
        # With a new time the check would take every file for young.
        if self._keeps_times and self._was_written_anew(target):
            self._put_back(target, path)  # written between the look and the move; its commit is yet to come
            self.report.young.append(path)
            return False
        return True

    def _was_written_anew(self, key: str) -> bool:
        moved = self._files.head(key)
        return moved is not None and moved.modified_ms > self._now - self._older_than_ms

    def _is_listed(self, path: str) -> bool:
        """Whether a revision lists a file, by the newest state."""
        # A known path needs no refresh: at worst its revision was pruned meanwhile, and the file stays until the next
        # run.
        if path not in self._listed.paths:
            self._listed.refresh()
        return path in self._listed.paths

    def _put_back(self, key: str, path: str) -> None:
        """Give a file in the trash its place again, unless somebody has just written it anew."""
        if self._dry_run:
            return
        try:
            data = self._files.get(key)
        except NotFoundError:
            return  # another run was quicker
        # Copied, then deleted: a move would overwrite what a writer has just put in the place. A crash in between
        # leaves both, which is harmless.
        self._files.put_if_absent(path, data)
        if self._files.exists(path):
            self._files.delete(key)
