"""The provenance database: answers "where was this content?" with the earliest revision or release that holds it.

A query also gives its origin, and on request all other revisions. It costs a page of four or five tables. Many queries
at once are looked up together, table by table: the pages that they need of a file are decoded in one call, each once.

The service of Software Heritage answers with any revision. This one always answers with the earliest by the author's
date, of several of one date with the one of the smallest id, and with the origin of the smallest id that leads to it.
Answers as JSON have one shape for the command line and the services, documented in docs/swh.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from custody.catalog import CatalogState
from custody.errors import InvalidInputError, NotFoundError
from custody.format.names import name_as_text
from custody.swh.pages import CACHE_BYTES, PageCache
from custody.swh.swhid import ObjectType, Swhid
from custody.swh.table_file import IndexedTable, StoredFile
from custody.swh.tables import (
    CONTENTS_IN_DIRECTORIES,
    CONTENTS_IN_REVISIONS,
    DIRECTORIES_IN_REVISIONS,
    EARLIEST,
    NODE_IDS,
    NODES,
    ORIGINS,
    REVISIONS_IN_ORIGINS,
    TABLES,
    hash_keys,
)
from custody.vfs import FileSystem

if TYPE_CHECKING:
    from custody.catalog.data_files import DataFiles
    from custody.store.ranged_file import RangedFile

# Bounds the memory of one question: a common content is in very many directories.
_DIRECTORIES_AT_ONCE = 4096
_PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
_WHOLE_INDEX_BYTES = 1 << 20
"""Smaller indexes come from an object store whole: by ranges they would take several requests, one after the other."""
_Best = dict[tuple[int, int], tuple[int, bytes]]
"""Of dates and revisions, the best path: how many names, and the path."""


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """The first place of a content or directory; the last three fields are None if no dated revision holds it."""

    swhid: Swhid
    is_known: bool
    """Whether the graph has such a node."""
    anchor: Swhid | None = None
    """The earliest revision or release."""
    author_date: int | None = None
    """Its date, in seconds since the epoch."""
    origin: str | None = None
    """The URL of an origin that leads to it."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A revision or release that holds a content, its date in seconds since the epoch, and a path to the content."""

    anchor: Swhid
    author_date: int
    path: bytes
    origin: str | None


@dataclass(frozen=True, slots=True)
class CatalogFile:
    """A file of a table that the catalog lists, in an object store; a `StoredFile`."""

    files: DataFiles
    path: str
    size: int

    def ranged(self) -> RangedFile | None:
        """Return the file to be read by ranges, None where there is a copy of the whole."""
        return self.files.ranged(self.path, self.size, with_beside=False)

    def ranged_index(self) -> RangedFile | None:
        """Return the index to be read by ranges; None where it was fetched whole."""
        index = self.files.beside(self.path)
        size = None
        if not self.files.is_copied(index):
            # Its pieces, where another question fetched some, have the length of the whole: no request tells it.
            size = self.files.ranged_size(index)
            if size is None and (info := self.files.head(index)) is not None:
                size = info.size_bytes
        if size is not None and size > _WHOLE_INDEX_BYTES:
            return self.files.ranged(index, size)
        # What is here whole is compared with the catalog once a process.
        self.files.path(index)
        return None

    def forget_index(self) -> None:
        """Remove what is here of the index."""
        self.files.forget(self.files.beside(self.path))

    def fetch(self) -> Path:
        """Fetch file and index whole, unless the copies that are here are whole; return the copy's path."""
        return self.files.path(self.path)


class ProvenanceDatabase:
    """A database that is open, for any number of threads; files are opened when they are first needed, and stay open.

    Args:
        files: of each table the files, with their SHA-256 where the catalog tells it.
        cache_bytes: how much of what was decoded lately is kept in memory.
        stored: of files in an object store, how they are read.
    """

    def __init__(
        self,
        fs: FileSystem,
        files: Mapping[str, Mapping[Path, bytes | None]],
        cache_bytes: int = CACHE_BYTES,
        stored: Mapping[Path, StoredFile] = MappingProxyType({}),
    ) -> None:
        # One cache for all tables, so that one number bounds the memory of the database.
        cache = PageCache(cache_bytes)
        self._tables = {
            name: IndexedTable(fs, spec, files.get(name, {}), cache, stored) for name, spec in TABLES.items()
        }

    @classmethod
    def open(
        cls, fs: FileSystem, listed: DataFiles, state: CatalogState, cache_bytes: int = CACHE_BYTES
    ) -> ProvenanceDatabase:
        """Open the files that are live in a state of the database's catalog.

        Args:
            listed: the files of the catalog; those of an object store are read by ranges.
        """
        files: dict[str, dict[Path, bytes | None]] = {}
        stored: dict[Path, StoredFile] = {}
        for path, file in state.files.items():
            where = listed.where(path)
            files.setdefault(file.table, {})[where] = file.sha256
            if listed.copies is not None:
                stored[where] = CatalogFile(listed, path, file.size_bytes)
        return cls(fs, files, cache_bytes, stored)

    def check(self) -> None:
        """Open all indexes, so that no question has to wait for one.

        Raises:
            CorruptionError: the head of one is damaged, or it is not that of the file that the catalog lists.
        """
        for table in self._tables.values():
            table.files  # noqa: B018 - read by being asked for

    def whereis(self, swhid: Swhid) -> Whereabouts:
        """Return where a content or directory was first.

        Raises:
            NotFoundError: the graph has no such node.
            CorruptionError: a file of the database is damaged.
        """
        place = self.whereis_many([swhid])[0]
        if not place.is_known:
            raise NotFoundError(f"{swhid}: is not in the graph of this database.")
        return place

    def whereis_many(self, swhids: Sequence[Swhid]) -> list[Whereabouts]:
        """Return where each of some contents and directories was first, in the order of the questions."""
        ids = self._ids(swhids)
        earliest = self._tables[EARLIEST].rows(_keys(ids.values()))
        anchors = dict(zip(_values(earliest, "node"), _dated(earliest, "author_date", "revrel"), strict=True))
        names = self._names(revrel for _, revrel in anchors.values())
        origins = self._origins(revrel for _, revrel in anchors.values())
        answers = []
        for swhid in swhids:
            node = ids.get(swhid)
            if node is None or node not in anchors:
                answers.append(Whereabouts(swhid, is_known=node is not None))
            else:
                date, revrel = anchors[node]
                answers.append(Whereabouts(swhid, True, names[revrel], date, origins.get(revrel)))
        return answers

    def occurrences(self, swhid: Swhid, limit: int | None = None) -> list[Occurrence]:
        """Return the dated revisions and releases that hold a content, oldest first; with `limit`, the oldest ones.

        They are those that it is reached from without a frontier directory, and those of the frontier directories that
        it is in.

        Raises:
            InvalidInputError: it is no content; of others the database holds the earliest only.
            NotFoundError: the graph has no such node.
        """
        if swhid.type != ObjectType.CONTENT:
            raise InvalidInputError(f"{swhid}: expected a content: all revisions are kept of contents only.")
        node = self._ids([swhid]).get(swhid)
        if node is None:
            raise NotFoundError(f"{swhid}: is not in the graph of this database.")
        best: _Best = {}
        for batch in self._paths_to(node, limit):
            for key, path in batch:
                rank = (path.count(b"/"), path)
                best[key] = min(best.get(key, rank), rank)
            # One that is not among the oldest so far is not among the oldest in the end.
            best = {key: best[key] for key in sorted(best)[:limit]}
        names = self._names(revrel for _, revrel in best)
        origins = self._origins(revrel for _, revrel in best)
        return [
            Occurrence(names[revrel], date, path, origins.get(revrel)) for (date, revrel), (_, path) in best.items()
        ]

    def _paths_to(self, node: int, limit: int | None) -> Iterator[Iterable[tuple[tuple[int, int], bytes]]]:
        """Date, revision and path, a part at a time; for each directory the oldest, as for each content."""
        direct = self._tables[CONTENTS_IN_REVISIONS].rows(_keys([node]), first=limit)
        yield zip(_dated(direct, "revrel_author_date", "revrel"), direct.column("path").to_pylist(), strict=True)
        inside = self._tables[CONTENTS_IN_DIRECTORIES].rows(_keys([node]))
        for start in range(0, inside.num_rows, _DIRECTORIES_AT_ONCE):
            part = inside.slice(start, _DIRECTORIES_AT_ONCE)
            ends = dict(zip(_values(part, "dir"), part.column("path").to_pylist(), strict=True))
            columns = ["revrel", "revrel_author_date", "path"]
            through = self._tables[DIRECTORIES_IN_REVISIONS].rows(_keys(ends), columns, first=limit)
            paths = zip(_values(through, "dir"), through.column("path").to_pylist(), strict=True)
            whole = [path + ends[directory] for directory, path in paths]
            yield zip(_dated(through, "revrel_author_date", "revrel"), whole, strict=True)

    def _ids(self, swhids: Sequence[Swhid]) -> dict[Swhid, int]:
        """The ids of those that the graph has."""
        # Keys are only the first bits of a hash: the whole hash and the type decide which rows are meant.
        by_hash = {(swhid.type.value, swhid.sha1_git): swhid for swhid in swhids}
        hashes = pa.array([swhid.sha1_git for swhid in swhids], pa.binary(20))
        rows = self._tables[NODE_IDS].rows(hash_keys(hashes)) if swhids else None
        if rows is None:
            return {}
        columns = (rows.column(name).to_pylist() for name in ("type", "sha1_git", "id"))
        ids = {by_hash.get((kind, sha1_git)): node for kind, sha1_git, node in zip(*columns, strict=True)}
        return {swhid: node for swhid, node in ids.items() if swhid is not None}

    def _names(self, ids: Iterable[int]) -> dict[int, Swhid]:
        rows = self._tables[NODES].rows(_keys(ids))
        columns = (rows.column(name).to_pylist() for name in ("id", "type", "sha1_git"))
        return {node: Swhid(ObjectType(kind), sha1_git) for node, kind, sha1_git in zip(*columns, strict=True)}

    def _origins(self, ids: Iterable[int]) -> dict[int, str]:
        """The URL of the first origin of each revision or release that has one."""
        rows = self._tables[REVISIONS_IN_ORIGINS].rows(_keys(ids))
        # Backwards, so that the first row of each is the one that stays.
        first = dict(zip(_values(rows, "revrel")[::-1], _values(rows, "ori")[::-1], strict=True))
        origin_rows = self._tables[ORIGINS].rows(_keys(first.values()))
        urls = dict(zip(_values(origin_rows, "id"), origin_rows.column("url").to_pylist(), strict=True))
        return {revrel: urls[origin] for revrel, origin in first.items() if origin in urls}


def _keys(ids: Iterable[int]) -> np.ndarray:
    return np.fromiter(ids, np.uint64)


def _values(table: pa.Table, name: str) -> list[int]:
    numbers: list[int] = table.column(name).to_pylist()
    return numbers


def _dated(table: pa.Table, date: str, number: str) -> list[tuple[int, int]]:
    """Dates in seconds, and ids; on disk dates are in another unit, as Parquet has no seconds."""
    column = table.column(date)
    unit = _PER_SECOND[column.type.unit]
    dates = pa.chunked_array([chunk.view(pa.int64()) for chunk in column.chunks], pa.int64()).to_pylist()
    return [(value // unit, other) for value, other in zip(dates, _values(table, number), strict=True)]


def whereabouts_json(place: Whereabouts) -> dict[str, object]:
    """Return where something was first; `author_date` in seconds since the epoch."""
    return {
        "swhid": str(place.swhid),
        "is_known": place.is_known,
        "anchor": None if place.anchor is None else str(place.anchor),
        "author_date": place.author_date,
        "origin": place.origin,
    }


def occurrence_json(place: Occurrence) -> dict[str, object]:
    """Return one revision or release that holds a content. Names in git are bytes: what is no UTF-8 is spelled."""
    return {
        "anchor": str(place.anchor),
        "author_date": place.author_date,
        "path": name_as_text(place.path.decode("utf-8", "surrogateescape")),
        "origin": place.origin,
    }
