"""Rebuild: a new catalog from what data files and the readable objects of the old catalog still say.

Files come from the footers of the event logs, at two range reads a file: each footer names the events it holds and, if
it was embedded, the transaction that added it. Tombstones, holds, marks and losses are in the catalog alone, so they
are salvaged from its objects, one by one, each trusted for its own checksum, and from the second copies. Objects that
an earlier rebuild moved aside are read too, so that an interrupted rebuild can be repeated.

What neither source tells is stated as lost: removals, index shards, and the revisions that only such actions made. The
old objects are moved aside, never deleted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Annotated, Any
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from custody.catalog.catalog import Catalog
from custody.catalog.codec import decode
from custody.catalog.footers import describe, parse_footer, read_footer
from custody.catalog.keys import CatalogObjects
from custody.catalog.second_copies import SecondCopies, SecondCopyStore
from custody.catalog.transaction_pb2 import Action, AddFile, AddShard, Note, SourceRange, Transaction
from custody.catalog.wellformed import check_action, have_ids_in_common
from custody.clock import Clock
from custody.errors import CorruptionError, CustodyError, InvalidInputError, NotFoundError, StorageError
from custody.eventlog.log_writer import METADATA_KEY
from custody.format.names import (
    TIME_DIGITS,
    parse_event_log,
    parse_revision,
    parse_transaction,
    shard_container,
    shard_name,
    toc_path,
)

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
                salvaged.follow(decode(objects.store.get(key), key), key)
            except (CorruptionError, StorageError, NotFoundError):
                salvaged.unread.append(key)
    # Last, and only for ids that are missing: what an object of the catalog says counts more than a copy.
    salvaged.copies = SecondCopyStore(objects).read()
    for name, copy in salvaged.copies.by_id.items():
        kind = "tombstones" if copy.action.HasField("add_tombstone") else "marks"
        salvaged.actions[kind].setdefault(name, copy.action)
    return salvaged


@dataclass
class FooterScan:
    """The data files, as their footers describe them."""

    files: list[AddFile] = field(default_factory=list)
    """In the order of their first event ids."""
    transactions: dict[str, int] = field(default_factory=dict)
    """The revision that added a file, by path, where its footer says so."""
    numbers: dict[str, int] = field(default_factory=dict)
    """The revision at which a file was to become live, by path, where its footer says so; it was that one or a later
    one. Files of older releases do not say it."""
    attempts: dict[str, UUID] = field(default_factory=dict)
    """The transaction that added a file, by path, where its footer says so: files of one become live together."""
    skipped: list[str] = field(default_factory=list)
    """Why files are left out."""


def scan_footers(objects: CatalogObjects, *, hashes: bool = False, leave_out: Iterable[str] = ()) -> FooterScan:
    """Read the footer of every event log; with `hashes` the whole file, for its digest."""
    scanned, without = FooterScan(), set(leave_out)
    for info in objects.files.list("data/"):
        path = info.key
        if "." not in path.rpartition("/")[2]:
            scanned.skipped.append(
                f"{objects.files.locate(path)}: expected a folder, got a link or a file: what lies behind it is "
                "not looked at. Put the folder itself in its place."
            )
        if parse_event_log(path) is None or not path.endswith(".parquet") or path in without:
            continue
        try:
            # One unreadable log must not cost the others: it is named in the result, and the scan goes on.
            file, footer = _described(objects, path, info.size_bytes, hashes=hashes)
        except CustodyError as error:
            scanned.skipped.append(str(error))
            continue
        scanned.files.append(file)
        if footer.revision is not None:
            scanned.transactions[path] = footer.revision
        if footer.number is not None:
            scanned.transactions[path] = scanned.numbers[path] = footer.number
        if footer.attempt is not None:
            scanned.attempts[path] = footer.attempt
    # The wider file first among equals: `_drop_covered` keeps it and drops the narrower ones behind it.
    scanned.files.sort(key=lambda file: (file.first_event_id, -file.last_event_id))
    _drop_covered(scanned)
    return scanned


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
    scanned: FooterScan,
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
    lost, gaps = rebuild_losses(scanned, salvaged, containers), _gaps(sorted(set(scanned.transactions.values())))
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
    if extra:
        state = fresh.commit(extra)
    # Last of all, as nothing is committed behind it: a writer that was retired stays retired.
    if salvaged.seal is not None and fresh.load().seal is None:
        state = fresh.commit([salvaged.seal])
    # A new catalog begins with a checkpoint, so that the next damage to its first transactions costs nothing.
    fresh.write_checkpoint()
    return Rebuilt(state.revision, len(order), sum(file.rows for file in order), tuple(lost), aside)


def rebuild_losses(scanned: FooterScan, salvaged: Salvaged, containers: Sequence[str] = ()) -> list[str]:
    """Return what a catalog made of these will not know."""
    lost = list(scanned.skipped)
    revisions = sorted(set(scanned.transactions.values()))
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


def _is_numbered_too_high(scanned: FooterScan) -> bool:
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
    }.get(kind or "")
    return None if by_id is None else (by_id[0], by_id[1].hex(), by_id[2])


@dataclass(frozen=True, slots=True)
class _Footer:
    """What a footer says of its log, as fields of an `AddFile`, and of the transaction that added it."""

    fields: dict[str, Any]
    revision: int | None
    """As a transaction in the footer says it, which custody does not write."""
    number: int | None
    attempt: UUID | None


def _described(objects: CatalogObjects, path: str, size: int, *, hashes: bool) -> tuple[AddFile, _Footer]:
    files, where = objects.files, objects.files.locate(path)
    data = files.get(path) if hashes else None

    def get_range(start: int, length: int) -> bytes:
        return files.get_range(path, start, length) if data is None else data[start:][:length]

    footer = parse_footer(read_footer(get_range, where), where)
    metadata = _metadata(footer, where)
    file = AddFile(path=path, size_bytes=size, rows=footer.num_rows, **metadata.fields)
    if data is not None:
        file.sha256 = hashlib.sha256(data).digest()
    toc = toc_path(path)
    if files.exists(toc):
        file.toc_path, file.toc_sha256 = toc, hashlib.sha256(files.get(toc)).digest()
    describe(file, get_range)
    file.sources.extend(_sources(footer, lambda: files.get(path) if data is None else data))
    return file, metadata


def _metadata(footer: pq.FileMetaData, where: str) -> _Footer:
    stored = (footer.metadata or {}).get(METADATA_KEY)
    try:
        metadata = msgspec.json.decode(stored or b"", type=dict[str, Any])
        names = ("table", "partition", "schema_version", "first_event_id", "last_event_id")
        times = ("first_event_time_ms", "last_event_time_ms")
        transaction = metadata.get("transaction")
        revision = transaction["revision"] if isinstance(transaction, dict) else None
        fields = {name: metadata[name] for name in (*names, *times)} | {"groups": metadata.get("groups", [])}
        attempt = UUID(transaction) if isinstance(transaction, str) else None
        number = msgspec.convert(metadata.get("revision"), Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] | None)
        return _Footer(fields, revision, number, attempt)
    except (msgspec.DecodeError, msgspec.ValidationError, KeyError, TypeError) as error:
        raise CorruptionError(f"{where}: expected custody's metadata in the footer, got {error!r}.") from error


def _sources(footer: pq.FileMetaData, load: Callable[[], bytes]) -> list[SourceRange]:
    """Return the bounds of each node's ordinals; the events are read only if a block holds those of several nodes."""
    names = {footer.schema.column(number).path: number for number in range(footer.num_columns)}
    if not {"source_node", "source_ordinal"} <= names.keys():
        return []
    bounds: dict[str, tuple[int, int]] = {}
    for number in range(footer.num_row_groups):
        node = footer.row_group(number).column(names["source_node"]).statistics
        ordinal = footer.row_group(number).column(names["source_ordinal"]).statistics
        # Bounds of ordinals belong to one node only where the row group has no other; else only the events tell.
        if node is None or ordinal is None or (node.has_min_max and node.min != node.max):
            return _sources_of_events(load())
        if node.has_min_max and ordinal.has_min_max:
            least, most = bounds.get(node.min, (ordinal.min, ordinal.max))
            bounds[node.min] = (min(least, ordinal.min), max(most, ordinal.max))
    return [_range(name, *bounds[name]) for name in sorted(bounds)]


def _sources_of_events(data: bytes) -> list[SourceRange]:
    table = pq.read_table(pa.BufferReader(data), columns=["source_node", "source_ordinal"], use_threads=False)
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


def _drop_covered(scanned: FooterScan) -> None:
    """Leave out files whose events another file holds: what a compaction read and did not remove yet."""
    files: list[AddFile] = []
    for file in scanned.files:
        if files and (file.last_event_id <= files[-1].last_event_id or have_ids_in_common(file, files[-1])):
            scanned.skipped.append(f"{file.path}: its events are in {files[-1].path} too; the larger file is taken.")
        else:
            files.append(file)
    scanned.files = files


def _gaps(revisions: Sequence[int]) -> list[int]:
    """Return the revisions between the first and the last of those that are known, which are sorted."""
    return sorted(set(range(revisions[0], revisions[-1] + 1)) - set(revisions)) if revisions else []


def _added_by(scanned: FooterScan, file: AddFile) -> tuple[int, UUID | None]:
    return _revision_of(scanned, file), scanned.attempts.get(file.path)


def _revision_of(scanned: FooterScan, file: AddFile) -> int:
    return scanned.transactions.get(file.path, -1)
