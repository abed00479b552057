"""One writer's files: the places of its journals, staged units, logs and shards, and how far each has come.

A `Workspace` is what every step and every reader works with. All that it answers is read from disk: there is no other
status that could get out of step. It also separates the writer's own journals from those of another incarnation of its
name, whose event ids belong to other events.
"""

from __future__ import annotations

import errno
import socket
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import msgspec

from custody.catalog import (
    AddShard,
    CatalogState,
    FederatedState,
    live_groups,
    open_catalog,
    store_of,
    writable_store_of,
)
from custody.clock import Clock, SystemClock
from custody.config import Settings
from custody.errors import CorruptionError, EarlierStateError, FormatVersionError, NotFoundError, StorageError
from custody.eventlog import LogMetadata, LogOptions, StagedLog
from custody.format.names import (
    HANDOFF,
    REMOVING_PREFIX,
    UNIT_MANIFEST,
    ContainerPaths,
    DatabasePaths,
    check_name,
    container_paths,
    event_log_path,
    is_name,
    parse_staged_unit,
    parse_witness,
    shard_container,
    shard_name,
    toc_path,
)
from custody.journal import (
    Claim,
    Group,
    Incarnations,
    MissingContainer,
    check_containers,
    groups,
    holds_group,
    lock_path,
    missing_containers,
    read_header,
    unmounted_suspects,
    writer_states,
    writers,
)
from custody.lease import FencedFileSystem, Lease
from custody.store.witness import EarlierState, WitnessLook
from custody.vfs import FileSystem, PosixFileSystem
from custody.workspace.question import current_question
from custody.workspace.unit_manifest import UnitManifest, staged_path

if TYPE_CHECKING:
    from custody.catalog.shard_objects import ShardObjects
    from custody.index import FilterFile, StoredShard
    from custody.model.visibility import Visibility
    from custody.workspace.handoff import Handoff, HandoffFolder, HandoffManifest
    from custody.workspace.stored_units import StoredUnits

ROLLOVER_LEASE = "rollover"
"""The lease of all steps of a rollover: they work on each other's files, so a writer has one of them at a time."""


# A lineage asks each of a hundred shards several times: joining the parts of their paths took a fifth of its time.
@lru_cache(maxsize=1 << 14)
def _shard_path(root: Path, container: str, writer: str, name: str) -> Path:
    return ContainerPaths(root / container, writer).index / name


@lru_cache(maxsize=1 << 12)
def _database_folder(store: Path, writer: str, database: str) -> Path:
    return DatabasePaths(store, writer, database).home


@dataclass(frozen=True, slots=True)
class LogFiles:
    """Paths of a log, its table of contents and its shard, derived from the log's metadata."""

    log: Path
    toc: Path
    relative_log: str
    relative_toc: str
    shard: Path
    shard_name: str
    container: str


class Workspace:
    """One writer's files of one repository.

    With a `lease`, every effect that others see is refused once another attempt took over.
    """

    def __init__(
        self,
        settings: Settings,
        writer: str,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        lease: Lease | None = None,
        *,
        disk_lasts: bool = True,
        may_go_back: bool = False,
    ) -> None:
        self.settings = settings
        self.disk_lasts = disk_lasts
        """Whether what is on this machine's disk is there tomorrow; not on an executor of a cluster."""
        self.writer = check_name("writer", writer)
        self.database = settings.repository.database
        self.lease = lease
        self.fs: FileSystem = fs or PosixFileSystem()
        if lease is not None:
            # Every step publishes through this, so that none can forget to check its lease.
            self.fs = FencedFileSystem(self.fs, lease)
            writable_store_of(settings, self.fs)
        self.clock: Clock = clock or SystemClock()
        self.paths = DatabasePaths(settings.store, writer, self.database)
        self.catalog = open_catalog(settings, writer, self.fs, self.clock)
        # For what repairs an earlier state than one that was seen, or accepts it.
        self.catalog.may_go_back = may_go_back
        if not disk_lasts:
            self.catalog.witnesses = None
        if lease is not None and lease.name == ROLLOVER_LEASE:
            # Commits carry this epoch, and the catalog refuses older ones. Other leases count epochs of their own,
            # which mean nothing in the catalog.
            self.catalog.epoch = lease.epoch
        self.incarnations = Incarnations(self.catalog.objects.store, writer, self.database)
        self.visibility: Visibility | None = None
        """What readers through it may see; None for everything."""
        # A catalog goes on from the state that it read last, which two threads must not do at once.
        self._catalog_lock = Lock()
        self._incarnation_by_journal: dict[Path, str] = {}
        # One attribute, so that a thread never sees the groups of one revision under the number of another.
        self._live_groups: tuple[int, frozenset[int]] = (-2, frozenset())  # no state has revision -2

    @classmethod
    def all(cls, settings: Settings, fs: FileSystem | None = None, clock: Clock | None = None) -> list[Workspace]:
        """Return a workspace for each writer that has anything in this repository."""
        fs = fs or PosixFileSystem()
        return [cls(settings, name, fs, clock) for name in writer_names(settings, fs)]

    @cached_property
    def handoff(self) -> Handoff:
        """What the writer handed over; nobody asks where `journal.handoff` is off."""
        # Imported here: most commands of most repositories do without.
        from custody.workspace.handoff import Handoff

        objects = self.catalog.objects
        copies = self.settings.root / HANDOFF / self.writer / self.database
        return Handoff(self.fs, objects.store, objects.home, copies)

    @cached_property
    def stored_units(self) -> StoredUnits | None:
        """The staged units in the object store; None where they lie on this machine."""
        if not self.settings.is_staging_stored:
            return None
        from custody.workspace.stored_units import StoredUnits

        objects, copies = self.catalog.objects, self.paths.home / "staged-copies"
        return StoredUnits(self.fs, objects.store, objects.home, copies, self.writer, self.database)

    @cached_property
    def log_options(self) -> LogOptions:
        """The options with which logs are written here."""
        options = self.settings.eventlog
        return LogOptions(
            options.block_bytes_max, options.compression, options.compression_level, row_copies=options.row_copies
        )

    def seen_by(self, visibility: Visibility) -> Workspace:
        """Return the same files for a reader who may see some events only; what was read of the catalog is shared."""
        other = copy(self)
        other.visibility = visibility
        return other

    def check(self) -> None:
        """Raise SupersededError when another attempt took over the lease."""
        if self.lease is not None:
            self.lease.check()

    def is_held(self) -> bool:
        """Whether a live process holds the writer's name now."""
        # The system's lock ends with its process, however that ends: no file can be out of date about it.
        return self.fs.is_locked(lock_path(self.settings.containers, self.writer))

    def groups(self, among: Collection[int] | None = None) -> list[Group]:
        """Return the groups whose journals are still on disk, all or some by first event id, in that order.

        Journals of another incarnation are not among them: they hold other events under the same ids.
        """
        return self.own_and_foreign_groups(among)[0]

    def foreign_groups(self) -> list[Group]:
        """Return the groups of other incarnations whose journals are on the containers, by first event id."""
        return self.own_and_foreign_groups()[1]

    def own_and_foreign_groups(self, among: Collection[int] | None = None) -> tuple[list[Group], list[Group]]:
        """Return what `groups` and `foreign_groups` do, of one listing; one first event id may be in both."""
        return self._split_by_claims(self.groups_of_all_incarnations(among))

    def groups_of_all_incarnations(self, among: Collection[int] | None = None) -> list[Group]:
        """Return all groups on disk or handed over, whosever they are; `among` limits them to some first event ids."""
        on_disk = groups(self.fs, self.settings.containers, self.writer, among)
        return self._with_handed_over(on_disk, among) if self.hands_over else on_disk

    def groups_on_containers(self, among: Collection[int] | None = None) -> list[Group]:
        """Return the writer's own groups whose journals are on this machine's containers, handed over or not."""
        return self._split_by_claims(groups(self.fs, self.settings.containers, self.writer, among))[0]

    @property
    def hands_over(self) -> bool:
        """Whether sealed groups go to the store before they are rolled over."""
        return self.settings.journal.handoff == "store"

    @property
    def hands_contents_over(self) -> bool:
        """Whether contents go to the store once nobody writes to their file any more."""
        return self.settings.content.handoff == "store"

    def handed_over(self) -> dict[int, HandoffManifest]:
        """Return the writer's own groups that were handed over, by first event id; none where none are."""
        if not self.hands_over:
            return {}
        claims = self.incarnations.readable_claims()
        return {
            folder.first_event_id: manifest
            for folder, manifest in self.handoff.manifests()
            if holds_group(claims, folder.incarnation, folder.first_event_id)
        }

    def _with_handed_over(self, on_disk: list[Group], among: Collection[int] | None) -> list[Group]:
        """Return groups with those journals that the store has and no container."""
        by_first = {group.first_event_id: group for group in on_disk}
        for folder in self.handoff.folders():
            first = folder.first_event_id
            paths = self._handed_over_paths(folder) if among is None or first in among else ()
            group = by_first.get(first) or Group(self.writer, first, (), ())
            here = {(path.name, self._incarnation_or_none(path)) for path in group.sealed} if paths else set()
            # A journal that is in both places is read once: from the container, as long as it is there.
            more = [path for path in paths if (path.name, folder.incarnation) not in here]
            if more:
                by_first[first] = replace(group, sealed=(*group.sealed, *more))
        return [group for _, group in sorted(by_first.items())]

    def _handed_over_paths(self, folder: HandoffFolder) -> tuple[Path, ...]:
        try:
            manifest = self.handoff.manifest(folder)
            paths = () if manifest is None else self.handoff.paths(folder, manifest)
        except NotFoundError:
            return ()  # swept in this moment: its events are live
        self._incarnation_by_journal.update(dict.fromkeys(paths, folder.incarnation))
        return paths

    def _incarnation_or_none(self, journal: Path) -> str | None:
        try:
            return self.incarnation_of(journal)
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            return None  # gone since it was listed: whoever reads it looks again

    def incarnation_of(self, journal: Path) -> str:
        """Return the incarnation under which a journal was written, empty when it is unknown.

        The journal's header names it; where it does not, the state of its container does.

        Raises:
            StorageError: the journal is gone: sealed or swept in this moment.
        """
        incarnation = self._incarnation_by_journal.get(journal, "")
        if not incarnation and journal not in self._incarnation_by_journal:
            header = read_header(self.fs, journal)
            incarnation = header.incarnation if header is not None else ""
            if not incarnation:
                return self._incarnation_of_container(journal)  # not remembered: a container's state may change
            self._incarnation_by_journal[journal] = incarnation  # a journal's header never changes
        return incarnation

    def incarnation_of_group(self, group: Group) -> str:
        """Return the incarnation under which a group was written; as `incarnation_of`."""
        return self.incarnation_of((*group.sealed, *group.open)[0])

    def has_anything(self) -> bool:
        """Whether there are journals of the writer, or containers of it that were here and are not there."""
        return bool(self.groups_of_all_incarnations()) or not all(missing.host for missing in self.missing())

    def missing(self) -> list[MissingContainer]:
        """Return the containers of the writer that are not there; none where the writer's states cannot be read.

        The states on the other containers name them; where there is no state, the claim of the writer's name does. On a
        machine whose disk does not last there never were any: its driver looked.
        """
        if not self.disk_lasts:
            return []
        question = current_question(self.settings)
        ahead = None if question is None else question.missing(self)
        if ahead is not None:
            return ahead
        try:
            states = writer_states(self.fs, self.settings.containers, self.writer)
        # `require_containers` reports this damage. A question that only asks what is missing must not fail over it.
        except (CorruptionError, FormatVersionError):
            return []
        # Where containers of the writer are here, their states name the others. Where none is, the writer may live on
        # another machine: its containers are not missing then, only out of reach.
        claims = [] if states else self.incarnations.readable_claims()
        if not claims:
            return missing_containers(self.writer, states)
        last = claims[-1]
        # On this machine a container that the claim names is missing. On another one it is only out of reach.
        host = "" if last.host == socket.gethostname() else last.host
        return [
            MissingContainer(self.writer, name, Path(place), host=host)
            for name, place in sorted(last.containers.items())
        ]

    def earlier_state(self, state: CatalogState | None = None) -> EarlierState | None:
        """Return how the catalog, or the claims of the name, are earlier than what was seen of them; None if not.

        A `state` that was read just now spares the look at the catalog.

        Raises:
            CorruptionError: the catalog is damaged.
        """
        witnesses = self.catalog.witnesses
        if witnesses is None:
            return None
        state, look = state or self.state(), witnesses.look()
        earlier = self.catalog.earlier_state(state, look) or self._earlier_disk(look)
        # Before the first transaction the claim of the name is all that the store has of the writer.
        if earlier is not None or state.revision >= 0:
            return earlier
        seen = witnesses.seen()
        objects = self.catalog.objects
        if not seen.claim or self.database in objects.store.folders(f"{self.writer}/"):
            return None
        return EarlierState(
            self.writer,
            f"the store {objects.store.locate('')}",
            f"claim {seen.claim} of the writer's name",
            "nothing of the writer",
            seen.next_event_id,
        )

    def _earlier_disk(self, look: WitnessLook) -> EarlierState | None:
        """Return which container or store is from before an acceptance, or which container has fewer sealed journals
        than were seen of it; None where none is.
        """
        if not self.disk_lasts:
            return None
        if look.passed_by is not None:
            path, known, accepted = look.passed_by
            return EarlierState(
                self.writer,
                f"the disk of {path}",
                f"a state that was accepted {accepted} times in place of a later one",
                f"one that was {known} times",
                look.newest[0][1].next_event_id,
            )
        try:
            states = writer_states(self.fs, self.settings.containers, self.writer)
        except (CorruptionError, FormatVersionError):
            return None  # the start of a writer reports this damage, and `verify`
        for where, seen in look.newest if states else ():
            for root, state in states.items():
                sealed = state.sealed
                if sealed is not msgspec.UNSET and sealed < seen.containers.get(state.container, 0):
                    return EarlierState(
                        self.writer,
                        f"the container {root}",
                        f"journals up to the id {seen.containers[state.container] - 1}, of which {where} knows",
                        f"a state that knows of journals up to the id {sealed - 1}" if sealed else "no journal",
                        seen.next_event_id,
                    )
        return None

    def require_newest(self, state: CatalogState | None = None) -> None:
        """Raise EarlierStateError where `earlier_state` returns something; raises as that."""
        earlier = None if self.catalog.may_go_back else self.earlier_state(state)
        if earlier is not None:
            raise EarlierStateError(f"{earlier}. Nothing is written.")

    def require_containers(self) -> None:
        """Raise unless all containers of the writer are there, except those on another machine.

        Raises:
            StorageError: one is missing.
            CorruptionError: a state is damaged, so that it is unknown.
        """
        check_containers(self.fs, self.settings.containers, self.writer)
        for missing in self.missing():
            if not missing.host:
                raise StorageError(str(missing))

    def require_container(self, path: Path) -> None:
        """Raise StorageError unless the container that a path belongs to is there.

        A folder made at a place where a disk is not mounted would be hidden by the disk later.
        """
        for root, missing in unmounted_suspects(self.fs, self.settings.containers).items():
            if path.is_relative_to(root):
                raise StorageError(f"{path}: nothing is made there, as a container is missing. {missing}")

    def staged(self) -> list[int]:
        """Return the first groups of the merged units that wait in staging."""
        if self.stored_units is not None:
            return self.stored_units.firsts()
        firsts = (parse_staged_unit(name) for name in self.fs.list(self.paths.staging))
        return sorted(first for first in firsts if first is not None)

    def manifest(self, first_group: int) -> UnitManifest:
        """Return what a staged unit consists of.

        Raises:
            StorageError: it is gone: swept since it was listed.
            CorruptionError: it is damaged; the message says what to do.
        """
        if self.stored_units is not None:
            try:
                return self.stored_units.manifest(first_group)
            except NotFoundError as error:
                gone = StorageError(str(error))
                gone.errno = errno.ENOENT
                raise gone from error
        path = self.paths.staged_unit(first_group) / UNIT_MANIFEST
        return UnitManifest.decode(self.fs.read(path), path)

    def manifests(self, of: Iterable[int] | None = None) -> list[UnitManifest]:
        """Return the staged units, by first group; one that is swept in this moment is left out.

        With `of`, only those that may have these groups, or events with these ids: the id ranges of units do not
        overlap.
        """
        staged = self.staged()
        if of is not None:
            # The unit that holds a number is the last one that begins at or before it.
            places = {bisect_right(staged, number) - 1 for number in of}
            staged = [staged[place] for place in sorted(places) if place >= 0]
        manifests = []
        for first in staged:
            try:
                manifests.append(self.manifest(first))
            except StorageError as error:
                if error.errno != errno.ENOENT:
                    raise
        return manifests

    def staged_events(self, manifest: UnitManifest, log: StagedLog) -> Path:
        """Return a file with the events of one of a unit's logs; of a unit in the store, its checked copy.

        Raises:
            NotFoundError, CorruptionError: as `StoredUnits.events`.
        """
        if self.stored_units is not None:
            return self.stored_units.events(manifest, log)
        return staged_path(self.paths.staged_unit(manifest.first_group), log)

    def where_staged(self, first_group: int) -> str:
        """Return where a unit lies, for messages."""
        units = self.stored_units
        return str(self.paths.staged_unit(first_group)) if units is None else units.locate(first_group)

    def leftovers(self) -> list[Path]:
        """Return the staged units whose removal was interrupted."""
        names = self.fs.list(self.paths.staging)
        return [self.paths.staging / name for name in names if name.startswith(REMOVING_PREFIX)]

    def state(self) -> CatalogState:
        """Return the newest state of the catalog, or the one that the question at hand saw.

        Raises:
            CorruptionError: the catalog is damaged.
        """
        question = current_question(self.settings)
        return self.newest_state() if question is None else question.state(self)

    def newest_state(self) -> CatalogState:
        """Look at the catalog now; threads that share a workspace look one after the other; raises as `state`."""
        with self._catalog_lock:
            return self.catalog.load()

    def is_committed(self, state: CatalogState, group: int) -> bool:
        """Whether the events of a group are live already: a live file says that it holds some of them.

        All logs of a group become live in one transaction, so a group is never live in part. A group that was erased
        as a whole counts as live: nothing of it may become live again.
        """
        return group in self.live_groups(state)

    def live_groups(self, state: CatalogState) -> frozenset[int]:
        """Return the groups that are committed in a state of the catalog."""
        revision, committed = self._live_groups
        if revision != state.revision:
            # Once for each revision: steps ask group by group.
            committed = live_groups(state)
            self._live_groups = state.revision, committed
        return committed

    def shard_path(self, shard: AddShard) -> Path:
        """Return the folder of a live shard."""
        return _shard_path(self.settings.root, shard.container, self.writer, shard.name)

    def filter_folders(self) -> list[Path]:
        """Return the folders of filters of shards, on each container."""
        return [container_paths(root, self.writer).filters for root in self.settings.containers]

    def filter_files(self) -> Iterator[FilterFile]:
        """Yield the files of filters that are there and can be read."""
        from custody.index import filter_files

        yield from filter_files(self.fs, self.filter_folders())

    def stored_shard(self, shard: AddShard) -> StoredShard | None:
        """Return a live shard of an object store, open; None where its folder is here, or the store is a folder.

        Raises:
            NotFoundError: neither has it.
            CorruptionError, FormatVersionError, StorageError: as `ShardObjects.open`.
        """
        if not self.settings.is_store_remote or self.fs.exists(self.shard_path(shard)):
            return None
        return self.shard_objects.open(shard.name)

    @cached_property
    def shard_objects(self) -> ShardObjects:
        """The writer's shards in an object store."""
        # Imported when it is asked for: most commands look at no shard.
        from custody.catalog.shard_objects import ShardObjects

        return ShardObjects(self.catalog.objects.files)

    def log_place(self, path: str) -> Path:
        """Return where a file of the catalog lies, or should lie, by its path in it; nothing is looked at."""
        return self.catalog.objects.files.where(path)

    def log_path(self, path: str) -> Path:
        """Return the path of a file of the catalog that is about to be read or written; raises as `DataFiles.path`."""
        return self.catalog.objects.files.path(path)

    def choose_stripe(self, first_event_id: int, size: int) -> str:
        """Return the stripe on which a new log of about so many bytes belongs; raises as `Stripes.choose`."""
        stripes = self.catalog.objects.files.stripes
        return "" if stripes is None else stripes.choose(first_event_id, size, self.clock.now_ms())

    def files(self, metadata: LogMetadata, suffix: str = "", stripe: str = "") -> LogFiles:
        """Return where the files of a log belong, on a stripe that is not looked at or in the store.

        `suffix` is that of the compaction that writes it.
        """
        relative = event_log_path(metadata.first_event_id, metadata.partition, suffix, stripe)
        log = self.log_place(relative)
        number = shard_container(metadata.first_event_id, len(self.settings.containers))
        name = shard_name(metadata.first_event_time_ms, metadata.first_event_id, suffix)
        return LogFiles(
            log=log,
            toc=log.with_name(toc_path(log.name)),
            relative_log=relative,
            relative_toc=toc_path(relative),
            shard=ContainerPaths(self.settings.containers[number], self.writer).index / name,
            shard_name=name,
            container=str(self.settings.repository.containers[number]),
        )

    def _split_by_claims(self, everything: list[Group]) -> tuple[list[Group], list[Group]]:
        # A repository of an earlier version has no claims: everything is the writer's own.
        claims = self.incarnations.readable_claims() if everything else []
        if not claims:
            return everything, []
        # Foreign journals stay where they are: nothing acknowledged is removed, whoever owns the name now.
        own, foreign = [], []
        for group in everything:
            # Two incarnations may both have a group of this first event id, with their journals in the same folders.
            theirs = {path for path in (*group.sealed, *group.open) if not self._is_own(claims, group, path)}
            if not theirs:
                own.append(group)
                continue
            mine, other = _split(group, theirs)
            own += [mine] if mine.sealed or mine.open else []
            foreign.append(other)
        return own, foreign

    def _is_own(self, claims: list[Claim], group: Group, journal: Path) -> bool:
        try:
            incarnation = self.incarnation_of(journal)
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            return True  # whoever reads the journal finds it gone, and looks again
        return holds_group(claims, incarnation, group.first_event_id)

    def _incarnation_of_container(self, journal: Path) -> str:
        """Return the incarnation of a journal's container: by its state, else by the claim that names it."""
        containers = self.settings.containers
        root = next(root for root in containers if journal.is_relative_to(ContainerPaths(root, self.writer).home))
        claims = self.incarnations.readable_claims()
        try:
            state = writer_states(self.fs, containers, self.writer).get(root)
        except (CorruptionError, FormatVersionError):
            # Unknown; the start of a writer reports what is wrong.
            return claims[-1].incarnation if claims else ""
        if state is None or state.incarnation:
            return "" if state is None else state.incarnation
        named = (claim.incarnation for claim in claims if not claim.containers.keys().isdisjoint(state.containers))
        return next(named, "")


def writer_names(settings: Settings, fs: FileSystem) -> list[str]:
    """Return the names of the writers that have anything in a repository."""
    return writer_names_and_places(settings, fs)[0]


def writer_names_and_places(settings: Settings, fs: FileSystem) -> tuple[list[str], tuple[Path, ...]]:
    """Return the names of writers, and the folders and names that tell of new ones; none where a store is asked."""
    database = settings.repository.database
    store = settings.store
    homes = {name: _database_folder(store, name, database) for name in fs.list(store)}
    # Also those whose store and containers are away: their witnesses name them.
    witnessed = [name for name in map(partial(parse_witness, database=database), fs.list(settings.witnesses)) if name]
    stored = [name for name, home in homes.items() if fs.exists(home)]
    if settings.is_store_remote:
        stored += _stored_writers(settings, fs)
    # A writer may have journals and nothing in the store yet, or a catalog whose containers are elsewhere.
    names = sorted(filter(is_name, {*writers(fs, settings.containers), *stored, *witnessed}))
    if settings.is_store_remote:
        return names, ()
    # What has a folder and is no writer yet becomes one by what is made in it.
    others = [homes[name] for name in sorted(homes.keys() - set(names))]
    for root in settings.containers:
        others += [container_paths(root, name).journals for name in fs.list(root) if name not in names]
    return names, (store, *settings.containers, settings.witnesses, *others)


# What is below a writer's folder does not change, so that each is looked at once in a process.
_KNOWN_WRITERS: dict[tuple[str, str], set[str]] = {}


def _stored_writers(settings: Settings, fs: FileSystem) -> list[str]:
    """Return the names of the writers that have anything of the database in an object store; one request mostly."""
    store, database = store_of(settings, fs), settings.repository.database
    known = _KNOWN_WRITERS.setdefault((settings.repository.store, database), set())
    names = [name for name in store.folders("") if is_name(name)]
    known.update(name for name in names if name not in known and database in store.folders(f"{name}/"))
    return [name for name in names if name in known]


def not_absorbed(workspaces: Iterable[Workspace]) -> list[Workspace]:
    """Return the writers whose events no archive stands for, in the order given; all catalogs are read."""
    listed = list(workspaces)
    absorbed = federated_state(listed).absorbed if listed else {}
    return [item for item in listed if item.writer not in absorbed]


def without_archives(workspaces: Iterable[Workspace]) -> list[Workspace]:
    """Return the writers whose events stand for no others', in the order given; all catalogs are read."""
    listed = list(workspaces)
    archives = federated_state(listed).archives if listed else frozenset[str]()
    return [item for item in listed if item.writer not in archives]


def federated_state(workspaces: Sequence[Workspace]) -> FederatedState:
    """Return the newest states of some writers, at least one; all catalogs are read."""
    by_name = {item.writer: item for item in workspaces}
    states = {name: item.state() for name, item in by_name.items()}
    return FederatedState(workspaces[0].database, states, lambda name: by_name[name].state())


def _split(group: Group, theirs: Collection[Path]) -> tuple[Group, Group]:
    """Return the part of a group without some journals, and the part that consists of them."""
    mine = replace(
        group,
        sealed=tuple(path for path in group.sealed if path not in theirs),
        open=tuple(path for path in group.open if path not in theirs),
    )
    other = replace(
        group,
        sealed=tuple(path for path in group.sealed if path in theirs),
        open=tuple(path for path in group.open if path in theirs),
    )
    return mine, other
