"""Verification: the chain of a catalog, its checkpoints, and every byte of the files that it lists; changes nothing.

A walk goes over all revisions that are kept. Files are compared with their SHA-256; in a damaged file the pages'
checksums tell which blocks are hurt, so that the others can still be used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from typing import Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from custody.catalog.catalog import Catalog
from custody.catalog.checkpoints import checkpoint_message
from custody.catalog.codec import decode, digest
from custody.catalog.footers import fingerprint, parse_footer, read_footer, statistics_of, stored_footer
from custody.catalog.keys import CatalogObject, CatalogObjects
from custody.catalog.state import EMPTY, CatalogState, Draft, NotApplicableError
from custody.catalog.statistics import is_table_of, read_statistics, table_key
from custody.catalog.transaction_pb2 import AddFile, FileStatistics, Transaction
from custody.catalog.wellformed import check_delta, check_full, read_file_entry
from custody.errors import CorruptionError, CustodyError, FormatVersionError
from custody.eventlog.log_writer import METADATA_KEY, LogMetadata
from custody.format.names import parse_event_log, parse_revision, split_stripe

_LOG_METADATA = msgspec.json.Decoder(LogMetadata)
Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all)."""
Part = Literal["file", "toc", "transaction", "checkpoint", "object", "tail", "stripe"]
"""What a defect is about: `object` is one that does not belong here, `tail` the newest transactions, which are gone."""
# If others prune during every walk the last report counts, though it may name as damage what was pruned.
_WALKS = 3
"""How many walks are tried while others prune."""
_GAP_TOLD = 1000
"""How many missing revisions in a row are named: a foreign name may claim any number."""


@dataclass(frozen=True, slots=True)
class Defect:
    """One thing that is damaged or missing: which file, where in it as far as that is known, and what it is."""

    file: str
    offset: int | None
    message: str
    part: Part = "file"
    revision: int | None = None
    """Of an object of the catalog."""

    def __str__(self) -> str:
        at = "" if self.offset is None else f" @{self.offset}"
        return self.message if self.message.startswith(self.file) else f"{self.file}{at}: {self.message}"


@dataclass
class Verification:
    """The result of a verification: `defects` are damage, `notices` are not."""

    revisions: int = 0
    checkpoints: int = 0
    files: int = 0
    bytes: int = 0
    defects: list[Defect] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    state: CatalogState | None = None
    """The newest state, None when it cannot be told."""
    links: dict[int, Link] = field(default_factory=dict)
    """By revision, the transactions that could be read."""
    noted: dict[int, int] = field(default_factory=dict)
    """Revisions that are known to be lost, each with the first later revision that says so."""
    states: dict[int, CatalogState] = field(default_factory=dict)
    """The states at the revisions that were asked for, as far as they can be told."""


@dataclass(frozen=True, slots=True)
class Link:
    """A transaction in the chain: its own digest, and that of its predecessor as it carries it."""

    digest: bytes
    previous: bytes


def verify(
    catalog: Catalog, *, files: bool = True, progress: Progress | None = None, states_at: Container[int] = ()
) -> Verification:
    """Walk the chain and compare each checkpoint with what the transactions give; with `files` read all live files.

    Nothing is raised for damage and nothing is changed. A defect does not end the walk: behind a damaged transaction
    it goes on with the next checkpoint. `states_at` are revisions of which the report is to have the states.
    """
    for _ in range(_WALKS):
        # Others may prune during the walk; what they deleted would look like damage.
        floor = _floor(catalog)
        walk = _ChainWalk(catalog, states_at)
        state = walk.run()
        if _floor(catalog) == floor:
            break  # else others pruned what was being walked over
    report = walk.report
    report.state = state
    if files and state is not None:
        _verify_files(catalog.objects, state, report, progress or (lambda done, total: None))
    return report


def verify_file(objects: CatalogObjects, file: AddFile) -> list[Defect]:
    """Read a live file and return what is wrong with it: its damaged blocks, or one defect of the whole."""
    where = objects.files.locate(file.path)
    try:
        data = objects.files.get(file.path)
    except CustodyError as error:
        return [Defect(where, None, str(error))]
    # A file of another length is named by where it ends: its digest would only say that it differs.
    if len(data) != file.size_bytes:
        return [Defect(where, min(len(data), file.size_bytes), f"expected {file.size_bytes} bytes, got {len(data)}.")]
    # Nobody knows its digest: it is compared with its own checksums.
    if not file.sha256 and parse_event_log(file.path) is not None:
        return _own_defects(where, data)
    # Blocks are searched only in a changed file: decoding every page of a whole one would prove nothing more.
    if file.sha256 and hashlib.sha256(data).digest() != file.sha256:
        return _damaged_blocks(where, data)
    return _check_footer(objects, where, data, file)


def verify_toc(objects: CatalogObjects, file: AddFile) -> list[Defect]:
    """Read the table of contents beside a live file, if it has one, and return what is wrong with it."""
    if not file.toc_path:
        return []
    where = objects.files.locate(file.toc_path)
    try:
        data = objects.files.get(file.toc_path)
    except CustodyError as error:
        return [Defect(where, None, str(error), "toc")]
    if file.toc_sha256 and hashlib.sha256(data).digest() != file.toc_sha256:
        return [Defect(where, None, "expected another SHA-256: the table of contents was changed.", "toc")]
    return []


def _verify_files(objects: CatalogObjects, state: CatalogState, report: Verification, progress: Progress) -> None:
    """Read every live file and table of contents and add what is wrong with them to the report."""
    total = sum(state.files[path].size_bytes for path in state.files)
    unknown = 0
    # One defect for a whole disk that is away: its files are out of reach, not damaged.
    missing = dict(objects.files.missing())
    report.defects += [Defect(name, None, f"stripe-missing: {error}", "stripe") for name, error in missing.items()]
    for path in sorted(state.files):
        file = state.files[path]
        if split_stripe(path)[0] in missing:
            continue
        report.files += 1
        unknown += not file.sha256 and parse_event_log(path) is None
        report.defects += [*verify_file(objects, file), *verify_toc(objects, file)]
        report.bytes += file.size_bytes
        progress(report.bytes, total)
    if unknown:
        report.notices.append(f"{unknown} files have no digest in the catalog, only their footers were compared.")


def _own_defects(where: str, data: bytes) -> list[Defect]:
    """Compare a log without a digest with its own checksums."""
    # Imported here: most commands check no log by itself.
    from custody.catalog.log_check import check_log_itself

    try:
        log = check_log_itself(data, where)
    except CustodyError as error:
        return [Defect(where, None, str(error))]
    defects = [
        Defect(where, block.offset, f"block {block.number} is damaged: {block.problem}.") for block in log.damaged
    ]
    return defects or ([Defect(where, None, f"{log.problem}.")] if log.problem else [])


def _check_footer(objects: CatalogObjects, where: str, data: bytes, file: AddFile) -> list[Defect]:
    """Compare what the catalog says of a whole file with the file: rows, columns, statistics, what a log is of."""
    try:
        footer = read_footer(lambda start, length: data[start:][:length], where)
        metadata = parse_footer(footer, where)
        listed = stored_footer(file)
    except CorruptionError as error:
        return [Defect(where, None, str(error))]
    if metadata.num_rows != file.rows:
        return [Defect(where, None, f"expected {file.rows} rows, got {metadata.num_rows}.")]
    if file.schema_fingerprint and fingerprint(metadata.schema.to_arrow_schema()) != file.schema_fingerprint:
        return [Defect(where, None, "expected the columns that the catalog names, got others.")]
    if listed is not None and not listed.equals(metadata):
        return [Defect(where, None, "expected the footer that the catalog keeps, got another one.")]
    # Queries leave logs out by what the catalog says of them, and a group counts as live that one of them names.
    own = statistics_of(metadata, lambda start, length: data[start:][:length])
    if file.statistics and FileStatistics.FromString(file.statistics) != own:
        return [Defect(where, None, "expected the statistics that the catalog keeps, got others.")]
    stored = (metadata.metadata or {}).get(METADATA_KEY)
    if stored is not None and _of_log(objects, file) != (said := _said_by_log(stored)):
        return [Defect(where, None, f"expected the log of {_of_log(objects, file)}, got one of {said}.")]
    return []


def _of_log(objects: CatalogObjects, file: AddFile) -> tuple[object, ...]:
    """Return whose log the catalog lists, its bounds, and its groups."""
    bounds = file.first_event_id, file.last_event_id, file.first_event_time_ms, file.last_event_time_ms
    return objects.writer, objects.database, file.table, *bounds, tuple(file.groups)


def _said_by_log(stored: bytes) -> tuple[object, ...]:
    """Return the same as a log says it."""
    try:
        said = _LOG_METADATA.decode(stored)
    except msgspec.DecodeError as error:
        return (str(error),)
    bounds = said.first_event_id, said.last_event_id, said.first_event_time_ms, said.last_event_time_ms
    return said.writer, said.database, said.table, *bounds, said.groups


def _damaged_blocks(where: str, data: bytes) -> list[Defect]:
    """Name the blocks of a changed file whose pages do not fit their checksums, or the file when none is found."""
    try:
        log = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
    except (OSError, pa.ArrowException, ValueError) as error:
        return [Defect(where, None, f"expected another SHA-256; the footer is damaged: {error}")]
    defects = []
    for number in range(log.metadata.num_row_groups):
        try:
            log.read_row_group(number, use_threads=False)
        except (OSError, pa.ArrowException, ValueError) as error:
            chunk = log.metadata.row_group(number).column(0)
            start = min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)
            defects.append(Defect(where, start, f"block {number} is damaged: {error}"))
    return defects or [Defect(where, None, "expected another SHA-256: the file was changed outside its blocks.")]


def _floor(catalog: Catalog) -> int:
    """Return before which revision leftovers of a pruning do not matter; 0 when the catalog cannot be read."""
    try:
        return catalog.load().floor
    except CustodyError:
        return 0


class _ChainWalk:
    def __init__(self, catalog: Catalog, states_at: Container[int]) -> None:
        self._catalog = catalog
        self._states_at = states_at
        self._objects = catalog.objects
        self._store = catalog.objects.store
        self.report = Verification()
        self._draft: Draft | None = Draft(EMPTY)
        """None while the state is unknown, behind an object that could not be read."""
        self._digest: bytes | None = b""
        self._uuid: bytes | None = b""
        self._checkpoints: list[CatalogState] = []

    def run(self) -> CatalogState | None:
        """Return the newest state, None when it cannot be told."""
        by_revision: dict[int, list[CatalogObject]] = {}
        for item in self._objects.list():
            by_revision.setdefault(item.revision, []).append(item)
        if not by_revision:
            return EMPTY
        floor = _floor(self._catalog)
        first = max(min(by_revision), floor)
        self._look_below_floor([revision for revision in by_revision if revision < floor])
        for revision in _revisions_between(first, sorted(by_revision)):
            items = by_revision.get(revision, [])
            self._transaction(revision, [item for item in items if not item.is_checkpoint], begins=revision == first)
            for item in items:
                if item.is_checkpoint:
                    self._checkpoint(item)
            if revision in self._states_at and self._draft is not None:
                self.report.states[revision] = self._draft.state()
        self._look_for_lost_tail(max(by_revision))
        if first > 0 and not any(item.is_checkpoint for item in by_revision.get(first, [])):
            key = self._objects.folder(first - 1).rstrip("/")
            message = f"revision {first - 1} has no transaction, and nothing that was pruned ends there."
            self._defect(key, message, revision=first - 1)
        state = None if self._draft is None else self._draft.state()
        if state is not None:
            self._check_floor(state, first)
            self._check_hint()
        self._pass_over_noted()
        if state is None:
            return None
        self._check_statistics()
        return state

    def _look_below_floor(self, revisions: list[int]) -> None:
        if revisions:
            self.report.notices.append(
                f"{self._store.locate(self._objects.folder(min(revisions)))}: {len(revisions)} revisions before the "
                "floor are still there: a pruning was interrupted, or a process wrote that was overtaken by one. The "
                "next pruning removes them."
            )

    def _check_statistics(self) -> None:
        """Read the tables of statistics whole; only the newest one has to be there, as a crash may leave none."""
        for state in self._checkpoints:
            where = table_key(self._objects, state)
            if state is not self._checkpoints[-1] and self._store.head(where) is None:
                continue
            table = read_statistics(self._objects, state)
            if table is not None and not is_table_of(table, state):
                self.report.notices.append(
                    f"{self._store.locate(where)}: says of files what the checkpoint does not say. Remove it, and the "
                    "next checkpoint writes another one; custody itself does not read it."
                )
            if table is None:
                mended = (
                    "the next checkpoint writes one" if state is self._checkpoints[-1] else "nothing reads it any more"
                )
                self.report.notices.append(
                    f"{self._store.locate(where)}: the table of statistics is lost or damaged; {mended}."
                )

    def _defect(
        self,
        key: str,
        message: str,
        offset: int | None = None,
        *,
        part: Part = "transaction",
        revision: int | None = None,
    ) -> None:
        self.report.defects.append(Defect(self._store.locate(key), offset, message, part, revision))

    def _pass_over_noted(self) -> None:
        """Make notices of defects that a later revision takes note of: nobody can bring these transactions back."""
        defects = []
        for defect in self.report.defects:
            if defect.part == "transaction" and defect.revision in self.report.noted:
                by = self.report.noted[defect.revision]
                self.report.notices.append(f"{defect} It is known to be lost: revision {by} says so.")
            else:
                defects.append(defect)
        self.report.defects[:] = defects

    def _transaction(self, revision: int, items: list[CatalogObject], *, begins: bool) -> None:
        """Read the transaction of a revision; what cannot be followed leaves the state unknown."""
        item = self._choose(revision, items)
        if item is None:
            key = self._objects.folder(revision).rstrip("/")
            self._defect(key, f"revision {revision} has no transaction.", revision=revision)
            self._draft = self._digest = self._uuid = None
            return
        self.report.revisions += 1
        try:
            data = self._store.get(item.key)
            where = self._store.locate(item.key)
            before = 0 if self._draft is None or begins else self._draft.commit_time_ms
            transaction = check_delta(decode(data, where), where, before)
        except CustodyError as error:
            self._defect(item.key, str(error), _offset(error), revision=revision)
            self._draft = self._digest = self._uuid = None
            return
        lost = (lost for action in transaction.actions for lost in action.note.lost_revisions if lost < revision)
        # A note counts for earlier revisions only, so it can never excuse damage to the transaction that carries it.
        for number in lost:
            self.report.noted.setdefault(number, revision)
        self.report.links[revision] = Link(digest(data), transaction.previous_digest)
        self._check_link(item, transaction, revision, begins=begins)
        self._apply(item, transaction, digest(data), begins=begins)
        self._digest, self._uuid = digest(data), transaction.uuid

    def _choose(self, revision: int, items: list[CatalogObject]) -> CatalogObject | None:
        """Return the transaction of the right name; every other one is foreign, or with random names a fork."""
        random = self._draft is not None and self._draft.naming == Transaction.RANDOM
        name: bytes | None = None
        if self._draft is not None and not random and self._draft.revision == revision - 1:
            name = self._objects.next_uuid(self._draft.catalog_id, revision - 1, self._draft.uuid)
        right = [item for item in items if name is None or item.uuid.bytes == name]
        if revision == 0 and not right:
            right = items  # random names begin with a random name
        for item in items:
            if item not in right[:1]:
                kind = "a fork" if random else "a foreign object"
                message = f"revision {revision} has another transaction: {kind}."
                self._defect(item.key, message, part="object", revision=revision)
        return right[0] if right else None

    def _check_link(self, item: CatalogObject, transaction: Transaction, revision: int, *, begins: bool) -> None:
        wrong = []
        if transaction.revision != revision or transaction.uuid != item.uuid.bytes:
            wrong.append(f"its name says {revision}, {item.uuid}, it says {transaction.revision}")
        if not begins and self._digest is not None and transaction.previous_digest != self._digest:
            wrong.append("it does not carry the digest of its predecessor: one of the two was changed")
        if not begins and self._uuid is not None and transaction.previous_uuid != self._uuid:
            wrong.append("it does not name its predecessor")
        if begins and revision == 0 and (transaction.previous_digest or transaction.previous_uuid):
            wrong.append("it is the first and names a predecessor")
        for message in wrong:
            self._defect(item.key, message, revision=revision)

    def _apply(self, item: CatalogObject, transaction: Transaction, its_digest: bytes, *, begins: bool) -> None:
        # After a pruning the first kept transaction has no predecessor here; its checkpoint gives the state after it.
        if begins and transaction.revision > 0:
            self._draft = None  # its checkpoint tells the state
        if self._draft is None:
            return
        try:
            self._draft.follow(transaction, its_digest)
        except (NotApplicableError, FormatVersionError) as error:
            self._defect(item.key, str(error), revision=transaction.revision)
            self._draft = None

    def _checkpoint(self, item: CatalogObject) -> None:
        """Compare a checkpoint with the state; where the state is unknown, go on from it."""
        self.report.checkpoints += 1
        try:
            where = self._store.locate(item.key)
            message = decode(self._store.get(item.key), where)
            check_full(message, where)
            state = EMPTY.advanced(message, message.previous_digest, where)
            for path in state.files:
                read_file_entry(path, state.files.encoded(path), where)
        except CustodyError as error:
            self._defect(item.key, str(error), _offset(error), part="checkpoint", revision=item.revision)
            return
        if (message.revision, message.uuid) != (item.revision, item.uuid.bytes):
            text = f"its name says {item.revision}, {item.uuid}, it says {message.revision}."
            self._defect(item.key, text, part="object", revision=item.revision)
            return
        if self._digest is not None and message.previous_digest != self._digest:
            text = "it stands beside another transaction than it says."
            self._defect(item.key, text, part="object", revision=item.revision)
        # Behind damage the next whole checkpoint is trusted, so that the rest of the chain is checked too.
        elif self._draft is None:
            self._draft = Draft(state)
            self._digest, self._uuid = message.previous_digest, message.uuid
        # The strongest check: a checkpoint is outside of the chain, so only the transactions can vouch for it.
        elif checkpoint_message(self._draft.state()) != message:
            text = "it says another state than the transactions give."
            self._defect(item.key, text, part="object", revision=item.revision)
        self._checkpoints.append(state)

    def _look_for_lost_tail(self, newest: int) -> None:
        """Find revision folders behind the newest transaction: a crash leaves one at most."""
        folders = [parse_revision(name) for name in self._store.folders(self._objects.prefix)]
        behind = sorted(revision for revision in folders if revision is not None and revision > newest)
        if len(behind) > 1:
            key = self._objects.folder(behind[0]).rstrip("/")
            self._defect(key, f"revisions {behind[0]} to {behind[-1]} are gone, their folders are there.", part="tail")
        elif behind:
            self.report.notices.append(
                f"{self._store.locate(self._objects.folder(behind[0]))}: an empty folder: a commit was interrupted, or "
                "a transaction was removed. An attestation tells which: custody verify --against"
            )

    def _check_floor(self, state: CatalogState, first: int) -> None:
        for revision in range(state.floor, min(first, state.floor + _GAP_TOLD)):
            key = self._objects.folder(revision).rstrip("/")
            self._defect(key, f"revision {revision} is missing, and it was not pruned.", revision=revision)
        if state.prune is None:
            return
        checkpoints = [item for item in self._objects.at(state.floor) if item.is_checkpoint]
        if not any(self._digest_of(item.key) == state.prune.checkpoint_digest for item in checkpoints):
            key = checkpoints[0].key if checkpoints else self._objects.folder(state.floor).rstrip("/")
            message = "expected the checkpoint that the pruning names, with its digest."
            self._defect(key, message, part="checkpoint", revision=state.floor)

    def _digest_of(self, key: str) -> bytes | None:
        try:
            return digest(self._store.get(key))
        except CustodyError:
            return None

    def _check_hint(self) -> None:
        if self._store.head(self._objects.hint) is None:
            return
        where = self._store.locate(self._objects.hint)
        hint = self._catalog.chain.hinted()
        if hint is None:
            self.report.notices.append(f"{where}: damaged; the next checkpoint mends it.")
            return
        if self._draft is None:
            return
        newest = self._checkpoints[-1] if self._checkpoints else EMPTY
        if hint.catalog_id != self._draft.catalog_id:
            fault = "it is of another catalog"
        elif hint.revision > self._draft.revision:
            message = f"there was a revision {hint.revision}: the newest transactions are lost."
            self._defect(self._objects.hint, message, part="tail")
            return
        elif (hint.uuid, hint.previous_digest) != (newest.uuid.bytes, newest.digest):
            fault = f"it names revision {hint.revision}, the newest checkpoint is that of {newest.revision}"
        else:
            return
        self.report.notices.append(f"{where}: {fault}: readers pass over it, the next checkpoint mends it.")


def _revisions_between(first: int, present: list[int]) -> Iterator[int]:
    """Yield the revisions from the first one on, those of a gap between up to a number."""
    for revision in present:
        if revision >= first:
            yield from range(first, min(revision, first + _GAP_TOLD))
            yield revision
            first = revision + 1


def _offset(error: CustodyError) -> int | None:
    """Return the offset that a message of the form `file @offset: …` names."""
    _, mark, rest = str(error).partition(" @")
    number = rest.partition(":")[0]
    return int(number) if mark and number.isdigit() else None
