"""Merging sealed groups: their events in the order of ids, in bounded memory.

The ids of a record are consecutive, and no two records share one. So the heads of the records alone put all events in
order: the files are mapped, their records sorted by first id, and decoded a chunk at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from custody.journal.encoding import EventRecord, decode
from custody.journal.groups import Group
from custody.journal.journal_file import JournalDamage, JournalFile
from custody.model import require_keeping
from custody.vfs import FileSystem


class MergeReader:
    """The events of sealed groups of one writer, by id.

    Construction reads the files once and checks every record, but decodes none.

    Args:
        fs: where the journals lie.
        groups: sealed groups.

    Raises:
        FormatVersionError: a journal is of a version that this code does not know, or has columns that it would lose.
        StorageError: a journal cannot be read.
    """

    def __init__(self, fs: FileSystem, groups: Sequence[Group]) -> None:
        self._journals: list[JournalFile] = []
        for path in (path for group in groups for path in group.sealed):
            journal = JournalFile.read(fs, path)
            if journal.header is not None:
                # Before anything is merged: a log of the present schema would drop columns of a newer custody.
                require_keeping(journal.header.schema_version, path)
            self._journals.append(journal)
            # The check touched every page of the file; without this, memory would grow with the number of journals.
            self._journals[-1].release_memory()
        records = [record for journal in self._journals for record in journal.records]
        self._records = sorted(records, key=lambda record: record.first_event_id)
        self.rows = sum(record.count for record in records)
        self.damage: tuple[JournalDamage, ...] = tuple(
            damage for journal in self._journals for damage in journal.damage
        )
        """What cannot be read of them."""

    @property
    def first_event_id(self) -> int | None:
        """The least id; None when there is no event at all."""
        return self._records[0].first_event_id if self._records else None

    @property
    def last_event_id(self) -> int | None:
        """The greatest id; None when there is no event at all."""
        return self._records[-1].last_event_id if self._records else None

    def chunks(self, bytes_max: int) -> Iterator[pa.Table]:
        """Yield all events in the order of ids, as tables of EVENT_SCHEMA, none of them empty.

        A table is made of records of at most `bytes_max` bytes together, or of a single one.

        Raises:
            CorruptionError: a record is whole but does not hold what its head says.
        """
        chunk: list[EventRecord] = []
        size = 0
        for record in self._records:
            if chunk and size + record.bytes > bytes_max:
                yield self._decoded(chunk)
                chunk, size = [], 0
            chunk.append(record)
            size += record.bytes
        if chunk:
            yield self._decoded(chunk)

    def _decoded(self, chunk: Sequence[EventRecord]) -> pa.Table:
        table = decode(chunk)
        for journal in self._journals:
            journal.release_memory()
        return table
