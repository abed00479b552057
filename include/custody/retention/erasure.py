"""Erasure: what was chosen goes to the last copy, in steps that can each be stopped and repeated.

| step | what it does |
|---|---|
| collect | notes how many events are meant, and where their contents lie, while the events can still be read |
| hide | commits a tombstone: from here on no answer has the events |
| rewrite | writes live logs and their index shards anew without the events, under the lease of compactions |
| unlist | notes the first revision without them; readers of earlier ones have `retention.grace` from here on |
| drop | raises the floor of the history to that revision, and deletes all files that no kept revision lists |
| contents | removes or overwrites the contents of the events |
| traces | removes files that name the values, and FlowFiles in queues |
| certify | writes the certificate, and notes its digest in the catalogs |

The request is written before each deletion, with the names of what is about to go, so that a crash forgets none. What
keeps a step waiting is named in the request, and the next pass looks again. A legal hold wins: a held event stays,
hidden, with its history and its traces, and the request goes on when the hold is released.
"""

from __future__ import annotations

import errno
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from custody import iceberg
from custody.catalog import (
    Action,
    AddFile,
    AddTombstone,
    Attribute,
    Condition,
    Note,
    RespectHolds,
    columns_needed,
    kept_files,
    left_below_floor,
    matching_rows,
    may_match,
    store_of,
)
from custody.clock import Clock
from custody.config import Settings
from custody.errors import CustodyError, NotFoundError, StorageError
from custody.eventlog import Damage, LogMetadata, OnDamage
from custody.flow.content import DIGEST_ATTRIBUTE
from custody.format.names import (
    BUILDING_PREFIX,
    COMPACT_LEASE,
    ERASURES,
    FORGOTTEN,
    ICEBERG,
    INDEX,
    ContainerPaths,
    parse_event_log,
    parse_shard,
    parse_stored_shard,
    parse_trash,
    parse_written_anew,
    split_stripe,
    stored_shard,
)
from custody.format.number_sets import distinct
from custody.journal import JournalFile
from custody.lease import Attempt
from custody.maintenance import (
    compact,
    groups_on_disk,
    hold_conditions,
    open_event_log,
    remove_folder,
    spans_of,
)
from custody.maintenance.claim_refs import COLUMNS
from custody.retention.deletion import delete_revisions, keep_from
from custody.retention.erasure_of_contents import erase_contents, spans_as_contents
from custody.retention.erasures import CERTIFIED, DONE, HELD, OPEN, ErasedCopy, ErasedSelection, Erasure, ErasureStore
from custody.retention.history import held_by_history
from custody.retention.value_search import ValueSearch
from custody.retention.value_traces import TraceSearch
from custody.rollover import drop_former_filters
from custody.vfs import TEMPORARY_SUFFIX, FileSystem
from custody.workspace import Workspace, leased

_TIME_END_MS = 1 << 62
_TEMPORARY_MS = 3_600_000
"""A temporary file that is as old belongs to a process that died."""
_SET_ASIDE = ("transactions-damaged-", "transactions-replaced-")
"""Folders of the catalog that repairs leave."""
_ALWAYS_OUT_OF_REACH = (
    "copies outside of the repository: backups, snapshots of disks, files that were exported or downloaded",
    "input: landed files, spools of producers, and the systems that the events came from",
    "memory and local copies of programs on other machines that read the repository before",
    "blocks of disks that a file system frees without overwriting them",
)


def pursue(settings: Settings, fs: FileSystem, clock: Clock, erasure_id: str, attempt: Attempt) -> Erasure:
    """Do all that can be done of a request now, and return it as it is afterwards.

    What stands in the way is in its `waiting` and `held`, and is no error. Can be stopped and repeated at any time;
    two at once keep out of each other's way by leases.

    Durability: on return what the request says is done survives power loss.

    Raises:
        NotFoundError, CorruptionError: there is no such request, or it cannot be read.
        StorageError: the store of the requests refuses.
    """
    store = ErasureStore.of(settings, fs)
    return _Pursuit(settings, fs, clock, store, store.get(erasure_id), attempt).run()


def due_erasures(settings: Settings, fs: FileSystem) -> list[Erasure]:
    """Return the requests that a pass may bring further, the oldest first; raises as `ErasureStore.get`.

    One that waits for legal holds alone is due when one of them is released.
    """
    waiting = [erasure for erasure in ErasureStore.of(settings, fs).all() if not erasure.is_over]
    if all(erasure.state != HELD for erasure in waiting):
        return waiting
    standing = {name for workspace in Workspace.all(settings, fs) for name in workspace.catalog.load().holds}
    return [erasure for erasure in waiting if erasure.state != HELD or not standing.issuperset(erasure.held)]


def tombstone_of(erasure: Erasure, writer: str) -> AddTombstone:
    """Return the tombstone of one writer's events."""
    part, chosen = erasure.writers[writer], erasure.selection or ErasedSelection()
    return AddTombstone(
        id=bytes.fromhex(part.tombstone),
        event_ids=sorted(set(chosen.event_ids)),
        flowfile_uuids=sorted(set(chosen.flowfile_uuids)),
        from_time_ms=chosen.from_ms,
        # In the catalog the end 0 means no condition on time.
        to_time_ms=chosen.to_ms or (_TIME_END_MS if chosen.from_ms else 0),
        attributes=[Attribute(name=name, value=value) for name, value in sorted(chosen.attributes.items())],
        before_event_id=part.before_event_id,
        reason=erasure.reason,
        created_ms=erasure.requested_ms,
        who=erasure.who,
    )


@dataclass
class _Look:
    """What the live logs have of the events of one tombstone."""

    erasable: int = 0
    held: Counter[str] = field(default_factory=Counter)


class _Pursuit:
    def __init__(
        self,
        settings: Settings,
        fs: FileSystem,
        clock: Clock,
        store: ErasureStore,
        erasure: Erasure,
        attempt: Attempt,
    ) -> None:
        self._settings = settings
        self._fs = fs
        self._clock = clock
        self._store = store
        self._erasure = erasure
        self._attempt = attempt
        self._waiting: list[str] = []
        self._held: Counter[str] = Counter()
        self._kept: list[str] = []

    def run(self) -> Erasure:
        if self._erasure.is_over:
            return self._erasure
        if self._erasure.state != CERTIFIED:
            # All are hidden before the first is rewritten: an answer of several writers has the person of none.
            self._for_each_writer(self._hide)
            self._for_each_writer(self._erase_events)
            if not self._settings.is_store_remote:
                self._delete_temporary(self._settings.store / ERASURES)
            if not self._waiting:
                self._erase_beside()
            if self._waiting or self._held:
                return self._leave()
            self._certify()
        return self._finish()

    def _for_each_writer(self, work: Callable[[Workspace], None]) -> None:
        for writer in self._erasure.writers:
            workspace = Workspace(self._settings, writer, self._fs, self._clock)
            try:
                if workspace.catalog.load().seal is not None:
                    self._wait(
                        writer, "is retired: its logs stay until the archive took it up and its folder is removed"
                    )
                    continue
                with leased(workspace, self._attempt, COMPACT_LEASE) as fenced:
                    work(fenced)
            except CustodyError as error:
                self._wait(writer, str(error))

    def _wait(self, writer: str, why: str) -> None:
        text = f"writer {writer!r}: {why}"
        if text not in self._waiting:
            self._waiting.append(text)

    def _save(self, erasure: Erasure) -> None:
        if erasure != self._erasure:
            self._store.save(erasure)
            self._erasure = erasure

    def _note(self, copies: Iterable[ErasedCopy]) -> None:
        """Keep durably what is about to go."""
        self._save(self._erasure.with_copies(copies))

    def _note_keys(self, keys: Iterable[str]) -> None:
        if self._settings.is_store_remote:
            known = tuple(sorted({*self._erasure.keys, *keys}))
            self._save(msgspec.structs.replace(self._erasure, keys=known))

    def _hide(self, workspace: Workspace) -> None:
        """Note where contents lie, then hide the events: a compaction may erase them from then on."""
        writer = workspace.writer
        if self._erasure.writers[writer].is_hidden:
            return
        stone = tombstone_of(self._erasure, writer)
        workspace.require_containers()
        iceberg.check_ready(workspace)
        events, contents, digests = self._collect(workspace, stone)
        erasure = self._erasure.with_writer(writer, events=max(events, self._erasure.writers[writer].events))
        merged = {text: list(found) for text, found in erasure.contents.items()}
        for text, found in contents.items():
            merged[text] = sorted({*merged.get(text, ()), *found})
        self._save(
            msgspec.structs.replace(erasure, contents=merged, digests=tuple(sorted({*erasure.digests, *digests})))
        )
        if stone.id.hex() not in workspace.catalog.settle().tombstones:
            workspace.catalog.commit([Action(add_tombstone=stone)])
        # At once, so that other engines show them no longer than custody does.
        iceberg.republish(workspace)
        self._save(self._erasure.with_writer(writer, is_hidden=True))

    def _collect(
        self, workspace: Workspace, stone: AddTombstone
    ) -> tuple[int, dict[str, list[tuple[int, int]]], set[str]]:
        """Return how many events are meant, and offset, length and digest of their contents."""
        ids: list[npt.NDArray[np.int64]] = [np.empty(0, np.int64)]
        contents: dict[str, list[tuple[int, int]]] = {}
        digests: set[str] = set()
        journals: list[ErasedCopy] = []
        columns = sorted({"event_id", "updated_attributes", *COLUMNS, *columns_needed([stone])})
        for journal, table in self._tables(workspace, stone, columns):
            meant = table.filter(matching_rows([stone], table))
            if not meant.num_rows:
                continue
            if journal is not None:
                # The sweep removes it, once its events are live: before that the request is not done.
                journals.append(ErasedCopy(kind="journal", place=str(journal), how="removed"))
            ids.append(np.asarray(meant.column("event_id"), np.int64))
            for text, found in spans_as_contents(spans_of([meant])).items():
                contents[text] = sorted({*contents.get(text, ()), *found})
            named = pc.map_lookup(
                meant.column("updated_attributes").combine_chunks(), pa.scalar(DIGEST_ATTRIBUTE), "last"
            )
            digests.update(named.drop_null().unique().to_pylist())
        self._note(journals)
        return len(distinct(np.concatenate(ids))), contents, digests

    def _tables(
        self, workspace: Workspace, stone: AddTombstone, columns: Sequence[str]
    ) -> Iterator[tuple[Path | None, pa.Table]]:
        """Yield some columns of the events of journals, each with its path, and of logs that may be meant."""
        # Journals first: an event that is rolled over in between is then seen twice, never not at all.
        for group in workspace.groups_of_all_incarnations():
            for path in (*group.sealed, *group.open):
                try:
                    yield path, JournalFile.read(self._fs, path).table().select(columns)
                except StorageError as error:
                    if error.errno != errno.ENOENT:
                        raise  # one that is gone was just sealed or swept: its events are in the catalog
        live, on_damage = workspace.catalog.load().files, self._damage_noted(workspace)
        # Logs of earlier revisions as well: they may be all that tells where the contents of events lie that a
        # compaction erased before.
        for relative in sorted(kept for kept in kept_files(workspace.catalog) if kept.endswith(".parquet")):
            file = live.get(relative)
            if file is not None and not _may_mean(stone, file):
                continue
            try:
                log = open_event_log(workspace, file or AddFile(path=relative))
                yield from ((None, table) for table in log.tables(range(len(log.toc.blocks)), columns, on_damage))
            except NotFoundError:
                if file is not None:
                    raise  # a former log may have expired since

    def _damage_noted(self, workspace: Workspace) -> OnDamage:
        def note(damage: Damage) -> None:
            self._wait(workspace.writer, f"contents of damaged events are unknown: {damage}")

        return note

    def _erase_events(self, workspace: Workspace) -> None:
        writer = workspace.writer
        part = self._erasure.writers[writer]
        if not part.is_hidden:
            return  # why stands in `waiting` already
        waiting = [group for group in sorted(groups_on_disk(workspace)) if group < part.before_event_id]
        if waiting:
            self._wait(writer, f"{len(waiting)} groups of journals are not live and swept yet: custody run all")
            return
        if not self._rewrite(workspace):
            return
        self._drop_history(workspace)

    def _rewrite(self, workspace: Workspace) -> bool:
        """Write the live logs anew without the events; return whether none has any but held ones."""
        writer = workspace.writer
        name = self._erasure.writers[writer].tombstone
        look = self._look(workspace, name)
        state = workspace.catalog.load()
        if look.erasable and name not in state.tombstones:
            # A catalog that lost its newest transactions lost the tombstone.
            state = workspace.catalog.commit([Action(add_tombstone=tombstone_of(self._erasure, writer))])
        if name in state.tombstones:
            # New logs lack what earlier ones have: the history before them has to go again.
            if look.erasable:
                self._save(self._erasure.with_writer(writer, unlisted_revision=None))
            stone = state.tombstones[name]
            paths = {path for path, file in state.files.items() if _may_mean(stone, file)}
            # The shards of logs that are written anew go with them; those that stay are left out of the certificate.
            self._note(
                ErasedCopy(kind="index shard", place=str(workspace.shard_path(shard)), how="removed")
                for shard in state.shards.values()
                if not paths.isdisjoint(shard.log_paths)
            )
            home = workspace.catalog.objects.home
            self._note_keys(
                home + stored_shard(shard.name)
                for shard in state.shards.values()
                if not paths.isdisjoint(shard.log_paths)
            )
            failed = [report.error for report in compact(workspace) if report.error is not None]
            look = self._look(workspace, name)
            if look.erasable:
                why = failed or ["their logs wait for another step, or are of a newer custody"]
                self._wait(writer, f"{look.erasable} events are in live logs: {'; '.join(map(str, why))}")
        self._held.update(look.held)
        if look.erasable:
            return False
        part = self._erasure.writers[writer]
        if part.unlisted_revision is None:
            revision = workspace.catalog.settle().revision
            now = self._clock.now_ms()
            self._save(self._erasure.with_writer(writer, unlisted_revision=revision, unlisted_ms=now, floor=0))
        return True

    def _look(self, workspace: Workspace, name: str) -> _Look:
        state = workspace.catalog.settle()
        look = _Look()
        part = self._erasure.writers[workspace.writer]
        if name not in state.tombstones and state.revision >= (part.unlisted_revision or state.revision + 1):
            return look  # a compaction removed it with the last event that it means
        stone = tombstone_of(self._erasure, workspace.writer)
        holds = hold_conditions(workspace)
        columns = sorted({"event_id", *columns_needed([stone, *holds.values()])})
        for file in state.files.values():
            if not _may_mean(stone, file):
                continue
            log = open_event_log(workspace, file)
            for table in log.tables(range(len(log.toc.blocks)), columns):
                meant = table.filter(matching_rows([stone], table))
                held = matching_rows(holds.values(), meant)
                look.erasable += meant.num_rows - (pc.sum(held).as_py() or 0)
                for hold, condition in holds.items() if meant.num_rows else ():
                    look.held[hold] += pc.sum(matching_rows([condition], meant)).as_py() or 0
        look.held = +look.held
        return look

    def _drop_history(self, workspace: Workspace) -> None:
        """Delete all that earlier revisions alone list, once their readers had the grace."""
        writer = workspace.writer
        part = self._erasure.writers[writer]
        until = part.unlisted_ms + self._settings.retention.grace_ms
        if self._clock.now_ms() < until:
            self._wait(writer, f"readers of earlier revisions have {_seconds(until - self._clock.now_ms())} left")
            return
        catalog, revision = workspace.catalog, part.unlisted_revision or 0
        state = catalog.settle()
        if state.floor < revision:
            held = list(held_by_history(workspace, state, revision))
            for _, name, count in held:
                self._held[name] += count
            if held:
                return  # what a hold covers in logs of earlier revisions stays, and they with it
            # A hold that is made in this moment makes the commit fail: it is looked at by the next pass.
            respected = Action(respect_holds=RespectHolds(names=sorted(state.holds)))
            keep_from(catalog, revision, [respected], why="erasure")
        # No snapshot of the published table may name a file that goes.
        iceberg.republish(workspace)
        self._delete_revisions(workspace)
        self._delete_unlisted(workspace)
        self._delete_former_shards(workspace)
        gone, left = iceberg.erase_former(workspace, self._settings.retention.grace_ms)
        self._note_all(workspace, "part of the Iceberg table", gone)
        if left:
            self._wait(writer, f"{left} former parts of the Iceberg table are younger than retention.grace")
        self._save(self._erasure.with_writer(writer, floor=catalog.load().floor))

    def _delete_revisions(self, workspace: Workspace) -> None:
        catalog = workspace.catalog
        objects = catalog.objects
        keys = left_below_floor(catalog).keys
        if keys:
            floor = catalog.load().floor
            place = f"{objects.store.locate(objects.prefix.rstrip('/'))}, before revision {floor}"
            self._note([ErasedCopy(kind="revisions of the catalog", place=place, how="removed")])
            self._note_keys(keys)
        delete_revisions(catalog)
        # What repairs set aside are transactions and checkpoints, too.
        for folder in objects.store.folders(objects.home):
            if folder.startswith(_SET_ASIDE):
                aside = list(objects.store.keys(f"{objects.home}{folder}/"))
                self._note_all(workspace, "former object of the catalog", aside)
                for key in aside:
                    objects.store.delete(key)
                    objects.store.drop_folder(key.rpartition("/")[0] + "/")
                objects.store.drop_folder(f"{objects.home}{folder}/")
        stone = self._erasure.writers[workspace.writer].tombstone
        if catalog.copies is not None and stone not in catalog.load().tombstones:
            copies = catalog.copies.present([stone])
            self._note_all(workspace, "copy of a tombstone", copies)
            catalog.copies.remove(copies)

    def _note_all(self, workspace: Workspace, kind: str, keys: Iterable[str]) -> None:
        listed = list(keys)
        if listed:
            locate = workspace.catalog.objects.store.locate
            self._note(ErasedCopy(kind=kind, place=locate(key), how="removed") for key in listed)
            self._note_keys(listed)

    def _delete_unlisted(self, workspace: Workspace) -> None:
        """Delete event logs, tables of contents and stored shards that no kept revision lists, in the trash as well."""
        catalog = workspace.catalog
        files = catalog.objects.files
        # Data before staged units, and those before the catalog: what becomes live meanwhile is in one of them.
        data = [*files.names("data/"), *(files.names(f"{INDEX}/") if files.copies is not None else ())]
        trash = [info.key for info in files.list("trash/")]
        staged = {
            path
            for manifest in workspace.manifests()
            for log in manifest.logs
            for path in self._staged_paths(workspace, manifest.metadata(log))
        }
        kept, end = kept_files(catalog) | staged, catalog.load().next_event_id
        going = [path for path in data if _is_own(path) and path not in kept]
        # A log behind all that was ever live is that of a lost transaction, which a repair lists again.
        ahead = [path for path in going if not parse_written_anew(Path(path).name) and _first(path) >= end]
        if ahead:
            self._wait(workspace.writer, f"{len(ahead)} files of events that were never live: custody repair")
            going = [path for path in going if path not in ahead]
        going += [key for key in trash if (found := parse_trash(key)) is not None and found[1] not in kept]
        self._note(ErasedCopy(kind=_kind(path), place=files.locate(path), how="removed") for path in going)
        # Those of a stripe lie on a disk, which keeps no versions.
        self._note_keys(f"{catalog.objects.home}{path}" for path in going if not split_stripe(path)[0])
        for path in going:
            files.delete(path)
        for folder in sorted({path.rpartition("/")[0] for path in going}):
            files.drop_folder(f"{folder}/")
        self._delete_torn(workspace)
        if not self._settings.is_store_remote:
            database = workspace.paths.home
            revisions = [database / "transactions" / name for name in self._fs.list(database / "transactions")]
            self._delete_temporary(database / FORGOTTEN, *revisions)
        copies, home = files.copies, catalog.objects.home
        if copies is not None:
            for key in sorted(copies.keys_below(workspace.writer, workspace.database)):
                if key.removeprefix(home) not in kept:
                    copies.forget(key)

    def _staged_paths(self, workspace: Workspace, metadata: LogMetadata) -> Iterator[str]:
        places = workspace.files(metadata)
        yield from (places.relative_log, places.relative_toc, f"{INDEX}/{places.shard_name}.shard")

    def _delete_temporary(self, *folders: Path) -> None:
        """Remove temporary files that a process left which died; younger ones are waited for."""
        before = self._clock.now_ms() - _TEMPORARY_MS
        for folder in folders:
            names = self._fs.list(folder) if self._fs.is_directory(folder) else []
            torn = [folder / name for name in names if name.endswith(TEMPORARY_SUFFIX)]
            old = [path for path in torn if self._fs.exists(path) and self._fs.modified_ms(path) <= before]
            self._note(ErasedCopy(kind="temporary file", place=str(path), how="removed") for path in old)
            for path in old:
                self._fs.remove(path)
            if old:
                self._fs.sync_directory(folder)
            if len(old) < len(torn):
                text = f"{folder}: temporary files younger than an hour, which a process may be writing"
                self._waiting += [] if text in self._waiting else [text]

    def _delete_torn(self, workspace: Workspace) -> None:
        """Remove temporary files of compactions that died: under this lease none is at work."""
        for _, home in workspace.catalog.objects.files.parts():
            for day in self._fs.list(home / "data"):
                folder = home / "data" / day / "events"
                torn = [
                    folder / name
                    for name in self._fs.list(folder)
                    if name.endswith(TEMPORARY_SUFFIX) and parse_written_anew(name)
                ]
                self._note(ErasedCopy(kind="temporary file", place=str(path), how="removed") for path in torn)
                for path in torn:
                    self._fs.remove(path)
                if torn:
                    self._fs.sync_directory(folder)

    def _delete_former_shards(self, workspace: Workspace) -> None:
        """Remove shards and filters of logs that are gone; a compaction did so with those that it replaced itself."""
        live, writer = set(workspace.catalog.load().shards), workspace.writer
        for root in self._settings.containers:
            folder = ContainerPaths(root, writer).index
            for name in self._fs.list(folder):
                shard = name
                if name.startswith(BUILDING_PREFIX):
                    shard = name.removeprefix(BUILDING_PREFIX).rpartition("-")[0]
                found = parse_shard(shard)
                if parse_written_anew(shard) and (shard != name or shard not in live):
                    self._note([ErasedCopy(kind="index shard", place=str(folder / name), how="removed")])
                    remove_folder(workspace, folder / name)
                elif shard != name and found is not None and found[1] < self._erasure.writers[writer].before_event_id:
                    self._wait(writer, f"{folder / name} is being built, or was left: custody recover removes it then")
        filters = drop_former_filters(workspace)
        self._note(ErasedCopy(kind="filters of index shards", place=str(path), how="removed") for path in filters)

    def _erase_beside(self) -> None:
        """Erase contents, files that name the values, and FlowFiles in queues."""
        settings, fs, clock = self._settings, self._fs, self._clock
        workspaces = Workspace.all(settings, fs, clock)
        try:
            contents = erase_contents(
                workspaces, settings, fs, clock, self._erasure.contents, self._erasure.requested_ms, self._note
            )
            self._waiting += contents.waiting
            self._kept += contents.kept
            self._note_keys(contents.keys)
            if not self._held:
                self._erase_traces(workspaces)
        except CustodyError as error:
            self._waiting.append(str(error))

    def _erase_traces(self, workspaces: Sequence[Workspace]) -> None:
        erasure = self._erasure
        if erasure.is_limited or erasure.selection is None:
            selection = ErasedSelection()
            self._kept.append(
                "files beside the events were not searched: the conditions mean single events, not a person's values"
            )
        else:
            selection = erasure.selection
        traces = traces_of(self._settings, self._fs, self._clock, selection, erasure.digests)
        for trace in traces.removable():
            self._note([ErasedCopy(kind=trace.kind, place=trace.place, how="removed")])
            self._note_keys([trace.key] if trace.key else [])
            trace.remove()
        meant = traces.flowfiles()
        self._note(
            ErasedCopy(kind="FlowFile", place=f"queue {queue}, FlowFile {flowfile.uuid}", how="removed")
            for queue, flowfiles in meant.items()
            for flowfile in flowfiles
        )
        if not traces.search.is_empty:
            holds: dict[str, Condition] = {}
            for workspace in workspaces:
                holds.update(hold_conditions(workspace, workspaces))
            traces.erase_flowfiles(meant, holds)
        traces.note_needed()
        self._waiting += traces.waiting
        self._kept += traces.kept

    def _leave(self) -> Erasure:
        """Write down what stands in the way, for people and for the next pass."""
        self._save(
            msgspec.structs.replace(
                self._erasure,
                state=OPEN if self._waiting else HELD,
                waiting=tuple(self._waiting),
                held=dict(sorted(self._held.items())),
                kept=tuple(self._kept),
                out_of_reach=self._out_of_reach(),
            )
        )
        return self._erasure

    def _out_of_reach(self) -> tuple[str, ...]:
        found = list(_ALWAYS_OUT_OF_REACH)
        home = self._settings.exports_home
        found += [f"export {name!r}: what its receiver got" for name in self._fs.list(home)]
        if self._fs.exists(self._settings.root / "ngsi"):
            found.append("files and tables that the sink of NGSI wrote")
        if self._settings.is_store_remote:
            found.append(
                "versions of objects that were deleted before the request, in a bucket that keeps them: give it a rule "
                "that ends them"
            )
        return tuple(found)

    def _certify(self) -> None:
        """Replace the request by its certificate, which names no value any more."""
        unreached = self._erase_versions()
        self._settle_removals()
        self._save(
            msgspec.structs.replace(
                self._erasure,
                state=CERTIFIED,
                selection=None,
                contents={},
                digests=(),
                keys=(),
                waiting=(),
                held={},
                copies=tuple(copy for copy in self._erasure.copies if not self._is_there(copy)),
                kept=tuple(self._kept),
                out_of_reach=(*self._out_of_reach(), *unreached),
                finished_ms=self._clock.now_ms(),
            )
        )

    def _settle_removals(self) -> None:
        """Make what was removed from disks durable: a process that died may have removed a file without that."""
        folders: set[Path] = set()
        for copy in self._erasure.copies:
            # Behind a comma stands which revisions of a folder went.
            path = Path(copy.place.partition(", before revision ")[0])
            if copy.how != "removed" or not path.is_absolute():
                continue
            folder = path if self._fs.is_directory(path) else path.parent
            # A folder that is gone as well: the removal of its name has to be durable.
            while not self._fs.exists(folder):
                folder = folder.parent
            folders.add(folder)
        for writer in self._erasure.writers:
            workspace = Workspace(self._settings, writer, self._fs, self._clock)
            table = workspace.paths.home / ICEBERG / "events"
            own = (*workspace.filter_folders(), table / "metadata", table / "deletes")
            folders.update(folder for folder in own if self._fs.exists(folder))
        for folder in sorted(folders):
            self._fs.sync_directory(folder)

    def _is_there(self, copy: ErasedCopy) -> bool:
        """Whether an index shard that was about to go stayed, as no event of its log was meant."""
        return copy.kind == "index shard" and self._fs.exists(Path(copy.place))

    def _erase_versions(self) -> list[str]:
        """Delete former versions of objects that were deleted or overwritten; return what could not be deleted."""
        keys = self._erasure.keys
        if not keys:
            return []
        from custody.store.s3_versions import erase_versions

        unreached = erase_versions(store_of(self._settings, self._fs), keys)
        if not unreached:
            text = f"{self._settings.repository.store}, {len(keys)} objects"
            self._note([ErasedCopy(kind="former versions of objects", place=text, how="removed")])
        return unreached

    def _finish(self) -> Erasure:
        """Note the digest of the certificate in the catalogs of all writers, and end."""
        done = msgspec.structs.replace(self._erasure, state=DONE)
        text = f"erasure {done.id}: certificate with SHA-256 {certificate_digest(done)}"
        for writer in done.writers:
            workspace = Workspace(self._settings, writer, self._fs, self._clock)
            if workspace.catalog.load().seal is None:
                workspace.catalog.commit([Action(note=Note(text=text))])
                iceberg.republish(workspace)
        self._save(done)
        if self._settings.is_store_remote:
            # What the certificate replaced named the values.
            from custody.store.s3_versions import erase_versions

            erase_versions(store_of(self._settings, self._fs), [f"{ERASURES}/{done.id}.json"])
        return done


def certificate_digest(erasure: Erasure) -> str:
    """Return the SHA-256 of a certificate as the catalogs have it, hexadecimal."""
    return hashlib.sha256(msgspec.json.encode(erasure, order="sorted")).hexdigest()


def traces_of(
    settings: Settings, fs: FileSystem, clock: Clock, selection: ErasedSelection, digests: Iterable[str] = ()
) -> TraceSearch:
    """Return the search for the traces of a selection."""
    return TraceSearch(settings, fs, clock, ValueSearch(selection), frozenset(digests))


def _may_mean(stone: AddTombstone, file: AddFile) -> bool:
    bounds = (file.first_event_id, file.last_event_id, file.first_event_time_ms, file.last_event_time_ms)
    return may_match(stone, *bounds)


def _is_own(path: str) -> bool:
    return parse_event_log(path) is not None or parse_stored_shard(path) is not None


def _first(path: str) -> int:
    """Return the first event id of a log, a table of contents or a stored shard."""
    shard = parse_shard(parse_stored_shard(path) or "")
    return shard[1] if shard is not None else parse_event_log(path) or 0


def _kind(path: str) -> str:
    if parse_trash(path) is not None:
        return "file in the trash"
    if parse_stored_shard(path) is not None:
        return "index shard"
    return "event log" if path.endswith(".parquet") else "table of contents"


def _seconds(milliseconds: int) -> str:
    return f"{-(-milliseconds // 1000)} s"
