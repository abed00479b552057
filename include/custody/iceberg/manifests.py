"""Manifests: lists of event logs and of deletes, shared by all snapshots that hold the same ones.

A manifest is named by what it lists, and so is a list of manifests: publishers that make the same one agree on the
name, and one that is there is not written again. Logs in the order of their ids are cut where their digests say so, so
that a new log changes the last manifest alone, whoever cuts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from google.protobuf.message import DecodeError
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.typedef import Record

from custody.catalog import AddFile
from custody.catalog.pruning import bounds_of
from custody.catalog.transaction_pb2 import FileStatistics
from custody.iceberg.event_columns import FIELD_IDS, partition_spec, stored_bound, table_schema
from custody.iceberg.hidden_rows import PATH_ID, HiddenRows
from custody.iceberg.table_folder import TableFolder
from custody.store import put_object

# Part of the format, or every manifest would be written anew: a manifest ends behind a log whose digest begins with
# these bits all 0, which is one in 128, and at the latest after so many.
_CUT_MASK = 127
_LOGS_MAX = 1024
# Of every log and of every file of deletes: deletes apply to what is not newer, and order says nothing else here.
_SEQUENCE = 1
_NAME_DIGITS = 40
_CODEC: Any = "deflate"


@dataclass(frozen=True, slots=True)
class ListedLog:
    """An event log as manifests list it."""

    file: AddFile
    location: str

    @property
    def identity(self) -> bytes:
        """What tells it from others."""
        return self.location.encode() + b"\0" + self.file.sha256


class ManifestFolder:
    """Makes the manifests of one table."""

    def __init__(self, folder: TableFolder, writer: str, earlier_snapshot: int) -> None:
        self._folder = folder
        self._writer = writer
        self._earlier = earlier_snapshot
        """Named as the snapshot that added what a snapshot did not add itself."""
        self._schema, self._spec = table_schema(), partition_spec()
        self._sizes: dict[str, int] = {}

    def existing(self, logs: Sequence[ListedLog]) -> Iterator[ManifestFile]:
        """Yield the manifests of logs that were there before, which are in the order of their ids."""
        for chunk in _cut(logs):
            status = ManifestEntryStatus.EXISTING
            entries = (self._log_entry(log, status, self._earlier) for log in chunk)
            identities, rows = [log.identity for log in chunk], sum(log.file.rows for log in chunk)
            yield self._manifest("logs", identities, entries, self._earlier, status, rows)

    def changed(
        self, logs: Sequence[ListedLog], snapshot: int, sequence: int, *, is_added: bool
    ) -> Iterator[ManifestFile]:
        """Yield the manifest of the logs that a snapshot added, or of those that it removed; none without any."""
        if logs:
            status = ManifestEntryStatus.ADDED if is_added else ManifestEntryStatus.DELETED
            kind = f"{'added' if is_added else 'removed'}-{snapshot}-{sequence}"
            entries = (self._log_entry(log, status, snapshot) for log in logs)
            identities, rows = [log.identity for log in logs], sum(log.file.rows for log in logs)
            yield self._manifest(kind, identities, entries, snapshot, status, rows, sequence=sequence)

    def hiding(self, hidden: Sequence[HiddenRows]) -> Iterator[ManifestFile]:
        """Yield the manifest of files of deletes; none without any."""
        if hidden:
            entries = (self._delete_entry(each) for each in hidden)
            identities = [each.key.encode() + b"\0" + each.log.encode() for each in hidden]
            status, rows = ManifestEntryStatus.EXISTING, sum(each.rows for each in hidden)
            yield self._manifest("deletes", identities, entries, self._earlier, status, rows, is_deletes=True)

    def listed(self, snapshot: int, sequence: int, revision: int, manifests: Sequence[ManifestFile]) -> str:
        """Return where the list of a snapshot's manifests lies, which is written where needed."""
        identities = [each.manifest_path.encode() for each in manifests]
        key = f"{self._folder.metadata}snap-{revision}-{_name('list', [str(snapshot).encode(), *identities])}.avro"
        if self._size(key) is None:
            output = _Output(self._folder.locate(key))
            with write_manifest_list(2, output, snapshot, None, sequence, _CODEC) as lists:
                lists.add_manifests(list(manifests))
            self._put(key, output)
        return self._folder.locate(key)

    def settle(self) -> None:
        """Make all that was found, and may be of a publisher that died before its syncs, durable."""
        for key in list(self._sizes)[-1:]:
            self._folder.store.settle(key)

    def _manifest(
        self,
        kind: str,
        identities: Sequence[bytes],
        entries: Iterator[ManifestEntry],
        snapshot: int,
        status: ManifestEntryStatus,
        rows: int,
        *,
        sequence: int = _SEQUENCE,
        is_deletes: bool = False,
    ) -> ManifestFile:
        """Return a manifest whose entries are all of one status; they are made only if it has to be written."""
        key = f"{self._folder.metadata}{_name(kind, [self._writer.encode(), *identities])}.avro"
        writer = _DeletesWriter if is_deletes else ManifestWriterV2
        if self._size(key) is None:
            output = _Output(self._folder.locate(key))
            with writer(self._spec, self._schema, output, snapshot, _CODEC) as manifest:
                for entry in entries:
                    manifest.add_entry(entry)
            self._put(key, output)
        added, existing, deleted = (
            (len(identities), rows) if status == each else (0, 0)
            for each in (ManifestEntryStatus.ADDED, ManifestEntryStatus.EXISTING, ManifestEntryStatus.DELETED)
        )
        return ManifestFile.from_args(
            manifest_path=self._folder.locate(key),
            manifest_length=self._sizes[key],
            partition_spec_id=self._spec.spec_id,
            content=ManifestContent.DELETES if is_deletes else ManifestContent.DATA,
            sequence_number=sequence,
            min_sequence_number=_SEQUENCE,
            added_snapshot_id=snapshot,
            added_files_count=added[0],
            existing_files_count=existing[0],
            deleted_files_count=deleted[0],
            added_rows_count=added[1],
            existing_rows_count=existing[1],
            deleted_rows_count=deleted[1],
            partitions=None,
            key_metadata=None,
        )

    def _size(self, key: str) -> int | None:
        if key not in self._sizes:
            info = self._folder.store.head(key)
            if info is None:
                return None
            self._sizes[key] = info.size_bytes
        return self._sizes[key]

    def _put(self, key: str, output: _Output) -> None:
        data = output.data
        # Avro's files have a random mark: another publisher's differs by it, and is as good.
        if not put_object(self._folder.store, key, data):
            info = self._folder.store.head(key)
            self._sizes[key] = len(data) if info is None else info.size_bytes
        else:
            self._sizes[key] = len(data)

    def _log_entry(self, log: ListedLog, status: ManifestEntryStatus, snapshot: int) -> ManifestEntry:
        lower, upper, nulls = _statistics(log.file)
        data_file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=log.location,
            file_format=FileFormat.PARQUET,
            partition=Record(self._writer),
            record_count=log.file.rows,
            file_size_in_bytes=log.file.size_bytes,
            column_sizes=None,
            value_counts=dict.fromkeys(nulls, log.file.rows),
            null_value_counts=nulls,
            nan_value_counts=None,
            lower_bounds=lower,
            upper_bounds=upper,
            key_metadata=None,
            split_offsets=None,
            equality_ids=None,
            sort_order_id=None,
        )
        return self._entry(data_file, status, snapshot)

    def _delete_entry(self, hidden: HiddenRows) -> ManifestEntry:
        path = {PATH_ID: hidden.log.encode()}
        data_file = DataFile.from_args(
            content=DataFileContent.POSITION_DELETES,
            file_path=self._folder.locate(hidden.key),
            file_format=FileFormat.PARQUET,
            partition=Record(self._writer),
            record_count=hidden.rows,
            file_size_in_bytes=hidden.size_bytes,
            column_sizes=None,
            value_counts=None,
            null_value_counts=None,
            nan_value_counts=None,
            # Equal bounds of the path tell engines that these deletes are of this log alone.
            lower_bounds=path,
            upper_bounds=path,
            key_metadata=None,
            split_offsets=None,
            equality_ids=None,
            sort_order_id=None,
        )
        return self._entry(data_file, ManifestEntryStatus.EXISTING, self._earlier)

    def _entry(self, data_file: DataFile, status: ManifestEntryStatus, snapshot: int) -> ManifestEntry:
        return ManifestEntry.from_args(
            status=status,
            snapshot_id=snapshot,
            sequence_number=_SEQUENCE,
            file_sequence_number=_SEQUENCE,
            data_file=data_file,
        )


class _DeletesWriter(ManifestWriterV2):  # type: ignore[misc]
    """pyiceberg writes manifests of data; those of deletes differ in what they say of themselves."""

    def content(self) -> ManifestContent:
        """Return what the manifest lists."""
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _Output(OutputFile):  # type: ignore[misc]
    """A file in memory: what is written goes to the store as one object, durably."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self.data = b""

    def __len__(self) -> int:
        return len(self.data)

    def exists(self) -> bool:
        """Whether it is there: not yet."""
        return False

    def to_input_file(self) -> InputFile:
        """Refuse: nothing is read back."""
        raise NotImplementedError(self.location)

    def create(self, overwrite: bool = False) -> _Buffer:
        """Return a stream that becomes the file's content."""
        return _Buffer(self)


class _Buffer(BytesIO):
    def __init__(self, output: _Output) -> None:
        super().__init__()
        self._output = output

    def close(self) -> None:
        if not self.closed:
            self._output.data = self.getvalue()
        super().close()


def _cut(logs: Sequence[ListedLog]) -> Iterator[list[ListedLog]]:
    chunk: list[ListedLog] = []
    for log in logs:
        chunk.append(log)
        if len(chunk) == _LOGS_MAX or not log.file.sha256[0] & _CUT_MASK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _name(kind: str, identities: Iterable[bytes]) -> str:
    digest = hashlib.sha256(kind.encode())
    for identity in identities:
        digest.update(len(identity).to_bytes(4, "little") + identity)
    return f"{kind.partition('-')[0]}-{digest.hexdigest()[:_NAME_DIGITS]}"


def _statistics(file: AddFile) -> tuple[dict[int, bytes], dict[int, bytes], dict[int, int]]:
    """Return the lower and the upper bounds and the numbers of nulls of columns, by field id."""
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    try:
        statistics = FileStatistics.FromString(file.statistics)
    # They only help to leave a log out: `verify` names the damage.
    except DecodeError:
        statistics = FileStatistics()
    nulls = {FIELD_IDS[each.column]: each.nulls for each in statistics.columns if each.column in FIELD_IDS}
    bounds: dict[str, Any] = {
        **bounds_of(statistics),
        "event_id": (file.first_event_id, file.last_event_id),
        "event_time": (file.first_event_time_ms, file.last_event_time_ms),
    }
    for column, pair in bounds.items():
        if column not in FIELD_IDS or pair is None:
            continue
        low, high = (stored_bound(column, each.decode() if isinstance(each, bytes) else each) for each in pair)
        if low is not None and high is not None:
            lower[FIELD_IDS[column]], upper[FIELD_IDS[column]] = low, high
    return lower, upper, nulls
