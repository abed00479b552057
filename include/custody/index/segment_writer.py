"""The writer of a shard that Whoosh opens: tables of events become the files of one Whoosh segment, and the manifest.

Each field is sorted and written as a whole. Memory holds the values of all fields up to a bound
(`custody.index.collecting`), and the posting lists of one field.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pyarrow as pa

from custody.index.collecting import NUMBERS, Numbers, SegmentFiles, SpillBuffer, collect
from custody.index.dictionary import HEADER, DictionaryWriter
from custody.index.fields import ABSENT, NUMBER_STEP_BITS, POINTER_COLUMN, IndexedFields
from custody.index.inverted_field import InvertedField, invert, invert_numbers
from custody.index.manifest import Description, Manifest, Zones
from custody.index.number_columns import empty_stored, plain_column, sortable_column, zones
from custody.index.paged_file import PagedFileWriter
from custody.index.term_filter import SUFFIX, filter_bytes
from custody.index.whoosh_writer import TOC_NAME, segment_name, toc_bytes
from custody.vfs import FileSystem


def write_segment(
    fs: FileSystem,
    folder: Path,
    tables: Iterable[pa.Table],
    indexed: IndexedFields,
    memory_bytes: int,
) -> Manifest:
    """Write the events of some tables, which come in the order of their ids, into an empty folder.

    Durability: on return the content of the files survives power loss; their names when the folder is synced.
    """
    with closing(SpillBuffer(fs, folder, memory_bytes)) as runs:
        collected = collect(runs, tables, indexed)
        # Reversed already: the first is the newest, so the ids go down with the document number.
        event_ids = collected.column(POINTER_COLUMN)
        first, last = (int(event_ids[-1]), int(event_ids[0])) if len(event_ids) else (0, -1)
        files = SegmentFiles(fs, folder, segment_name(max(first, 0)))
        bounds: dict[str, Zones] = {}
        absent: dict[str, int] = {}
        with_terms: dict[str, Numbers] = {}
        for name in NUMBERS:
            column = collected.column(name)
            bounds[name], absent[name] = zones(column), int((column == ABSENT).sum())
            data = sortable_column(column) if name in indexed.ranges else plain_column(column)
            files.write(f"{files.segment}.{name}.col", [data])
            if name in indexed.ranges:
                with_terms[name] = column
        files.write(f"{files.segment}.{POINTER_COLUMN}.col", [plain_column(event_ids)])
        files.write(f"{files.segment}._stored.col", [empty_stored(collected.rows)])
        dictionary, terms, code = _write_terms(files, runs, with_terms, indexed, collected.rows)
    files.write(TOC_NAME, [toc_bytes(indexed.schema, max(first, 0), collected.rows)])
    description = Description(
        documents=collected.rows,
        first_event_id=first,
        last_event_id=last,
        segment=files.segment,
        layout="bulk",
        attributes=indexed.attributes,
        standard=indexed.standard,
        ranges=indexed.ranges,
        fields=dictionary.fields,
        terms=terms,
        order_type=code,
        absent=absent,
        files=tuple(files.files),
        cut=collected.cut,
    )
    return Manifest(description=description, checksums=np.array(files.checksums, np.uint32), zones=bounds)


def _write_terms(
    files: SegmentFiles, runs: SpillBuffer, with_terms: dict[str, Numbers], indexed: IndexedFields, documents: int
) -> tuple[DictionaryWriter, int, str]:
    """Write dictionary and postings field by field, in the order of their names, as Whoosh does."""
    names = sorted([*(searched.name for searched in indexed.searched), *with_terms])
    dictionary = DictionaryWriter()
    with ExitStack() as opened:
        terms = opened.enter_context(closing(PagedFileWriter(files.fs, files.folder / f"{files.segment}.trm")))
        postings = opened.enter_context(closing(PagedFileWriter(files.fs, files.folder / f"{files.segment}.pst")))
        terms.write(HEADER)
        # One field after the other, and each is dropped when it is written: memory holds the lists of one field.
        for name in names:
            inverted = _terms(runs, with_terms, name, documents)
            if inverted is not None:
                records, blocks = dictionary.add(name, inverted)
                terms.write(records)
                postings.write(blocks)
        end, count, code = dictionary.finish()
        terms.write(end)
        files.add(terms)
        files.add(postings)
    files.write(f"{files.segment}.{SUFFIX}", [filter_bytes(dictionary.hashes())])
    return dictionary, count, code


def _terms(runs: SpillBuffer, with_terms: dict[str, Numbers], name: str, documents: int) -> InvertedField | None:
    """Return the terms of a field, None when no document has one."""
    if name not in with_terms:
        collected = runs.take(name)
        return invert(collected, documents) if collected else None
    column = with_terms.pop(name)
    having = np.flatnonzero(column != ABSENT)
    return invert_numbers(column[having], having.astype(np.uint32), NUMBER_STEP_BITS) if len(having) else None
