"""The format of a backup: a manifest that people can read, and a table with a row for each file.

The table is a Parquet file. The manifest names its digest and is written last: a backup without a whole manifest does
not count (docs/formats/backup.md).
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from custody.errors import CorruptionError, FormatVersionError
from custody.format.checked_json import has_right_checksum, with_checksum

# Part of the format: numbers and names are added, never changed.
FORMAT_VERSION = 1
CHUNK_BYTES = 16 << 20
"""A larger file is cut into objects of this length; smaller ones share an object."""
_DIGEST = pa.binary(32)
TABLE_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("modified_ms", pa.int64(), nullable=False),
        pa.field("sha256", _DIGEST, nullable=False),
        pa.field("objects", pa.list_(pa.field("element", _DIGEST, nullable=False)), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class BackupFile:
    """A file of a backup: its path, and the objects that hold its bytes, one after the other."""

    path: str
    """Area and path below it, such as `store/main/provenance/data/…`."""
    size: int
    modified_ms: int
    """When the original was last written, ms since the epoch."""
    sha256: bytes
    objects: tuple[bytes, ...]
    """Digests of the objects; none of an empty file."""
    offset: int
    """Where the file begins in its first object; it begins the others."""


class Area(msgspec.Struct, frozen=True, kw_only=True):
    """A folder or store of the repository, which its files' paths begin with, and the setting that names it."""

    name: str
    """`root`, `store`, `container-<n>`, `stripe-<name>` or `content-<name>`."""
    place: str
    """As the setting has it; of `root` the folder."""


class WriterEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a writer's history in a backup."""

    writer: str
    catalog_id: str
    """Hexadecimal digits; empty before the first transaction."""
    revision: int
    """The newest of the catalog, -1 for none."""
    digest: str
    """SHA-256 of the newest transaction, hexadecimal."""
    live_events: int
    """Rows of live logs."""
    waiting_events: int
    """Events of journals that are not live yet."""
    newest_event_id: int
    """The greatest id of an event, -1 for none."""
    reserved: int
    """No id from this one on was given out."""


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True):
    """A backup: what it holds at its end, and where the table of its files is."""

    format_version: int = FORMAT_VERSION
    number: int
    """Counts the backups of a target, with gaps."""
    began_ms: int
    moment_ms: int
    """All that was acknowledged before is in the backup …"""
    moment_end_ms: int
    """… and nothing that was acknowledged after."""
    ended_ms: int
    host: str
    database: str
    writer: str
    """Of the setting `repository.writer`."""
    is_store_remote: bool
    areas: list[Area]
    ends: list[WriterEnd]
    flowfiles: int
    """FlowFiles in queues."""
    files: int
    bytes: int
    """Of all files."""
    bytes_new: int
    """Of the objects that this backup added to the target."""
    table_bytes: int
    table_sha256: str
    missing: list[str]
    """Files that the catalogs list and that were not there."""
    damaged: list[str]
    """Files whose bytes are not those that the catalogs state."""
    secrets_left_out: list[str]
    """Settings whose values are not in the backup."""

    def area(self, name: str) -> str:
        """Return the place of an area, as the setting has it."""
        return next((area.place for area in self.areas if area.name == name), "")


_DECODER = msgspec.json.Decoder(BackupManifest)


def encode_manifest(manifest: BackupManifest) -> bytes:
    """Return the bytes of a manifest."""
    return with_checksum(msgspec.json.encode(manifest))


def decode_manifest(data: bytes, where: object) -> BackupManifest:
    """Return a manifest.

    Raises:
        CorruptionError: other bytes than the checksum states.
        FormatVersionError: a newer custody wrote it.
    """
    if not has_right_checksum(data):
        raise CorruptionError(f"{where}: expected the manifest of a backup with its checksum, got other bytes.")
    try:
        version = msgspec.json.decode(data, type=dict)["format_version"]
        if version != FORMAT_VERSION:
            raise FormatVersionError(
                f"{where}: expected a manifest of version {FORMAT_VERSION}, got {version}. A newer custody wrote it."
            )
        return _DECODER.decode(data)
    except (msgspec.DecodeError, KeyError) as error:
        raise CorruptionError(f"{where}: expected the manifest of a backup: {error}.") from error


def encode_table(files: Iterable[BackupFile]) -> bytes:
    """Return the bytes of the table of a backup's files, sorted by path."""
    rows = sorted(files, key=lambda file: file.path)
    columns = {
        "path": [row.path for row in rows],
        "size": [row.size for row in rows],
        "modified_ms": [row.modified_ms for row in rows],
        "sha256": [row.sha256 for row in rows],
        "objects": [list(row.objects) for row in rows],
        "offset": [row.offset for row in rows],
    }
    sink = io.BytesIO()
    pq.write_table(pa.table(columns, TABLE_SCHEMA), sink, compression="zstd", write_statistics=False)
    return sink.getvalue()


def decode_table(data: bytes, where: object) -> list[BackupFile]:
    """Return the rows of a table; raises CorruptionError."""
    try:
        table = pq.read_table(pa.BufferReader(data), use_threads=False)
        if not table.schema.equals(TABLE_SCHEMA):
            raise CorruptionError(f"{where}: expected the columns of a backup's table, got {table.schema.names}.")
        columns = [table.column(name).to_pylist() for name in TABLE_SCHEMA.names]
    except pa.ArrowException as error:
        raise CorruptionError(f"{where}: expected the table of a backup: {error}.") from error
    rows: Sequence[tuple[str, int, int, bytes, list[bytes], int]] = list(zip(*columns, strict=True))
    return [
        BackupFile(path, size, modified_ms, sha256, tuple(objects), offset)
        for path, size, modified_ms, sha256, objects, offset in rows
    ]


def digest_text(data: bytes) -> str:
    """Return the SHA-256 of some bytes, hexadecimal."""
    return hashlib.sha256(data).hexdigest()
