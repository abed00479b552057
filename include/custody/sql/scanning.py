"""The events as one data set of columns: all logs, checksums of pages verified, and the tail, without the buried."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from custody.sql.given import Given, LogPart
from custody.vfs.mapped import map_file

_TIME = pa.timestamp("ms", tz="UTC")
FORMAT = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
)


class GoneError(Exception):
    """The file of a log is not there any more; the text is its path."""


def events_of(given: Given) -> ds.Dataset:
    """Return the events that may be given out; filters and projections of a scan reach the files.

    Raises:
        GoneError: a log expired since it was looked up.
    """
    schema = given.tail.schema
    tail = ds.dataset(given.tail)
    fragments = [_fragment(part, schema) for part in given.logs]
    stored = ds.FileSystemDataset(fragments, schema, FORMAT) if fragments else None
    buried = [_is_buried(name.as_py(), given.buried) for name in pc.unique(given.buried.column("writer"))]
    if stored is None:
        return tail
    events = ds.dataset([stored, tail])
    for one in buried:
        events = events.filter(~one)
    return events


def _is_buried(writer: str, buried: pa.Table) -> pc.Expression:
    ids = buried.filter(pc.equal(buried.column("writer"), writer)).column("event_id").combine_chunks()
    low, high = pc.min_max(ids).values()
    # The bounds let a log whose ids are outside of them be scanned without a look at each id.
    return (
        (ds.field("writer") == writer)
        & (ds.field("event_id") >= low)
        & (ds.field("event_id") <= high)
        & ds.field("event_id").isin(ids)
    )


def _fragment(part: LogPart, schema: pa.Schema) -> ds.Fragment:
    """Return a log as a part of the data set, and say what all its events have in common."""
    common = (
        (ds.field("writer") == part.writer)
        & (ds.field("event_id") >= part.first_event_id)
        & (ds.field("event_id") <= part.last_event_id)
        & (ds.field("event_time") >= pa.scalar(part.first_event_time_ms, _TIME))
        & (ds.field("event_time") <= pa.scalar(part.last_event_time_ms, _TIME))
    )
    for name, value in part.lacks.items():
        common &= ds.field(name) == pa.scalar(value, schema.field(name).type)
    source = pa.BufferReader(pa.py_buffer(_mapped(part)))
    return FORMAT.make_fragment(source, partition_expression=common, row_groups=part.blocks)


def _mapped(part: LogPart) -> memoryview | mmap.mmap:
    """Return a log, mapped; one whose footer is damaged is copied, with the footer that it should have."""
    path = Path(os.fsdecode(part.path))
    try:
        data = map_file(path)
    except FileNotFoundError as error:
        raise GoneError(str(path)) from error
    if part.footer is None:
        return data
    start, footer = part.footer
    whole = mmap.mmap(-1, start + len(footer))
    whole[:start] = data[:start]
    whole[start:] = footer
    return whole
