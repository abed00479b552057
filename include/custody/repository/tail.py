"""The live tail: the events of journals that are not live yet, decoded once.

A sealed journal never changes, so what was decoded of it is kept. An open one grows at its end only, so what follows
the part that is known is decoded and added to it. What is damaged is read anew each time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from custody.errors import CorruptionError
from custody.eventlog import BoundedCache, Damage, OnDamage
from custody.format.framing import Frame, frames
from custody.journal import Group, JournalFile
from custody.journal.file import TornTail
from custody.model import EVENT_SCHEMA
from custody.repository.found import tell_newer
from custody.vfs import FileSystem
from custody.vfs.wrapping import WrappingFileSystem

_PARTS_MAX = 64
_PREAMBLE_BYTES = 8
_HEAD_RECORDS = 2  # the header and the schema


@dataclass(frozen=True, slots=True)
class Decoded:
    """The events of a journal, or of a sealed group in the order of their ids, and what is damaged in it."""

    table: pa.Table
    damage: tuple[Damage, ...] = ()
    newer: tuple[tuple[int, tuple[str, ...]], ...] = ()
    """Schema versions of a newer custody, with the columns that it added."""
    torn: tuple[Damage, ...] = ()
    """The ends of open journals: of a live writer what it writes in this moment, of a dead one what may be lost."""


@dataclass(frozen=True, slots=True)
class _Grown:
    """An open journal as it was: its size, how much of that was whole, and the events of that part."""

    size: int
    intact_bytes: int
    decoded: Decoded


class TailCache:
    """Decoded journals, within a bound of bytes."""

    def __init__(self, kept: BoundedCache[Hashable, object]) -> None:
        self._kept = kept

    def read(
        self,
        fs: FileSystem,
        groups: Sequence[Group],
        on_damage: OnDamage,
        is_writer_live: Callable[[], bool],
    ) -> pa.Table:
        """Return the events of some groups, which are given by first event id, in the order of their ids.

        The end of an open journal that is no whole record is told only when its writer is dead.

        Raises:
            StorageError: a journal is gone: it was sealed or swept in this moment.
        """
        tables = [EVENT_SCHEMA.empty_table()]
        for group in groups:
            decoded = self._sealed_group(fs, group) if group.is_sealed else self._open_group(fs, group)
            for damage in decoded.damage:
                on_damage(damage)
            for version, columns in decoded.newer:
                tell_newer(on_damage, version, columns)
            for damage in decoded.torn if decoded.torn and not is_writer_live() else ():
                on_damage(damage)
            tables.append(decoded.table)
        return pa.concat_tables(tables)

    def _sealed_group(self, fs: FileSystem, group: Group) -> Decoded:
        found = self._kept.get(group.sealed)
        if isinstance(found, Decoded):
            return found
        decoded = _merged([self._sealed(fs, path) for path in group.sealed])
        if decoded.damage:
            return decoded  # looked at anew the next time: it may be whole again
        self._kept.put(group.sealed, decoded, decoded.table.nbytes)
        for path in group.sealed:
            if len(group.sealed) > 1:
                self._kept.drop((path,))
            self._kept.drop((path.with_suffix(".journal"),))
        return decoded

    def _open_group(self, fs: FileSystem, group: Group) -> Decoded:
        sealed = [self._sealed(fs, path) for path in group.sealed]
        return _merged(sealed + [self._open(fs, path) for path in group.open])

    def _sealed(self, fs: FileSystem, path: Path) -> Decoded:
        found = self._kept.get((path,))
        if not isinstance(found, Decoded):
            found, _ = _decode(fs, path)
            if not found.damage:
                self._kept.put((path,), found, found.table.nbytes)
        return found

    def _open(self, fs: FileSystem, path: Path) -> Decoded:
        kept = self._kept.get((path,))
        if isinstance(kept, _Grown):
            if kept.intact_bytes == kept.size == fs.size(path):
                return kept.decoded
            grown = _grow(path, fs.read(path), kept)
            if grown is not None:
                self._kept.put((path,), grown, grown.decoded.table.nbytes)
                return grown.decoded
        size = fs.size(path)
        decoded, intact_bytes = _decode(fs, path)
        if not decoded.damage and intact_bytes:
            # The journal may have grown since its size was taken: then it is looked at again, which does no harm.
            self._kept.put((path,), _Grown(size, intact_bytes, decoded), decoded.table.nbytes)
        return decoded


def _decode(fs: FileSystem, path: Path, left_out: int = 0) -> tuple[Decoded, int]:
    """Return the events of a journal, of which so many bytes are left out, and how many of its bytes are whole."""
    try:
        journal = JournalFile.read(fs, path)
        table = journal.table()
    except CorruptionError as error:
        return Decoded(EVENT_SCHEMA.empty_table(), (Damage(path, None, None, None, str(error)),)), 0
    problems = tuple(Damage(path, None, None, None, str(item)) for item in journal.damage)
    unknown = journal.unknown_columns
    newer = ((journal.header.schema_version, unknown),) if journal.header is not None and unknown else ()
    torn = (_doubt(path, journal.torn, left_out),) if journal.torn is not None else ()
    return Decoded(table, problems, newer, torn), journal.intact_bytes


def _doubt(path: Path, torn: TornTail, left_out: int) -> Damage:
    text = f"{path} @{torn.offset + left_out}: its writer is dead and left {torn}. custody recover puts them aside."
    return Damage(path, None, None, None, text, is_doubt=True)


class _Bytes(WrappingFileSystem):
    """A file system that has other bytes under one name."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, path: Path) -> bytes:
        """Return the bytes."""
        return self._data

    def view(self, path: Path) -> memoryview:
        """Return the bytes."""
        return memoryview(self._data)

    def size(self, path: Path) -> int:
        """Return how many there are."""
        return len(self._data)


def _grow(path: Path, data: bytes, kept: _Grown) -> _Grown | None:
    """Add what came behind the part that is known; None when the file has to be read as a whole."""
    if len(data) < kept.intact_bytes:
        return None
    head = _head_bytes(data)
    if not 0 < head <= kept.intact_bytes:
        return None
    # The new records, behind the header and the schema that they need, are a journal too.
    spliced = _Bytes(data[:head] + data[kept.intact_bytes :])
    decoded, intact_bytes = _decode(spliced, path, kept.intact_bytes - head)
    if decoded.damage or intact_bytes < head:
        return None
    table = pa.concat_tables([kept.decoded.table, decoded.table])
    if table.column(0).num_chunks > _PARTS_MAX:
        table = table.combine_chunks()
    return _Grown(
        len(data), kept.intact_bytes + intact_bytes - head, replace(kept.decoded, table=table, torn=decoded.torn)
    )


def _head_bytes(data: bytes) -> int:
    """Return where the first record behind header and schema begins, 0 when these are not whole."""
    found = list(islice(frames(data, _PREAMBLE_BYTES), _HEAD_RECORDS))
    last = found[-1] if len(found) == _HEAD_RECORDS else None
    return last.end if isinstance(last, Frame) and isinstance(found[0], Frame) else 0


def _merged(parts: list[Decoded]) -> Decoded:
    """Return the events of several journals in the order of their ids."""
    table = pa.concat_tables([EVENT_SCHEMA.empty_table(), *(part.table for part in parts)])
    ids = table.column("event_id").to_numpy()
    if len(ids) and (np.diff(ids) < 0).any():
        table = table.sort_by("event_id")
    newer = dict.fromkeys(found for part in parts for found in part.newer)
    damage = tuple(damage for part in parts for damage in part.damage)
    return Decoded(table, damage, tuple(newer), tuple(damage for part in parts for damage in part.torn))
