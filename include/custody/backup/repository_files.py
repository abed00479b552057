"""The files of a repository at one moment, in the order in which a backup has to look at them.

What refers is looked at before what it refers to: ledgers and cursors before journals, journals before the catalog, the
catalog before logs, shards and contents. So no file of a backup knows of more than the others hold. What became live
between the looks at journals and catalog was sealed when its journals were listed, or the look begins again: the
catalog has no event that was acknowledged later. The lock of the FlowFile repository is held while journals are listed,
so that they have no event of a later transaction than its log.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from custody.backup.manifest import Area, WriterEnd
from custody.catalog import CatalogState, PrunedError, store_of
from custody.clock import Clock
from custody.config import SETTINGS_FILE, Settings
from custody.errors import (
    ConflictError,
    ContentContainerMissingError,
    EarlierStateError,
    NotFoundError,
    StorageError,
)
from custody.flow.content import ContentContainers
from custody.flowfile_repository import FlowFileLook
from custody.flowfile_repository.log import LogFolder, lock_folder
from custody.format.names import (
    CONTENT,
    CONTENT_HANDOFF,
    CONTENT_MARKS,
    ERASURES,
    FILTERS,
    FORGOTTEN,
    HANDOFF,
    INCARNATIONS,
    LEASES,
    SINK_FOLDER,
    SOFTWARE,
    STRIPE_MARK,
    STRIPES,
    JournalName,
    parse_filters,
    parse_revision,
    split_stripe,
    stored_shard,
)
from custody.journal import JournalFile, holds_group, read_end, writer_states
from custody.journal.journal_file import JournalEnd
from custody.store import LocalStore, ObjectInfo, ObjectStore
from custody.vfs import FileSystem
from custody.workspace import Workspace
from custody.workspace.handoff import HandoffFolder

ROOT, STORE, WORK = "root", "store", "work"
_REFERRING = ("landed", "exports", "site-to-site", "replays", "jobs", "uploads", "runs", "maintenance", "watch")
"""Folders of the repository's own that state how far events were taken in or delivered."""
_REPLACED = ("exports", "jobs", "maintenance", "watch", "site-to-site", SINK_FOLDER)
"""Folders of small files that are replaced under their names: they are read in the order in which they are listed."""
_READ_BYTES_MAX = 1 << 20
_READ_BYTES = 64 << 20
"""So much of journals, and of the log of FlowFiles, is read when it is listed."""
_LOCK_SECONDS = 30.0
_LOOKS_MAX = 20
_PAUSE_SECONDS = 0.2


class _LookAgain(Exception):
    """The repository changed while it was looked at."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of the repository: an object of an area, its length and time when it was listed."""

    area: str
    key: str
    size: int
    modified_ms: int
    sha256: bytes = b""
    """As a catalog states it; empty where none does."""
    data: bytes | None = None
    """The content, where it had to be read when it was listed."""
    is_optional: bool = False
    """Whether others hold what is in it, so that it may go before it is copied."""

    @property
    def path(self) -> str:
        """The path in the backup."""
        return f"{self.area}/{self.key}"

    @property
    def is_passing(self) -> bool:
        """Whether it is soon replaced or gone: a journal, a state, a cursor."""
        return self.data is not None or "/journals/" in self.key or self.key.startswith("flowfiles/")


@dataclass
class Moment:
    """The files of a repository at one moment, and what they hold; times in ms since the epoch."""

    from_ms: int
    """All that was acknowledged before is in the files."""
    until_ms: int = 0
    """Nothing that was acknowledged after is."""
    files: dict[str, SourceFile] = field(default_factory=dict)
    ends: list[WriterEnd] = field(default_factory=list)
    flowfiles: int = 0
    missing: list[str] = field(default_factory=list)
    """What a catalog lists and is not there."""

    def add(self, files: Iterator[SourceFile]) -> None:
        """Add files by their paths."""
        self.files.update((file.path, file) for file in files)


@dataclass
class _WriterLook:
    workspace: Workspace
    state: CatalogState
    """Before the journals were listed, and then after that."""
    groups: dict[int, bool] = field(default_factory=dict)
    """Whether all journals of a group were sealed when they were listed, by its first event id."""


class RepositoryFiles:
    """Looks at all files of one repository.

    Args:
        settings: of the repository.
        fs: of its folders.
        clock: tells the time.
        accept_older: takes a state that is earlier than one that was seen for what there is, and names it as missing.
    """

    def __init__(self, settings: Settings, fs: FileSystem, clock: Clock, *, accept_older: bool = False) -> None:
        self.settings = settings
        self._fs = fs
        self._clock = clock
        self._accept_older = accept_older
        self.stores = area_stores(settings, fs)

    def areas(self) -> list[Area]:
        """Return the areas with their places, as the settings have them."""
        return [Area(name=name, place=place) for name, place in area_places(self.settings).items()]

    def read(self, file: SourceFile, start: int, length: int) -> bytes:
        """Return a part of a file; raises NotFoundError when it has gone."""
        if file.data is not None:
            return file.data[start : start + length]
        return self.stores[file.area].get_range(file.key, start, length)

    def moment(self) -> Moment:
        """Look at everything.

        Raises:
            ConflictError: the repository changes too fast.
            CorruptionError: a catalog is damaged.
            EarlierStateError: a part of the repository is of an earlier moment than one that was seen, or away.
            StorageError: a disk is not there.
        """
        for number in range(_LOOKS_MAX):
            if number:
                time.sleep(_PAUSE_SECONDS)
            try:
                return self._look()
            except (_LookAgain, NotFoundError, PrunedError):
                continue
            except StorageError as error:
                # A file that was sealed, swept or removed between two looks at it.
                if error.errno != errno.ENOENT:
                    raise
        raise ConflictError(
            f"{self.settings.root}: changed at each of {_LOOKS_MAX} looks. Make the backup when fewer passes run."
        )

    def _look(self) -> Moment:
        moment = Moment(from_ms=self._clock.now_ms())
        # Before the catalogs: a request never says of one what it does not have yet.
        moment.add(self._erasures())
        for folder in _REFERRING:
            moment.add(self._own(folder))
        moment.add(self._sink())
        # After what says that input was taken: what was rejected of it is there before.
        moment.add(self._own("quarantine"))
        moment.add(self._configuration())
        # What a certificate says is erased is not in what is listed after it.
        moment.add(self._source(STORE, info, is_read=True) for info in self.stores[STORE].list(f"{ERASURES}/"))
        looks = [
            _WriterLook(workspace, workspace.newest_state()) for workspace in Workspace.all(self.settings, self._fs)
        ]
        for look in looks:
            look.workspace.require_containers()
            earlier = look.workspace.earlier_state()
            if earlier is not None and not self._accept_older:
                raise EarlierStateError(
                    f"{earlier}. No backup was made. Bring the later state back; --accept-older backs up what there is."
                )
            if earlier is not None:
                moment.missing.append(str(earlier))
        moment.from_ms = self._clock.now_ms()
        self._flowfiles_and_journals(moment, looks)
        moment.until_ms = self._clock.now_ms()
        for look in looks:
            self._follow(moment, look)
        for look in looks:
            self._catalog(moment, look)
        for look in looks:
            self._data(moment, look)
        moment.add(self._reports_in_store())
        return moment

    def _own(self, folder: str) -> Iterator[SourceFile]:
        for info in self.stores[ROOT].list(f"{folder}/"):
            if not info.key.endswith("/LOCK") and not info.key.endswith(".lock"):
                yield self._source(ROOT, info, is_read=folder in _REPLACED)

    def _source(self, area: str, info: ObjectInfo, *, is_read: bool = False) -> SourceFile:
        if is_read and info.size_bytes <= _READ_BYTES_MAX:
            data = self.stores[area].get(info.key)
            return SourceFile(area, info.key, len(data), info.modified_ms, data=data)
        return SourceFile(area, info.key, info.size_bytes, info.modified_ms)

    def _sink(self) -> Iterator[SourceFile]:
        """Yield the sink's files as they were at one time: a second look finds the same."""
        files = list(self._own(SINK_FOLDER))
        if [file.path for file in self._own(SINK_FOLDER)] != [file.path for file in files]:
            raise _LookAgain
        yield from files

    def _configuration(self) -> Iterator[SourceFile]:
        info = self.stores[ROOT].head(SETTINGS_FILE)
        if info is not None:
            yield self._source(ROOT, info, is_read=True)

    def _flowfiles_and_journals(self, moment: Moment, looks: list[_WriterLook]) -> None:
        home = self.settings.flowfiles_home
        folder = LogFolder(home)
        if not self._fs.exists(folder.logs):
            self._journals(moment, looks)
            return
        # Nobody commits while the lock is held, so no event of a later transaction is in the journals; events of
        # earlier ones that are not are delivered again, by their numbers.
        with lock_folder(self._fs, folder, _LOCK_SECONDS):
            self._journals(moment, looks)
            moment.flowfiles = sum(queue.count for queue in FlowFileLook(self._fs, home, 0).queues())
            names = [info for name in ("log", "swap") for info in self.stores[ROOT].list(f"flowfiles/{name}/")]
            snapshot = self.stores[ROOT].head("flowfiles/snapshot")
            left = _READ_BYTES
            for info in [*names, *([] if snapshot is None else [snapshot])]:
                is_read = not info.key.startswith("flowfiles/swap/") and info.size_bytes <= left
                data = self.stores[ROOT].get(info.key) if is_read else None
                left -= len(data or b"")
                source = SourceFile(ROOT, info.key, info.size_bytes, info.modified_ms, data=data)
                moment.files[source.path] = source

    def _journals(self, moment: Moment, looks: list[_WriterLook]) -> None:
        budget = [_READ_BYTES]
        for look in looks:
            writer = look.workspace.writer
            look.groups.clear()
            for area in self._containers():
                for info in self.stores[area].list(f"{writer}/journals/"):
                    name = JournalName.parse(info.key.rpartition("/")[2])
                    if name is not None:
                        moment.add(iter([self._journal(area, info, budget)]))
                        look.groups[name.first_event_id] = look.groups.get(name.first_event_id, True) and name.sealed
                # After the journals: its bound is above all ids in them.
                state = self.stores[area].head(f"{writer}/STATE")
                if state is not None:
                    moment.add(iter([self._source(area, state, is_read=True)]))

    def _journal(self, area: str, info: ObjectInfo, budget: list[int]) -> SourceFile:
        """Return a journal; read at once, as it may be sealed and swept before it is copied, while the budget lasts."""
        if info.size_bytes > budget[0]:
            return self._source(area, info)
        budget[0] -= info.size_bytes
        data = self.stores[area].get_range(info.key, 0, info.size_bytes)
        return SourceFile(area, info.key, len(data), info.modified_ms, data=data)

    def _containers(self) -> list[str]:
        return [name for name in self.stores if name.startswith("container-")]

    def _follow(self, moment: Moment, look: _WriterLook) -> None:
        """Add what was handed over, and look at the catalog after the journals."""
        workspace, prefix = look.workspace, f"{look.workspace.catalog.objects.home}{HANDOFF}/"
        # After the journals: what left a container is in the store, or live.
        for info in self.stores[STORE].list(prefix):
            moment.add(iter([self._source(STORE, info)]))
            folder = HandoffFolder.parse(info.key.removeprefix(prefix).partition("/")[0])
            if folder is not None:
                look.groups.setdefault(folder.first_event_id, True)
        before = workspace.live_groups(look.state)
        look.state = workspace.newest_state()
        # Of a group that was open then, or not there yet, the catalog would have events that were acknowledged later.
        if not all(look.groups.get(group, False) for group in workspace.live_groups(look.state) - before):
            raise _LookAgain
        for path, file in moment.files.items():
            name = self._journal_name(file, workspace.writer)
            if name is not None and workspace.is_committed(look.state, name.first_event_id):
                moment.files[path] = replace(file, is_optional=True)

    def _catalog(self, moment: Moment, look: _WriterLook) -> None:
        """Add what a writer has in the store beside its logs, and count what waits and what is live."""
        workspace, state, store = look.workspace, look.state, self.stores[STORE]
        home = workspace.catalog.objects.home
        for folder in (INCARNATIONS, LEASES, STRIPES):
            moment.add(self._source(STORE, info) for info in store.list(f"{home}{folder}/"))
        moment.add(self._transactions(workspace, state))
        copies = workspace.catalog.copies
        later = (
            set() if copies is None else {c.key for c in copies.read().by_id.values() if c.revision > state.revision}
        )
        moment.add(
            self._source(STORE, info, is_read=True)
            for info in store.list(f"{home}{FORGOTTEN}/")
            if info.key not in later  # of a later commit
        )
        moment.ends.append(self._end(moment, workspace, state))
        for missing in workspace.missing():
            moment.missing.append(str(missing))

    def _transactions(self, workspace: Workspace, state: CatalogState) -> Iterator[SourceFile]:
        prefix = workspace.catalog.objects.prefix
        for info in self.stores[STORE].list(prefix):
            revision = parse_revision(info.key.removeprefix(prefix).partition("/")[0])
            # The hint is left out: readers do without, and it may name a checkpoint that is not in the backup.
            if revision is not None and state.floor <= revision <= state.revision:
                yield self._source(STORE, info)

    def _end(self, moment: Moment, workspace: Workspace, state: CatalogState) -> WriterEnd:
        ends = [end for end in self._waiting(moment, workspace, state) if end.events]
        newest = [file.last_event_id for file in state.files.values()]
        newest += [end.last_event_id for end in ends if end.last_event_id is not None]
        states = writer_states(self._fs, self.settings.containers, workspace.writer)
        return WriterEnd(
            writer=workspace.writer,
            catalog_id=state.catalog_id.hex if state.revision >= 0 else "",
            revision=state.revision,
            digest=state.digest.hex(),
            live_events=sum(file.rows for file in state.files.values()),
            waiting_events=sum(end.events for end in ends),
            newest_event_id=max(newest, default=-1),
            reserved=max((item.reserved for item in states.values()), default=0),
        )

    def _waiting(self, moment: Moment, workspace: Workspace, state: CatalogState) -> Iterator[JournalEnd]:
        """Yield the ends of the writer's own journals that were listed and are not live."""
        claims = workspace.incarnations.readable_claims()
        for file in moment.files.values():
            name = self._journal_name(file, workspace.writer)
            if name is None or workspace.is_committed(state, name.first_event_id):
                continue
            path = Path(self.stores[file.area].locate(file.key))
            journal = None if file.data is None else JournalFile(path, file.data)
            incarnation = journal.header.incarnation if journal is not None and journal.header is not None else ""
            if holds_group(claims, incarnation or workspace.incarnation_of(path), name.first_event_id):
                found = None if journal is not None else read_end(self._fs, path)
                yield found or (journal or JournalFile.read(self._fs, path)).counted()
        if not workspace.hands_over:
            return
        # What is on a container was counted there.
        roots = self.settings.containers
        for group in workspace.groups():
            if not workspace.is_committed(state, group.first_event_id):
                for path in group.sealed:
                    if not any(path.is_relative_to(root) for root in roots):
                        yield read_end(self._fs, path) or JournalFile.read(self._fs, path).counted()

    def _journal_name(self, file: SourceFile, writer: str) -> JournalName | None:
        folder, _, name = file.key.rpartition("/")
        is_journal = file.area.startswith("container-") and folder == f"{writer}/journals"
        return JournalName.parse(name) if is_journal else None

    def _data(self, moment: Moment, look: _WriterLook) -> None:
        """Add the logs, shards, filters and contents of a writer, and its tables of software."""
        workspace, state = look.workspace, look.state
        writer, home = workspace.writer, workspace.catalog.objects.home
        files = workspace.catalog.objects.files
        wanted, live = _kept(workspace, state)
        found = {info.key: info for info in files.list("data/")} if wanted else {}
        for path, sha256 in wanted.items():
            info = found.get(path)
            if info is not None:
                stripe, rest = split_stripe(path)
                area = f"stripe-{stripe}" if stripe else STORE
                source = SourceFile(
                    area, home + rest, info.size_bytes, info.modified_ms, sha256, is_optional=path not in live
                )
                moment.files[source.path] = source
            elif path in live:
                moment.missing.append(files.locate(path))
        for name in self.stores:
            if name.startswith("stripe-"):
                mark = self.stores[name].head(f"{home}{STRIPE_MARK}")
                moment.add(iter([] if mark is None else [self._source(name, mark)]))
        moment.add(self._shards(workspace, state))
        for area in self._containers():
            for info in self.stores[area].list(f"{writer}/{FILTERS}/"):
                if parse_filters(info.key.rpartition("/")[2]) is not None:
                    moment.add(iter([replace(self._source(area, info), is_optional=True)]))
        moment.add(self._contents(workspace))
        moment.add(self._software(writer))

    def _shards(self, workspace: Workspace, state: CatalogState) -> Iterator[SourceFile]:
        if self.settings.is_store_remote:
            home = workspace.catalog.objects.home
            wanted = {home + stored_shard(name) for name in state.shards}
            for info in self.stores[STORE].list(f"{home}index/") if wanted else ():
                if info.key in wanted:
                    yield self._source(STORE, info)
            return
        areas = {
            str(place): f"container-{number}" for number, place in enumerate(self.settings.repository.containers, 1)
        }
        for shard in state.shards.values():
            area = areas.get(shard.container)
            # One of a container that is not among the settings any more is built again where it is asked for.
            for info in self.stores[area].list(f"{workspace.writer}/index/{shard.name}/") if area else ():
                yield self._source(area or "", info)

    def _contents(self, workspace: Workspace) -> Iterator[SourceFile]:
        writer, settings = workspace.writer, self.settings
        containers = ContentContainers(self._fs, settings.content_store, writer)
        area = WORK if settings.is_store_remote else STORE
        elsewhere = settings.content_store.elsewhere
        for info in self.stores[area].list(f"{writer}/{CONTENT_MARKS}/"):
            yield self._source(area, info)
            name = info.key.rpartition("/")[2]
            why = containers.why_missing(name) if "." not in name else ""
            if why:
                raise ContentContainerMissingError(str(why))
        for info in self.stores[area].list(f"{writer}/{CONTENT}/"):
            yield self._source(area, info)
        for name in elsewhere:
            for info in self.stores[f"content-{name}"].list(f"{writer}/{CONTENT}/{name}/"):
                yield self._source(f"content-{name}", info)
        for info in self.stores[STORE].list(f"{writer}/{CONTENT_HANDOFF}/"):
            yield self._source(STORE, info)

    def _software(self, writer: str) -> Iterator[SourceFile]:
        """Yield the provenance tables of software: the catalog first, then the builds that it names."""
        infos = [*self.stores[STORE].list(f"{writer}/{SOFTWARE}/transactions/")]
        infos += [
            info for info in self.stores[STORE].list(f"{writer}/{SOFTWARE}/builds/") if "/attempt." not in info.key
        ]
        for info in infos:
            if not info.key.endswith("newest-checkpoint"):
                yield self._source(STORE, info)

    def _erasures(self) -> Iterator[SourceFile]:
        for info in self.stores[STORE].list(f"{ERASURES}/"):
            yield self._source(STORE, info, is_read=True)

    def _reports_in_store(self) -> Iterator[SourceFile]:
        if self.settings.is_store_remote:
            for info in self.stores[STORE].list("RUNS/"):
                yield self._source(STORE, info)


def area_places(settings: Settings) -> dict[str, str]:
    """Return the places of the areas, as the settings have them."""
    repository = settings.repository
    places = {ROOT: str(settings.root), STORE: repository.store}
    if settings.is_store_remote:
        places[WORK] = str(repository.work_folder)
    places |= {f"container-{number}": str(place) for number, place in enumerate(repository.containers, 1)}
    for stripe in repository.stripes:
        name, _, folder = stripe.partition("=")
        places[f"stripe-{name}"] = folder
    for container in settings.content.containers:
        name, sign, folder = container.partition("=")
        if sign:
            places[f"content-{name}"] = folder
    return places


def area_stores(settings: Settings, fs: FileSystem) -> dict[str, ObjectStore]:
    """Return the files of each area; raises as `store_of`."""
    stores: dict[str, ObjectStore] = {}
    for name, place in area_places(settings).items():
        stores[name] = store_of(settings, fs) if name == STORE else LocalStore(fs, settings.root / place)
    return stores


def end_of(settings: Settings, fs: FileSystem, clock: Clock) -> tuple[list[WriterEnd], int]:
    """Return the ends of the writers of a repository that nobody writes to, and the number of its FlowFiles."""
    # What an interrupted restore wrote before in this process was taken back.
    moment = RepositoryFiles(settings, fs, clock, accept_older=True).moment()
    return moment.ends, moment.flowfiles


def _kept(workspace: Workspace, state: CatalogState) -> tuple[dict[str, bytes], set[str]]:
    """Return the digests of the files that a kept revision lists, by path, and the paths of those that are live."""
    if state.revision < 0:
        return {}, set()
    catalog = workspace.catalog
    listed = list(catalog.at(state.floor).files.values())
    for transaction in catalog.timeline(state.floor, state.revision):
        listed += [action.add_file for action in transaction.actions if action.HasField("add_file")]
    live = list(state.files.values())
    wanted = {}
    for file in (*listed, *live):
        wanted[file.path] = file.sha256
        if file.toc_path:
            wanted[file.toc_path] = file.toc_sha256
    return wanted, {path for file in live for path in (file.path, file.toc_path) if path}
