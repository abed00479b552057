"""Whoosh's own side of a shard: which Whoosh the bulk writer knows, its table of contents, and its own slow writer.

The bulk writer makes the bytes that one release of Whoosh reads. Another release may read other bytes: then Whoosh's
own writer builds the shard, document by document, in a real folder. The tests compare the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import whoosh
from whoosh import fields, index
from whoosh.codec import whoosh3
from whoosh.codec.whoosh3 import W3Codec, W3Segment
from whoosh.filedb.filestore import RamStorage
from whoosh.index import TOC
from whoosh.writing import IndexWriter

from custody.index.arrays import to_arrow
from custody.index.fields import (
    ABSENT,
    NUMBER_FIELDS,
    POINTER_COLUMN,
    TEXT_FIELD,
    TIME_FIELDS,
    IndexedFields,
    number_values,
)
from custody.index.manifest import Description, Manifest
from custody.index.number_columns import zones
from custody.index.paged_file import ShardFile, checksums_of
from custody.vfs import FileSystem

INDEX_NAME = "MAIN"
TOC_NAME = f"_{INDEX_NAME}_1.toc"
# The facts below are what the bulk writer's bytes rely on; a new release needs the tests that compare both writers.
RELEASE = (2, 7, 5)
_TABLE_OF_CONTENTS = -111
_TERM_INFO = "!BfIBBfII"
_WRITER_MEGABYTES = 4096  # below the working set Whoosh pickles every posting to run files
_NUMBERS = (*TIME_FIELDS, *NUMBER_FIELDS)


def whoosh_difference() -> str | None:
    """Return how the installed Whoosh differs from the one that segments are written for; None when it does not."""
    facts = {
        "release": (tuple(whoosh.__version__), RELEASE),
        "table of contents": (index._CURRENT_TOC_VERSION, _TABLE_OF_CONTENTS),
        "mark of postings": (whoosh3.WHOOSH3_HEADER_MAGIC, b"W3Bl"),
        "term information": (whoosh3.W3TermInfo._struct.format, _TERM_INFO),
    }
    differences = [
        f"{what} {got!r} instead of {expected!r}" for what, (got, expected) in facts.items() if got != expected
    ]
    return f"Whoosh has {', '.join(differences)}" if differences else None


def segment_name(first_event_id: int) -> str:
    """Return the prefix of the names of a segment's files, which follows from the first event id."""
    return f"{INDEX_NAME}_{first_event_id:020d}"


def toc_bytes(schema: fields.Schema, first_event_id: int, documents: int) -> bytes:
    """Return the bytes of the table of contents."""
    segment = W3Segment(W3Codec(), INDEX_NAME, doccount=documents, segid=f"{first_event_id:020d}")
    # No field is scored, so no lengths are kept; Whoosh wants the attribute to be there.
    segment._fieldlengths = {}
    storage = RamStorage()
    TOC(schema, [segment], 1).write(storage, INDEX_NAME)
    data: bytes = storage.files[TOC_NAME]
    return data


def write_stock_segment(fs: FileSystem, folder: Path, tables: Iterable[pa.Table], indexed: IndexedFields) -> Manifest:
    """Write the events of some tables into an empty folder; all of them are in memory at once.

    Durability: on return the content of the files survives power loss; their names when the folder is synced.
    """
    table = _newest_first(tables)
    shard = index.create_in(str(folder), indexed.schema)
    codec = W3Codec(blocklimit=1024, compression=0)
    # No field is scored, so nobody reads field lengths; without this every posting costs a stat() call.
    codec.length_stats = False
    writer = shard.writer(codec=codec, limitmb=_WRITER_MEGABYTES, compound=False)
    try:
        cut = _add_documents(writer, table, indexed)
    # Cancelling releases Whoosh's lock and its temporary files, also when the process is asked to stop.
    except BaseException:
        writer.cancel()
        raise
    # One segment is all there is, and merging would write it again.
    writer.commit(merge=False)
    return _described(fs, folder, table, indexed, cut)


def _newest_first(tables: Iterable[pa.Table]) -> pa.Table:
    """Reverse the order, so that any scan by document number meets the newest event first."""
    table = pa.concat_tables(tables)
    return table.take(to_arrow(np.arange(table.num_rows - 1, -1, -1)))


def _add_documents(writer: IndexWriter, table: pa.Table, indexed: IndexedFields) -> dict[str, int]:
    """Add the events; return the fields with cut terms, as `Description.cut` has them."""
    cut: dict[str, int] = {}
    names: list[str] = []
    columns: list[list[object]] = []
    for field in indexed.searched:
        names.append(field.name)
        if field is TEXT_FIELD:
            columns.append(table.column(field.name).to_pylist())
        else:
            # Whoosh takes a list of terms as it is, without the analyzer: they are lower-cased already.
            values = field.values(table)
            if values.cut is not None:
                cut[field.name] = values.cut
            columns.append([terms or None for terms in values.lists(table.num_rows)])
    for name in (*_NUMBERS, POINTER_COLUMN):
        names.append(name)
        columns.append([None if number == ABSENT else number for number in number_values(table, name).tolist()])
    for row in zip(*columns, strict=True):
        writer.add_document(**{name: value for name, value in zip(names, row, strict=True) if value is not None})
    return cut


def _described(fs: FileSystem, folder: Path, table: pa.Table, indexed: IndexedFields, cut: dict[str, int]) -> Manifest:
    """Return the manifest of what Whoosh has just written here; makes the content of its files durable."""
    [segment] = index.open_dir(str(folder), readonly=True)._segments()
    with index.open_dir(str(folder), readonly=True).reader() as reader:
        terms = reader._terms._tindex
        extras = terms.extras
    event_ids = table.column(POINTER_COLUMN).to_pylist()
    columns = {name: number_values(table, name) for name in _NUMBERS}
    files, checksums = [], []
    # Whoosh syncs nothing: each file is made durable and read again for its checksums.
    for name in fs.list(folder):
        fs.sync_file(folder / name)
        data = fs.view(folder / name)
        files.append(ShardFile(name=name, size=len(data)))
        checksums += checksums_of(data)
    description = Description(
        documents=table.num_rows,
        first_event_id=event_ids[-1] if event_ids else 0,
        last_event_id=event_ids[0] if event_ids else -1,
        segment=segment.segment_id(),
        layout="stock",
        attributes=indexed.attributes,
        standard=indexed.standard,
        ranges=indexed.ranges,
        fields=dict(extras["fieldmap"]),
        terms=extras["indexlen"],
        order_type=extras["indextype"],
        absent={name: int((column == ABSENT).sum()) for name, column in columns.items()},
        files=tuple(files),
        cut=cut,
    )
    bounds = {name: zones(column) for name, column in columns.items()}
    return Manifest(description=description, checksums=np.array(checksums, np.uint32), zones=bounds)
