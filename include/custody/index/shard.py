"""An open index shard, which answers queries; and a cache that keeps the last used shards open.

Answers are event ids, newest or oldest first, exact counts, and counts by the terms of a field. Files are mapped, and
their pages are checked when they are first looked at: damage shows as CorruptionError, never as a wrong answer.
"""

from __future__ import annotations

import struct
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from whoosh import query

from custody.errors import CorruptionError, NotFoundError, StorageError
from custody.index import manifest
from custody.index.arrays import Ints, to_arrow
from custody.index.days import UTC_DAYS, Days, day_name
from custody.index.dictionary import Dictionary
from custody.index.doc_sets import DocSet
from custody.index.fields import ABSENT, POINTER_COLUMN
from custody.index.filter_bank import ShardFacts
from custody.index.manifest import Description, Manifest
from custody.index.number_columns import NumberColumn
from custody.index.packed_dictionary import PackedDictionary
from custody.index.packed_numbers import PackedColumn
from custody.index.paged_file import CheckedFile, Checksums, pages_of
from custody.index.plan import Plan, TermIndex, plan
from custody.index.postings import NONE
from custody.index.term_filter import SUFFIX, TermFilter
from custody.vfs import FileSystem

if TYPE_CHECKING:
    from custody.index.stored_shard import StoredShard

EventIds = npt.NDArray[np.int64]
Bounds = tuple[int, int, int, int]
"""The first and the last event id of a shard, and the first and the last event time, ms since the epoch."""
DAY = "day"
"""The days of the event times, as YYYY-MM-DD, where a field is asked for facets."""
_TIME = "event_time"
# Each takes four bytes a document and the texts of the field.
_FACETS_KEPT = 4
# Sets give documents forwards only; the first window is as large as a usual chunk.
_BACKWARDS = 4096


class OpenShard:
    """A shard's files, mapped. May be used by several threads; closed with the last reference.

    With `stored`, the shard of an object store, which is read by ranges, stands for a folder that is not there.
    """

    def __init__(self, fs: FileSystem, path: Path, stored: StoredShard | None = None) -> None:
        self.path = path
        self._fs = fs
        self.stored = stored
        self._reported = _Reported(path, is_stored=stored is not None)
        decoded = self._manifest() if stored is None else stored.manifest
        self.description = decoded.description
        self.documents = self.description.documents
        self.digest = decoded.digest
        self.fields = self.description.searched
        self._zones = decoded.zones
        self._checksums: dict[str, tuple[int, Checksums]] = {}
        page = 0
        for file in self.description.files:
            pages = pages_of(file.size)
            self._checksums[file.name] = file.size, decoded.checksums[page : page + pages]
            page += pages
        self._columns: dict[str, NumberColumn | PackedColumn] = {}
        self._facets: dict[str, tuple[pa.StringArray, npt.NDArray[np.signedinteger[Any]]]] = {}
        self._lock = threading.Lock()
        with self._reported:
            self.term_filter = self._filter()
            self.terms = self._terms()

    def _filter(self) -> TermFilter | None:
        if packed := self.description.packed:
            return TermFilter(self._packed, packed.filter_place, packed.filter_bytes, self.digest)
        # Of Whoosh's layout, shards of earlier releases have none, nor have those that Whoosh wrote.
        if f"{self.description.segment}.{SUFFIX}" not in self._checksums:
            return None
        file = self._file(SUFFIX)
        return TermFilter(file, 0, file.size, self.digest)

    def _terms(self) -> TermIndex:
        if packed := self.description.packed:
            return PackedDictionary(self._packed, packed.fields, self.documents, self.term_filter)
        return Dictionary(self._file("trm"), self._file("pst"), self.description, self.term_filter)

    def _manifest(self) -> Manifest:
        path, file = self.path, self.path / manifest.NAME
        if not self._fs.exists(file):
            if not self._fs.exists(path):
                raise NotFoundError(f"index shard {path} is gone. Make it again: custody run index")
            raise CorruptionError(f"index shard {path}: expected the file {manifest.NAME}, got none. {_advice(path)}")
        return Manifest.decode(self._fs.read(file), file)

    def require(self, documents: int, bounds: Bounds) -> None:
        """Check that it is the shard that is meant: `bounds` are its first and last id, and its first and last time.

        All is in the manifest, so that no page is read for it.

        Raises:
            CorruptionError: it is another one.
        """
        about, times = self.description, self._zones.get(_TIME)
        # A manifest that was forged may describe no times.
        span = (0, 0) if times is None or not times.size else (int(times[0].min()), int(times[1].max()))
        got = about.documents, about.first_event_id, about.last_event_id, *span
        if got != (documents, *bounds):
            raise CorruptionError(
                f"{self.path}: expected documents, first and last id, first and last time {(documents, *bounds)}, got "
                f"{got}: another shard. {_advice(self.path)}"
            )

    def search(
        self,
        question: query.Query | Plan,
        limit: int | None = None,
        *,
        below: int | None = None,
        above: int | None = None,
        oldest_first: bool = False,
    ) -> EventIds:
        """Return the ids of events that match, the newest first, reading no more than `limit` of them need.

        `below` and `above` leave out the events with these ids and those on the other side of them.

        Raises:
            InvalidInputError: a kind of query that custody does not know.
            CorruptionError: the shard is damaged.
        """
        with self._reported:
            documents = self._matching(question, limit, below, above, oldest_first=oldest_first)
            return self._of(POINTER_COLUMN, documents, oldest_first=oldest_first)

    def search_with_times(
        self,
        question: query.Query | Plan,
        limit: int | None = None,
        *,
        below: int | None = None,
        above: int | None = None,
        oldest_first: bool = False,
    ) -> tuple[EventIds, EventIds]:
        """Return the same ids as `search`, and the times of these events, ms since the epoch; raises as `search`."""
        with self._reported:
            documents = self._matching(question, limit, below, above, oldest_first=oldest_first)
            ids, times = (self._of(name, documents, oldest_first=oldest_first) for name in (POINTER_COLUMN, _TIME))
            return ids, times

    def _matching(
        self,
        question: query.Query | Plan,
        limit: int | None,
        below: int | None,
        above: int | None,
        *,
        oldest_first: bool,
    ) -> Ints:
        """Return the documents that match, in the order in which their events are asked for."""
        node = plan(self, question)
        if not node.size:
            return NONE
        low, high = node.low, node.high
        if below is not None or above is not None:
            low, high = self._window(node, below, above)
        return _newest(_backwards(node, low, high) if oldest_first else node.chunks(low, high), limit)

    def _of(self, name: str, documents: Ints, *, oldest_first: bool) -> EventIds:
        """Return the numbers of some documents in a column; they go down with `oldest_first`, up otherwise."""
        # Of a shard that has no match, as nearly all that a first search opens, no column is read.
        if not len(documents):
            return NONE
        numbers = self.numbers(name).of(documents if not oldest_first else documents[::-1])
        return numbers[::-1] if oldest_first else numbers

    def count(self, question: query.Query | Plan) -> int:
        """Return how many events match, exactly."""
        with self._reported:
            return plan(self, question).count()

    def verify(self) -> None:
        """Check every byte of every file, those included that only Whoosh reads.

        Raises:
            CorruptionError: a file is gone, or holds other bytes than were written.
        """
        with self._reported:
            for name, (size, _) in self._checksums.items():
                self._checked(name).span(0, size)

    def numbers(self, name: str) -> NumberColumn | PackedColumn:
        """Return a number column."""
        column = self._columns.get(name)
        if column is None:
            with self._lock:
                column = self._columns[name] = self._column(name)
        return column

    def _column(self, name: str) -> NumberColumn | PackedColumn:
        about, zones = self.description, self._zones.get(name)
        if about.packed:
            return PackedColumn(self._packed, about.packed.columns[name], self.documents, zones)
        is_sortable = name in about.ranges
        left_out = 0 if name == POINTER_COLUMN else ABSENT
        file = self._file(f"{name}.col")
        return NumberColumn(file, self.documents, is_sortable=is_sortable, zones=zones, left_out=left_out)

    def zones(self, name: str) -> manifest.Zones:
        """Return the least and the greatest number of a column in each stretch of documents, shape (2, stretches)."""
        return self._zones[name]

    def absent(self, name: str) -> int:
        """Return how many documents have no such number."""
        return self.description.absent[name]

    def count_of(self, question: query.Query | Plan, event_ids: EventIds) -> int:
        """Return how many of some events, given by sorted ids, are in the shard and match."""
        if not len(event_ids):
            return 0
        with self._reported:
            # Ids go down with the document number; reversed they go up, as a binary search needs them.
            own = self._ids().span(0, self.documents)[::-1]
            places = np.searchsorted(own, event_ids)
            places = places[places < self.documents]
            held = places[own[places] == event_ids[: len(places)]]
            return int(plan(self, question).among(self.documents - 1 - held[::-1]).sum())

    def facet(self, question: query.Query | Plan, field: str, days: Days = UTC_DAYS) -> dict[str, int]:
        """Return how many of the events that match have each term of a field; for `DAY` are on each of some days.

        For fields with one term an event. The terms of the last few fields are kept for the next query.
        """
        with self._reported:
            node = plan(self, question)
            if field == DAY:
                return self._days(node, days)
            if field not in self._facets:
                # All go at once: which were used last is not worth a list.
                if len(self._facets) >= _FACETS_KEPT:
                    self._facets.clear()
                texts, codes = self.terms.texts(*self.terms.range_of(field)), self.terms.codes(field)
                # Of a type or a component there are few: a byte a document, not four, is kept in each of many shards.
                self._facets[field] = texts, codes.astype(np.min_scalar_type(-len(texts) - 1), copy=False)
            texts, codes = self._facets[field]
            counts = np.zeros(len(texts) + 1, np.int64)
            for documents in node.chunks(node.low, node.high):
                counts += np.bincount(codes[documents].astype(np.int64) + 1, minlength=len(counts))
            chosen = np.flatnonzero(counts[1:])
            return dict(zip(texts.take(to_arrow(chosen)).to_pylist(), counts[1:][chosen].tolist(), strict=True))

    def _days(self, node: DocSet, days: Days) -> dict[str, int]:
        counts: Counter[int] = Counter()
        for documents in node.chunks(node.low, node.high):
            found, numbers_of_events = np.unique(days.of(self.numbers(_TIME).of(documents)), return_counts=True)
            counts.update(dict(zip(found.tolist(), numbers_of_events.tolist(), strict=True)))
        return {day_name(day): count for day, count in counts.items()}

    def _ids(self) -> NumberColumn | PackedColumn:
        return self.numbers(POINTER_COLUMN)

    def _window(self, node: DocSet, below: int | None, above: int | None) -> tuple[int, int]:
        """Return the documents to look at; the ids of the documents go down."""
        # Whoever pages through results starts behind the last event that it has: a binary search finds the place.
        low, high = node.low, node.high
        if below is not None and below <= self.description.last_event_id:
            low = max(low, self._ids().below(below))
        if above is not None and above >= self.description.first_event_id:
            high = min(high, self._ids().below(above + 1))
        return low, max(low, high)

    @cached_property
    def _packed(self) -> CheckedFile:
        """The one file of a packed shard."""
        return self._file("data")

    def _file(self, name: str) -> CheckedFile:
        full = f"{self.description.segment}.{name}"
        if full not in self._checksums:
            raise CorruptionError(f"index shard {self.path}: expected the file {full}, got none. {_advice(self.path)}")
        return self._checked(full)

    def _checked(self, name: str) -> CheckedFile:
        if self.stored is None:
            return CheckedFile(self._fs, self.path / name, *self._checksums[name])
        return CheckedFile(self._fs, self.stored.source.locate() / name, *self._checksums[name], self.stored.part(name))


class _Reported:
    """Raises every error as one of a shard, with advice.

    Bytes with the right checksums may still make no sense: somebody may have forged both.
    """

    def __init__(self, path: Path, *, is_stored: bool) -> None:
        self._path = path
        self._is_stored = is_stored

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        advice = _advice(self._path)
        if isinstance(error, CorruptionError):
            text = str(error)
            raise CorruptionError(text if advice in text else f"{text} {advice}") from error
        if isinstance(error, StorageError):
            if self._is_stored:
                return  # the store refuses: nothing is damaged, and the logs lie there as well
            raise CorruptionError(f"index shard {self._path}: {error} {advice}") from error
        if isinstance(error, _SENSELESS):
            raise CorruptionError(f"index shard {self._path}: {error!r}. {advice}") from error


_SENSELESS = (ValueError, TypeError, IndexError, KeyError, OverflowError, struct.error, pa.ArrowException)


def _advice(path: Path) -> str:
    return f"Remove the folder {path} and make it again: custody run index"


def _newest(chunks: Iterator[Ints], limit: int | None) -> Ints:
    parts: list[Ints] = []
    missing = limit
    for documents in chunks:
        if missing is not None and len(documents) >= missing:
            parts.append(documents[:missing])
            break
        parts.append(documents)
        missing = None if missing is None else missing - len(documents)
    if len(parts) < 2:
        return parts[0] if parts else NONE
    return np.concatenate(parts)


def _backwards(node: DocSet, low: int, high: int) -> Iterator[Ints]:
    """Yield the documents from the last to the first, in windows that grow."""
    window = _BACKWARDS
    while high > low:
        start = max(low, high - window)
        parts = [np.empty(0, np.int64), *node.chunks(start, high)]
        yield np.concatenate(parts)[::-1]
        high, window = start, 2 * window


# Bounds mapped files and what is kept of each shard, up to two megabytes.
SHARDS_MAX = 128
"""Shards that are open at a time; each keeps up to eight files mapped."""


class ShardCache:
    """The shards of one file system, the last used open; may be used by several threads."""

    def __init__(self, fs: FileSystem, open_max: int = SHARDS_MAX) -> None:
        self._fs = fs
        self._open_max = open_max
        self._open: OrderedDict[Path, OpenShard] = OrderedDict()
        self._facts: dict[str, ShardFacts] = {}
        self._lock = threading.Lock()

    def open(
        self,
        path: Path,
        find_stored: Callable[[], StoredShard | None] = lambda: None,
        check: Callable[[OpenShard], None] = lambda opened: None,
    ) -> OpenShard:
        """Return a shard, open when it was used lately; `find_stored` opens one of an object store in its place.

        `check` is given the shard when it is opened, and raises when it is not the one that is meant.

        Raises:
            NotFoundError: the shard's folder is gone.
            CorruptionError, FormatVersionError: it is none, a damaged one, or another one.
        """
        with self._lock:
            shard = self._open.get(path)
            if shard is not None:
                self._open.move_to_end(path)
                return shard
        # Outside of the lock: opening reads from the disk, and the threads of one search open many shards at once.
        opened = OpenShard(self._fs, path, find_stored())
        check(opened)
        with self._lock:
            # Two threads may have opened the same shard; the later one stays, and the other goes with its last reader.
            self._open[path] = opened
            while len(self._open) > self._open_max:
                # Not closed here: another thread may still read it. The last reference unmaps its files.
                self._open.popitem(last=False)
        return opened

    def is_open(self, path: Path) -> bool:
        """Whether a shard is open."""
        return path in self._open

    def facts(self, writer: str) -> ShardFacts:
        """Return what is kept of the shards of a writer, open or not."""
        with self._lock:
            return self._facts.setdefault(writer, ShardFacts())

    def forget(self, path: Path) -> None:
        """Drop a shard that is damaged or was built anew."""
        # Of all writers: two may have shards of one name, and what is dropped comes again.
        for facts in [*self._facts.values()]:
            facts.forget(path.name)
        with self._lock:
            shard = self._open.pop(path, None)
        if shard is not None and shard.stored is not None:
            # What was fetched may be of the shard that was there before.
            shard.stored.source.forget()


def describe_shard(fs: FileSystem, path: Path) -> Description:
    """Return the description of a shard; only the first bytes of one file are read.

    Raises:
        NotFoundError: the shard's folder is gone.
        CorruptionError, FormatVersionError: it is none, or a damaged one.
    """
    if not fs.exists(path / manifest.NAME):
        raise NotFoundError(f"index shard {path} is gone. Make it again: custody run index")
    return manifest.described(fs.view(path / manifest.NAME), path / manifest.NAME)
