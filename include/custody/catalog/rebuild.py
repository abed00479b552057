"""Rebuild: a new catalog from the data files and the readable objects of the old catalog.

A file is listed as the old catalog listed it, with its digest, where an object of that catalog can be read. Any other
event log is read whole and compared with its own checksums: nothing is listed that nobody checked. Each footer names
the events of its log and the transaction that added it. Tombstones, holds, marks and losses are in the catalog alone,
so they are salvaged from its objects, one by one, each trusted for its own checksum, and from the second copies.
Objects that an earlier rebuild moved aside are read too, so that an interrupted rebuild can be repeated.

What neither source tells is stated as lost: removals, index shards, and the revisions that only such actions made. The
old objects are moved aside, never deleted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from custody.catalog.catalog import Catalog
from custody.catalog.codec import decode
from custody.catalog.footers import describe, fingerprint
from custody.catalog.keys import CatalogObjects
from custody.catalog.persistent_map import FileMap
from custody.catalog.second_copies import SecondCopies, SecondCopyStore
from custody.catalog.transaction_pb2 import Action, AddFile, AddShard, Note, SourceRange, Transaction
from custody.catalog.wellformed import check_action, check_delta, check_full, have_ids_in_common, read_file_entry
from custody.clock import Clock
from custody.errors import CorruptionError, CustodyError, InvalidInputError, NotFoundError, StorageError
from custody.eventlog.log_writer import LogMetadata
from custody.format.names import (
    TIME_DIGITS,
    parse_event_log,
    parse_revision,
    parse_transaction,
    shard_container,
    shard_name,
    toc_path,
)

if TYPE_CHECKING:
    from custody.catalog.log_check import CheckedLog

# Part of the format: an interrupted rebuild is found again by this name.
REPLACED_PREFIX = "transactions-replaced-"
# Each takes a commit of about a millisecond; numbers beyond are not worth the wait.
_FILLED_MAX = 100_000
KINDS = ("tombstones", "holds", "marks", "losses")
_ALL_KINDS = (*KINDS, "absorptions")


@dataclass
class Salvaged:
    """Tombstones, holds, marks, losses and absorptions of the old catalog, as the actions that add them again."""

    actions: dict[str, dict[str, Action]] = field(default_factory=lambda: {kind: {} for kind in _ALL_KINDS})
    read: int = 0
    """Objects that could be read."""
    unread: list[str] = field(default_factory=list)
    """Objects that could not be read and that no later checkpoint makes up for."""
    _of: dict[tuple[str, str], bytes] = field(default_factory=dict)
    """The id of the catalog that stated an entry last, by kind and name."""
    seal: Action | None = None
    """What retired the writer; no later transaction can take it back."""
    copies: SecondCopies = field(default_factory=SecondCopies)
    """The second copies of tombstones and marks."""
    files: dict[str, AddFile] = field(default_factory=dict)
    """The files that the readable objects list to the last, by path."""
    removed: set[str] = field(default_factory=set)
    """The files of which a readable object says, to the last, that they were removed."""
    added: dict[str, tuple[int, UUID]] = field(default_factory=dict)
    """The revision and the attempt of the transaction that added a file, by path, where it can be read."""
    next_event_id: int = 0
    """Behind every id that a readable object knows to be in use."""

    def all(self) -> list[Action]:
        """Return the actions, in a fixed order."""
        return [of_kind[name] for kind in _ALL_KINDS for of_kind in [self.actions[kind]] for name in sorted(of_kind)]

    def counts(self) -> dict[str, int]:
        """Return how many there are of each kind."""
        return {kind: len(self.actions[kind]) for kind in KINDS}

    @property
    def marked(self) -> set[str]:
        """The data files that marks name: they expired and are not to be live again."""
        return {path for action in self.actions["marks"].values() for path in action.add_mark.paths}

    @property
    def more(self) -> list[str]:
        """Reasons why answers may give out more than before; empty when all that was forgotten or expired is known."""
        if self.read and not self.unread:
            return []
        if self.copies.since is None:
            return ["what was forgotten or expired cannot be known: objects of the catalog are lost, and so are copies"]
        return self.copies.unknown([self.copies.since])

    @property
    def lost(self) -> str | None:
        """The facts that cannot be known, None when every object could be read."""
        kinds = "tombstones, holds, marks and losses" if self.more else "holds and losses"
        if not self.read:
            return f"{kinds}: no object of the old catalog can be read, and nothing else knows of them"
        if self.unread:
            return f"{kinds} of {len(self.unread)} objects that cannot be read: {', '.join(self.unread)}"
        return None

    def follow(self, message: Transaction, key: str) -> None:
        """Take over the entries of a transaction or a checkpoint.

        A checkpoint states all entries of its own catalog anew. Entries of another catalog, such as one that was
        rebuilt, stay: nobody may see again what was forgotten there.
        """
        self.read += 1
        of = message.catalog_id
        self.next_event_id = max(self.next_event_id, message.next_event_id)
        self._follow_files(message, key)
        if message.encoding == Transaction.FULL:
            for kind in _ALL_KINDS:
                for name in [name for name in self.actions[kind] if self._of.get((kind, name)) == of]:
                    del self.actions[kind][name]
            # A later checkpoint spells out the whole state, so what an unreadable object before it said is in it.
            self.unread.clear()
        for action in message.actions:
            self.seal = action if action.HasField("seal") else self.seal
            entry = _said(action)
            if entry is None:
                continue
            kind, name, is_added = entry
            try:
                check_action(action)
            except InvalidInputError:
                self.unread.append(key)
                continue
            if is_added:
                self.actions[kind][name], self._of[kind, name] = action, of
            else:
                self.actions[kind].pop(name, None)

    def _follow_files(self, message: Transaction, key: str) -> None:
        if message.encoding == Transaction.FULL:
            # The whole state: what it does not list was removed before, or is listed by a later object.
            self.removed.update(self.files)
            self.files = {}
            for path, entry in zip(message.live_paths, message.live_files, strict=False):
                self._list(read_file_entry(path, entry, key))
        for action in message.actions:
            if action.HasField("add_file"):
                self._list(action.add_file)
                self.added[action.add_file.path] = message.revision, UUID(bytes=message.attempt_id)
            elif action.HasField("remove_file"):
                self.files.pop(action.remove_file.path, None)
                self.removed.add(action.remove_file.path)

    def _list(self, file: AddFile) -> None:
        # One without a digest is read whole again: nothing else tells whether it was damaged since.
        if file.sha256:
            self.files[file.path] = file
        self.removed.discard(file.path)


def salvage(objects: CatalogObjects) -> Salvaged:
    """Read what is left of a catalog; nothing is changed.

    Raises:
        FormatVersionError: a newer custody wrote here: that is no damage.
    """
    salvaged = Salvaged()
    # An interrupted rebuild has moved objects aside and may have written some of the new catalog: both are read.
    asides = [name for name in objects.store.folders(objects.home) if name.startswith(REPLACED_PREFIX)]
    for prefix in (*(f"{objects.home}{name}/" for name in sorted(asides)), objects.prefix):
        for key in _keys(objects, prefix):
            try:
                message = decode(objects.store.get(key), key)
                # An object that was forged has its right checksum, and may make no sense.
                (check_full if message.encoding == Transaction.FULL else check_delta)(message, key)
                salvaged.follow(message, key)
            except (CorruptionError, StorageError, NotFoundError):
                salvaged.unread.append(key)
    # Last, and only for ids that are missing: what an object of the catalog says counts more than a copy.
    salvaged.copies = SecondCopyStore(objects).read()
    for name, copy in salvaged.copies.by_id.items():
        kind = "tombstones" if copy.action.HasField("add_tombstone") else "marks"
        salvaged.actions[kind].setdefault(name, copy.action)
    return salvaged


@dataclass
class LogScan:
    """The event logs on the store, as the new catalog is to list them."""

    files: list[AddFile] = field(default_factory=list)
    """In the order of their first event ids."""
    numbers: dict[str, int] = field(default_factory=dict)
    """The revision at which a file was to become live, by path, where its footer says so; it was that one or a later
    one."""
    attempts: dict[str, UUID] = field(default_factory=dict)
    """The transaction that added a file, by path, where its footer says so: files of one become live together."""
    skipped: list[str] = field(default_factory=list)
    """Why files are left out."""
    damaged: dict[str, list[str]] = field(default_factory=dict)
    """What is damaged or gone of the files that are listed, and which files cannot be read, by path."""
    greatest: int = -1
    """The greatest event id of all files that name one, those that are left out included."""

    @property
    def damage(self) -> list[str]:
        """What is damaged, gone, or cannot be read."""
        return [text for path in sorted(self.damaged) for text in self.damaged[path]]


def scan_logs(objects: CatalogObjects, salvaged: Salvaged | None = None, *, leave_out: Iterable[str] = ()) -> LogScan:
    """Find out which event logs there are, and of each of them whether it is whole.

    A log that the old catalog lists, by an object of it that can be read, is listed as it was: `verify` compares it
    with its digest, and names it where it is damaged or gone. Any other log is read whole and compared with its own
    checksums. One that is damaged is listed without a digest, so that `verify` compares it with its own checksums too;
    one of which nothing is whole is left out, and so is one that this custody cannot read.
    """
    scanned, without = LogScan(), set(leave_out)
    salvaged = Salvaged() if salvaged is None else salvaged
    found: set[str] = set()
    for info in objects.files.list("data/"):
        path = info.key
        if "." not in path.rpartition("/")[2]:
            scanned.skipped.append(
                f"{objects.files.locate(path)}: expected a folder, got a link or a file: what lies behind it is "
                "not looked at. Put the folder itself in its place."
            )
        if parse_event_log(path) is not None and path.endswith(".parquet") and path not in without:
            found.add(path)
            _scan_log(objects, path, info.size_bytes, salvaged, scanned)
    missing = [file for path, file in salvaged.files.items() if path not in found and path not in without]
    _list_missing(objects, missing, scanned)
    for path in salvaged.added.keys() & {file.path for file in scanned.files}:
        scanned.numbers[path], scanned.attempts[path] = salvaged.added[path]
    _drop_covered(scanned, salvaged)
    return scanned


def _scan_log(objects: CatalogObjects, path: str, size: int, salvaged: Salvaged, scanned: LogScan) -> None:
    file = salvaged.files.get(path)
    metadata: LogMetadata | None
    try:
        # One unreadable log must not cost the others: it is named in the result, and the scan goes on.
        if file is None:
            file, metadata = _checked(objects, path, scanned)
        else:
            metadata = _metadata_of_listed(objects, file, size, scanned)
    except CustodyError as error:
        scanned.skipped.append(str(error))
        scanned.greatest = max(scanned.greatest, parse_event_log(path) or 0)
        # One that was removed before is no loss.
        if path not in salvaged.removed:
            scanned.damaged[path] = [str(error)]
        return
    scanned.files.append(file)
    if metadata is not None:
        scanned.attempts[path] = metadata.transaction
        if not isinstance(metadata.revision, msgspec.UnsetType):
            scanned.numbers[path] = metadata.revision


def _list_missing(objects: CatalogObjects, missing: list[AddFile], scanned: LogScan) -> None:
    """List the files that the old catalog lists and that are gone, unless another log holds their events.

    So `verify` names them, and a copy can be put back.
    """
    there = FileMap({file.path: file for file in scanned.files})
    for file in missing:
        others = there.overlapping(file.first_event_id, file.last_event_id)
        if parse_event_log(file.path) is not None and not any(have_ids_in_common(file, other) for other in others):
            scanned.files.append(file)
            where = objects.files.locate(file.path)
            scanned.damaged[file.path] = [f"{where}: is gone, and the old catalog lists it as live."]


def groups_of_logs(objects: CatalogObjects) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield each event log on the store with the journal groups that its footer names; unreadable ones are left out."""
    for path in objects.files.names("data/"):
        if parse_event_log(path) is not None and path.endswith(".parquet"):
            try:
                metadata = _log_metadata(objects, path)
            except CustodyError:
                continue
            yield path, metadata.groups


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The result of a rebuild."""

    revision: int
    files: int
    events: int
    lost: tuple[str, ...]
    set_aside: str
    """Where the old objects were moved, empty when there were none."""


def rebuild(
    catalog: Catalog,
    clock: Clock,
    scanned: LogScan,
    containers: Sequence[str] = (),
    salvaged: Salvaged | None = None,
) -> Rebuilt:
    """Write a new catalog that lists the scanned files; the old one's objects are moved aside first.

    With the names of the containers it lists each file's shard too: the index step builds those that are gone. What
    `salvaged` says is taken over with the first transaction.

    Durability: on return the new catalog survives power loss. A crash before leaves the old objects aside and a
    catalog that is not complete; run it again.
    """
    salvaged = Salvaged() if salvaged is None else salvaged
    # The old objects give up their names first: the new revision 0 has the same fixed name as the old one.
    aside = set_aside(catalog.objects, clock, "replaced")
    objects = catalog.objects
    fresh = Catalog(objects.store, objects.writer, objects.database, clock, objects.files.stripes)
    fresh.copies = catalog.copies
    lost, gaps = rebuild_losses(scanned, salvaged, containers), _gaps(sorted(set(scanned.numbers.values())))
    # In the order of their revisions where footers tell it, so that the new history resembles the old one.
    order = sorted(scanned.files, key=lambda file: (_revision_of(scanned, file), file.first_event_id))
    note = Note(kind=Note.REBUILT, text="; ".join(lost), lost_revisions=gaps)
    # With the first transaction: from the first revision of the new catalog on, forgotten events stay hidden.
    extra = [Action(note=note), *salvaged.all()]
    state = fresh.load()
    numbers = {} if _is_numbered_too_high(scanned) else scanned.numbers
    for (_, attempt), files in groupby(order, key=lambda file: _added_by(scanned, file)):
        added = list(files)
        last = max(file.last_event_id for file in added)
        shards = [Action(add_shard=shard_of(file, containers)) for file in added if containers]
        # Up to its own number: a revision means the same as before.
        while state.revision + 1 < min((numbers[file.path] for file in added if file.path in numbers), default=0):
            known = "what it changed is not known any more"
            filled = Note(kind=Note.REBUILT, text=f"revision {state.revision + 1}: {known}")
            state = fresh.commit(extra or [Action(note=filled)])
            extra = []
        actions = [*extra, *(Action(add_file=file) for file in added), *shards]
        state = fresh.commit(actions, next_event_id=last + 1, attempt=attempt)
        extra = []
    # No id is given again, not even one whose log is left out.
    next_event_id = max(salvaged.next_event_id, scanned.greatest + 1)
    if extra or next_event_id > state.next_event_id:
        behind = f"ids before {next_event_id} are in use"
        state = fresh.commit(extra or [Action(note=Note(kind=Note.REBUILT, text=behind))], next_event_id=next_event_id)
    # Last of all, as nothing is committed behind it: a writer that was retired stays retired.
    if salvaged.seal is not None and fresh.load().seal is None:
        state = fresh.commit([salvaged.seal])
    # A new catalog begins with a checkpoint, so that the next damage to its first transactions costs nothing.
    fresh.write_checkpoint()
    catalog.accept(state)
    return Rebuilt(state.revision, len(order), sum(file.rows for file in order), tuple(lost), aside)


def rebuild_losses(scanned: LogScan, salvaged: Salvaged, containers: Sequence[str] = ()) -> list[str]:
    """Return what a catalog made of these will not know."""
    lost = [*scanned.skipped, *(text for text in scanned.damage if text not in scanned.skipped)]
    revisions = sorted(set(scanned.numbers.values()))
    gaps = _gaps(revisions)
    if gaps:
        lost.append(f"{len(gaps)} revisions between {revisions[0]} and {revisions[-1]} added no file that is left")
    lost.append("removals: a file that was removed and is still there is live again, unless a mark names it")
    lost += [] if salvaged.lost is None else [salvaged.lost]
    if salvaged.unread or not salvaged.read:
        lost.append("catalogs that were absorbed, and whether the writer was retired")
    lost += [] if containers else ["index shards"]
    if scanned.numbers:
        lost.append("numbers of revisions that others committed while a file was written: it was a later one then")
    if _is_numbered_too_high(scanned):
        lost.append(
            f"the numbers of revisions: more than {_FILLED_MAX} would have to be filled in; their order is kept"
        )
    if not revisions:
        lost.append("the numbers of revisions, and their order: files are taken in the order of their events")
    return lost


def _is_numbered_too_high(scanned: LogScan) -> bool:
    return max(scanned.numbers.values(), default=0) > _FILLED_MAX


def shard_of(file: AddFile, containers: Sequence[str]) -> AddShard:
    """Return the index shard that belongs to an event log by name; the index step builds it if it is gone."""
    return AddShard(
        name=shard_name(file.first_event_time_ms, file.first_event_id),
        container=containers[shard_container(file.first_event_id, len(containers))],
        documents=file.rows,
        first_event_id=file.first_event_id,
        last_event_id=file.last_event_id,
        first_event_time_ms=file.first_event_time_ms,
        last_event_time_ms=file.last_event_time_ms,
        log_paths=[file.path],
    )


def aside_prefix(objects: CatalogObjects, clock: Clock, why: str) -> str:
    """Return the prefix, beside the catalog, to which objects are moved or copied now."""
    return f"{objects.home}transactions-{why}-{clock.now_ms():0{TIME_DIGITS}d}/"


def set_aside(objects: CatalogObjects, clock: Clock, why: str, from_revision: int = 0) -> str:
    """Move the catalog's objects from a revision on to a folder beside it; return its prefix, empty if none moved."""
    target = aside_prefix(objects, clock, why)
    first = objects.folder(from_revision)
    moved = False
    keys = [key for key in objects.store.keys(objects.prefix) if key >= first or key == objects.hint]
    # The newest first: what is left after a crash is a whole catalog, only shorter.
    for key in sorted(keys, key=lambda key: (key == objects.hint, key), reverse=True):
        objects.store.move(key, target + key.removeprefix(objects.prefix))
        objects.store.drop_folder(key.rpartition("/")[0] + "/")
        moved = True
    return target if moved else ""


def wipe(objects: CatalogObjects, confirm: str) -> int:
    """Delete a catalog for good and return how many objects went; data files, second copies and foreign files stay.

    Call it only on a user's explicit request: `confirm` names the catalog, as `<writer>/<database>`.

    Raises:
        InvalidInputError: another catalog, or none, is named.
    """
    named = f"{objects.writer}/{objects.database}"
    if confirm != named:
        raise InvalidInputError(f"{objects}: to delete this catalog name it: {named}. Got {confirm!r}.")
    tables = {f"{item.key.removesuffix('.ckpt')}.statistics.parquet" for item in objects.list() if item.is_checkpoint}
    keys = [*(item.key for item in objects.list()), *tables]
    # The hint first: it must not name a revision that is gone, which would read as a lost tail.
    objects.store.delete(objects.hint)
    # The newest first: what is left after a crash is a whole catalog, only shorter.
    for key in sorted(keys, reverse=True):
        objects.store.delete(key)
        objects.store.drop_folder(key.rpartition("/")[0] + "/")
    return len(keys)


def _keys(objects: CatalogObjects, prefix: str) -> Iterator[str]:
    """Yield the objects below a prefix, oldest revision first, a checkpoint behind its transaction."""
    ordered = []
    for key in objects.store.keys(prefix):
        folder, _, name = key.removeprefix(prefix).partition("/")
        revision, parsed = parse_revision(folder), parse_transaction(name)
        if revision is not None and parsed is not None:
            ordered.append((revision, parsed[1], key))
    yield from (key for _, _, key in sorted(ordered))


def _said(action: Action) -> tuple[str, str, bool] | None:
    """Return the kind and name of an entry, and whether the action adds it; None for actions of other kinds."""
    kind = action.WhichOneof("kind")
    if kind == "add_hold":
        return "holds", action.add_hold.name, True
    if kind == "remove_hold":
        return "holds", action.remove_hold.name, False
    if kind == "absorb":
        return "absorptions", f"{action.absorb.writer}/{action.absorb.database}", True
    by_id = {
        "add_tombstone": ("tombstones", action.add_tombstone.id, True),
        "remove_tombstone": ("tombstones", action.remove_tombstone.id, False),
        "add_mark": ("marks", action.add_mark.id, True),
        "remove_mark": ("marks", action.remove_mark.id, False),
        "add_loss": ("losses", action.add_loss.id, True),
        "remove_loss": ("losses", action.remove_loss.id, False),
    }.get(kind or "")
    return None if by_id is None else (by_id[0], by_id[1].hex(), by_id[2])


def _metadata_of_listed(objects: CatalogObjects, file: AddFile, size: int, scanned: LogScan) -> LogMetadata | None:
    """Return what a log that the old catalog lists says of itself, None where its end was changed.

    `verify` compares the rest of it with the digest that it is listed with.
    """
    problem = f"expected {file.size_bytes} bytes, got {size}." if size != file.size_bytes else ""
    try:
        metadata = _log_metadata(objects, file.path)
    except (CorruptionError, NotFoundError) as error:
        metadata, problem = None, problem or str(error)
    if problem:
        where = objects.files.locate(file.path)
        scanned.damaged[file.path] = [problem if problem.startswith(where) else f"{where}: {problem}"]
    return metadata


def _log_metadata(objects: CatalogObjects, path: str) -> LogMetadata:
    # Imported here: most commands check no log by itself.
    from custody.catalog.log_check import read_log_metadata

    files = objects.files
    return read_log_metadata(lambda start, length: files.get_range(path, start, length), files.locate(path))


def _checked(objects: CatalogObjects, path: str, scanned: LogScan) -> tuple[AddFile, LogMetadata]:
    """Describe a log that no catalog vouches for by its own checksums; what is damaged of it is added to the scan.

    Raises:
        CorruptionError: nothing of it is whole.
        FormatVersionError: a newer custody wrote it, for newer readers.
    """
    from custody.catalog.log_check import check_log_itself

    files, where = objects.files, objects.files.locate(path)
    data = files.get(path)
    log = check_log_itself(data, where)
    said = log.metadata
    file = AddFile(
        path=path,
        size_bytes=len(data),
        rows=said.rows,
        # Bytes that are damaged get no digest: one of them would vouch for the damage.
        sha256=hashlib.sha256(data).digest() if log.is_whole else b"",
        table=said.table,
        partition=said.partition,
        schema_version=said.schema_version,
        first_event_id=said.first_event_id,
        last_event_id=said.last_event_id,
        first_event_time_ms=said.first_event_time_ms,
        last_event_time_ms=said.last_event_time_ms,
        toc_path=toc_path(path),
        # Of the table that belongs to the log, whatever lies beside it.
        toc_sha256=hashlib.sha256(log.toc.encode()).digest(),
        sources=_sources(log),
        groups=said.groups,
    )
    if log.is_whole:
        describe(file, lambda start, length: data[start:][:length])
    else:
        file.schema_fingerprint = fingerprint(log.schema)
    blocks = [f"{where} @{block.offset}: block {block.number} is damaged: {block.problem}" for block in log.damaged]
    if not log.is_whole:
        scanned.damaged[path] = [*blocks, *([f"{where}: {log.problem}."] if log.problem else [])]
    return file, said


def _sources(log: CheckedLog) -> list[SourceRange]:
    """Return the bounds of each node's ordinals, of the blocks that are whole.

    The events are read only if a block holds those of several nodes.
    """
    footer = pq.read_metadata(pa.BufferReader(log.toc.footer(log.whole_blocks)))
    names = {footer.schema.column(number).path: number for number in range(footer.num_columns)}
    bounds: dict[str, tuple[int, int]] = {}
    for number in range(footer.num_row_groups):
        node = footer.row_group(number).column(names["source_node"]).statistics
        ordinal = footer.row_group(number).column(names["source_ordinal"]).statistics
        # Bounds of ordinals belong to one node only where the row group has no other; else only the events tell.
        if node is None or ordinal is None or (node.has_min_max and node.min != node.max):
            return _sources_of_events(log.events(["source_node", "source_ordinal"]))
        if node.has_min_max and ordinal.has_min_max:
            least, most = bounds.get(node.min, (ordinal.min, ordinal.max))
            bounds[node.min] = (min(least, ordinal.min), max(most, ordinal.max))
    return [_range(name, *bounds[name]) for name in sorted(bounds)]


def _sources_of_events(table: pa.Table) -> list[SourceRange]:
    table = table.filter(pc.and_(table.column("source_node").is_valid(), table.column("source_ordinal").is_valid()))
    bounds = table.group_by("source_node", use_threads=False).aggregate(
        [("source_ordinal", "min"), ("source_ordinal", "max")]
    )
    by_name = {row["source_node"]: row for row in bounds.to_pylist()}
    return [
        _range(name, by_name[name]["source_ordinal_min"], by_name[name]["source_ordinal_max"])
        for name in sorted(by_name)
    ]


def _range(node: str, first: int, last: int) -> SourceRange:
    return SourceRange(node=node, first_ordinal=first, last_ordinal=last)


def _drop_covered(scanned: LogScan, salvaged: Salvaged) -> None:
    """Leave out files whose events another file holds: what a compaction read and did not remove yet."""
    scanned.greatest = max([scanned.greatest, *(file.last_event_id for file in scanned.files)])
    listed = [file for file in scanned.files if file.path in salvaged.files]
    by_ids = FileMap({file.path: file for file in listed})
    kept: list[AddFile] = []
    # The wider file first among equals, then the one that is whole: it is kept, and the narrower ones behind it go.
    others = [file for file in scanned.files if file.path not in salvaged.files]
    for file in sorted(others, key=lambda file: (file.first_event_id, -file.last_event_id, not file.sha256)):
        # Those that the old catalog lists come before all others.
        before = [*by_ids.overlapping(file.first_event_id, file.last_event_id), *kept[-1:]]
        other = next((other for other in before if _is_covered(file, other)), None)
        if other is None:
            kept.append(file)
            continue
        scanned.skipped.append(f"{file.path}: its events are in {other.path} too; the larger file is taken.")
        scanned.damaged.pop(file.path, None)
    scanned.files = sorted([*listed, *kept], key=lambda file: (file.first_event_id, -file.last_event_id))


def _is_covered(file: AddFile, other: AddFile) -> bool:
    is_within = other.first_event_id <= file.first_event_id and file.last_event_id <= other.last_event_id
    return is_within or have_ids_in_common(file, other)


def _gaps(revisions: Sequence[int]) -> list[int]:
    """Return the revisions between the first and the last of those that are known, which are sorted."""
    return sorted(set(range(revisions[0], revisions[-1] + 1)) - set(revisions)) if revisions else []


def _added_by(scanned: LogScan, file: AddFile) -> tuple[int, UUID | None]:
    return _revision_of(scanned, file), scanned.attempts.get(file.path)


def _revision_of(scanned: LogScan, file: AddFile) -> int:
    return scanned.numbers.get(file.path, -1)
