"""The writer of a packed shard: tables of events become its file, and the manifest.

Each field is sorted and written as a whole. Memory holds the values of all fields up to a bound
(`custody.index.collecting`), and the lists of one field. Docs: docs/formats/packed-shard.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pyarrow as pa

from custody.index.bit_packing import WORD_BYTES, padded
from custody.index.collecting import NUMBERS, Collected, Numbers, SegmentFiles, SpillBuffer, collect
from custody.index.fields import ABSENT, POINTER_COLUMN, IndexedFields
from custody.index.inverted_field import invert
from custody.index.manifest import Description, Manifest, PackedFile, Zones
from custody.index.number_columns import zones
from custody.index.packed_dictionary import PackedDictionaryWriter
from custody.index.packed_numbers import encoded_numbers
from custody.index.paged_file import PagedFileWriter
from custody.index.term_filter import filter_bytes
from custody.vfs import FileSystem

SEGMENT = "packed"
"""How the name of its file begins."""


def write_packed(
    fs: FileSystem, folder: Path, tables: Iterable[pa.Table], indexed: IndexedFields, memory_bytes: int
) -> Manifest:
    """Write the events of some tables, which come in the order of their ids, into an empty folder.

    Durability: on return the content of the files survives power loss; their names when the folder is synced.
    """
    with closing(SpillBuffer(fs, folder, memory_bytes)) as runs, ExitStack() as opened:
        collected = collect(runs, tables, indexed)
        files = SegmentFiles(fs, folder, SEGMENT)
        file = opened.enter_context(closing(PagedFileWriter(fs, folder / f"{SEGMENT}.data")))
        # Reversed already: the first is the newest, so the ids go down with the document number.
        event_ids = collected.column(POINTER_COLUMN)
        columns, bounds, absent = _write_numbers(file, collected, event_ids)
        dictionary = _write_terms(file, runs, indexed, collected.rows)
        filter_place, term_filter = file.size, filter_bytes(dictionary.hashes())
        file.write(term_filter)
        # What is read eight bytes at a time may begin in the last ones.
        file.write(bytes(WORD_BYTES))
        files.add(file)
    packed = PackedFile(
        fields=dictionary.fields, columns=columns, filter_place=filter_place, filter_bytes=len(term_filter)
    )
    description = Description(
        documents=collected.rows,
        first_event_id=int(event_ids[-1]) if len(event_ids) else 0,
        last_event_id=int(event_ids[0]) if len(event_ids) else -1,
        segment=files.segment,
        layout="packed",
        attributes=indexed.attributes,
        standard=indexed.standard,
        ranges=indexed.ranges,
        fields={name: field.number for name, field in dictionary.fields.items()},
        terms=sum(field.terms for field in dictionary.fields.values()),
        packed=packed,
        absent=absent,
        files=tuple(files.files),
        cut=collected.cut,
    )
    return Manifest(description=description, checksums=np.array(files.checksums, np.uint32), zones=bounds)


def _write_numbers(
    file: PagedFileWriter, collected: Collected, event_ids: Numbers
) -> tuple[dict[str, int], dict[str, Zones], dict[str, int]]:
    """Write all number columns; return where each begins, and of all but the ids their zones and absent numbers."""
    places: dict[str, int] = {}
    bounds: dict[str, Zones] = {}
    absent: dict[str, int] = {}
    for name in (POINTER_COLUMN, *NUMBERS):
        column = event_ids if name == POINTER_COLUMN else collected.column(name)
        if name != POINTER_COLUMN:
            bounds[name], absent[name] = zones(column), int((column == ABSENT).sum())
        places[name] = file.size
        file.write(padded(encoded_numbers(column)))
    return places, bounds, absent


def _write_terms(
    file: PagedFileWriter, runs: SpillBuffer, indexed: IndexedFields, documents: int
) -> PackedDictionaryWriter:
    """Write terms, lists and places of words field by field, in the order of the names of the fields."""
    dictionary = PackedDictionaryWriter(documents)
    # One field after the other, and each is dropped when it is written: memory holds the lists of one field.
    for name in sorted(searched.name for searched in indexed.searched):
        if values := runs.take(name):
            for piece in dictionary.add(name, invert(values, documents), file.size):
                file.write(piece)
    return dictionary
