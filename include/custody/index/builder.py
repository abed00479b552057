"""Building a shard: one immutable Whoosh index of the events of one log, newest event first.

The shard is built in a folder of its own attempt, synced (Whoosh's commit never syncs) and published by renaming the
folder, so that a folder with a shard's name is always a whole shard.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from whoosh import index
from whoosh.codec.whoosh3 import W3Codec
from whoosh.writing import IndexWriter

from custody.index.fields import (
    NUMBER_FIELDS,
    POINTER_COLUMN,
    TEXT_FIELD,
    TIME_FIELDS,
    identifier_fields,
    term,
    whoosh_schema,
)
from custody.vfs import FileSystem

ATTEMPT_PREFIX = "building-"
_WRITER_MEGABYTES = 4096  # below the working set Whoosh pickles every posting to run files


@dataclass(frozen=True, slots=True)
class BuiltShard:
    """A published shard."""

    path: Path
    documents: int
    size_bytes: int


def build_shard(fs: FileSystem, path: Path, table: pa.Table, attributes: Sequence[str]) -> BuiltShard:
    """Index the events of `table` and publish the shard's folder; one that exists already is kept.

    Durability: on return the shard survives power loss.
    """
    if not fs.exists(path):
        fs.make_directory(path.parent)
        attempt = path.with_name(f"{ATTEMPT_PREFIX}{path.name}-{uuid.uuid4().hex}")
        fs.make_directory(attempt)
        try:
            _write_index(attempt, table, attributes)
            for name in fs.list(attempt):
                fs.sync_file(attempt / name)
            fs.sync_directory(attempt)
            fs.rename(attempt, path)
        except BaseException:
            fs.remove_tree(attempt)
            raise
    # Also for a shard that is there already: who built it may have died before this.
    fs.sync_directory(path.parent)
    return BuiltShard(path, table.num_rows, sum(fs.size(path / name) for name in fs.list(path)))


def _write_index(folder: Path, table: pa.Table, attributes: Sequence[str]) -> None:
    shard = index.create_in(str(folder), whoosh_schema(attributes))
    codec = W3Codec(blocklimit=1024, compression=0)
    # No field is scored, so nobody reads field lengths; without this every posting costs a stat() call.
    codec.length_stats = False
    writer = shard.writer(codec=codec, limitmb=_WRITER_MEGABYTES)
    try:
        _add_documents(writer, _newest_first(table), attributes)
    except BaseException:
        writer.cancel()
        raise
    writer.commit(merge=False)


def _newest_first(table: pa.Table) -> pa.Table:
    """Reverse the order, so that any scan by document number meets the newest event first."""
    return table.take(pa.array(np.arange(table.num_rows - 1, -1, -1)))


def _add_documents(writer: IndexWriter, table: pa.Table, attributes: Sequence[str]) -> None:
    names: list[str] = []
    columns: list[list[object]] = []
    for field in identifier_fields(attributes):
        names.append(field.name)
        # Whoosh takes a list of terms as it is, without the analyzer: lower-casing is done here.
        columns.append([[term(value) for value in values] or None for values in field.terms(table)])
    names.append(TEXT_FIELD.name)
    columns.append(table.column(TEXT_FIELD.name).to_pylist())
    for name in (*TIME_FIELDS, *NUMBER_FIELDS, POINTER_COLUMN):
        names.append(name)
        columns.append(table.column(name).cast(pa.int64()).to_pylist())
    for row in zip(*columns, strict=True):
        writer.add_document(**{name: value for name, value in zip(names, row, strict=True) if value is not None})
