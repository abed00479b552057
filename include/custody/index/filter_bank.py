"""The filters of many shards in one array, asked at once: which shards may have the terms of a query.

A shard's own filter says in some microseconds that the shard lacks a term, but each of hundreds of shards has to be
open for that, and be asked by itself. Here one look at all filters leaves the few shards that are worth opening.

A process that asks once would copy filters for nothing: a shard's filter is taken when it is asked a second time. Those
that lie in files of filters (`custody.index.filter_file`) are asked there, from the first question on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
from whoosh import query

from custody.errors import CorruptionError
from custody.format.number_sets import distinct, is_among
from custody.format.split_block import BLOCK_BYTES, WORDS, Probes, Words
from custody.index.dictionary import FIELD_BYTES
from custody.index.manifest import TermFacts
from custody.index.query_evaluator import QueryEvaluator, leaves
from custody.index.term_filter import probes_of, probes_of_key
from custody.index.terms import TermSet, encoded

if TYPE_CHECKING:
    from custody.index.filter_file import FilterFile
    from custody.index.shard import OpenShard

BYTES_MAX = 256 << 20
"""Of a writer; 0.9 bytes an event of the sample, so those of three hundred million events."""
# Of the filters of several writers that are copied into one array; more of them are asked writer by writer.
_JOINED_BYTES_MAX = 64 << 20
# So many arrays are asked one by one, some 30 µs each; more of them are joined.
_PARTS_MAX = 8
# So much of files is checked as a whole, 66 MB in 20 ms; of more, each question checks the pages that it needs, which
# takes 4 ms of 500 shards.
_CHECKED_BYTES_MAX = 128 << 20
# Of more terms a shard has some as a rule, or one that its filter does not deny by mistake.
_TERMS_MAX = 512
# A query with more conditions takes longer to compare than to count.
_LEAVES_MAX = 32
# Probes of 32 bytes that are compared at a time.
_PROBES_AT_ONCE = 1 << 15

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


class _FieldNumbers(NamedTuple):
    """The number that each of some shards has for a field, shape (shards,), -1 for none; `only` is that of all."""

    numbers: Numbers
    only: int | None


@dataclass(frozen=True, slots=True)
class _Filters:
    """Filters as they are asked; `first` and `blocks_of`, shape (shards,), are the places of each one's blocks."""

    names: dict[str, int]
    blocks: Words
    first: Numbers
    blocks_of: npt.NDArray[np.uint64]
    descriptions: tuple[TermFacts, ...]
    marks: tuple[bytes, ...]
    """Of each filter, by which a shard that is open knows what was asked of it here."""
    file: FilterFile | None = None
    """Where the blocks lie, if not in memory."""
    _numbers: dict[str, _FieldNumbers] = field(default_factory=dict)
    _cut: list[tuple[Numbers, list[TermFacts]]] = field(default_factory=list)

    def field_numbers(self, name: str) -> _FieldNumbers:
        """Return the number that each shard has for a field."""
        # Without a lock: two threads compute the same.
        known = self._numbers.get(name)
        if known is None:
            numbers = [about.fields.get(name, -1) for about in self.descriptions]
            only = numbers[0] if len(set(numbers)) == 1 else None
            known = self._numbers[name] = _FieldNumbers(np.array(numbers, np.int64), only)
        return known

    def _kinds_of_cuts(self) -> tuple[Numbers, list[TermFacts]]:
        """Return a number for each shard, shape (shards,), equal where the same was cut; and a shard of each number."""
        # Without a lock: two threads compute the same.
        if not self._cut:
            kinds: dict[frozenset[tuple[str, int]] | None, int] = {}
            examples: list[TermFacts] = []
            numbers = np.empty(len(self.descriptions), np.int64)
            for row, about in enumerate(self.descriptions):
                cut = None if about.cut is None else frozenset(about.cut.items())
                if cut not in kinds:
                    kinds[cut] = len(examples)
                    examples.append(about)
                numbers[row] = kinds[cut]
            self._cut.append((numbers, examples))
        return self._cut[0]

    def without(self, name: str) -> _Filters:
        """Return the same without one shard."""
        return replace(self, names={other: row for other, row in self.names.items() if other != name})

    def rows(self, names: Sequence[str]) -> Numbers:
        """Return the places of some shards, shape (names,); -1 for one whose filter is not here."""
        return np.array([self.names.get(name, -1) for name in names], np.int64)

    def may_match(self, rows: Numbers, question: query.Query, can_tell: Callable[[TermFacts], bool]) -> Mask:
        """Return which of the shards at some places may have an event that matches, shape (rows,)."""
        may = np.ones(len(rows), np.bool_)
        if self.file is not None and self.file.is_damaged:
            return may
        known = np.flatnonzero(rows >= 0)
        chosen = rows[known]
        try:
            answer = _MayHave(self, chosen).evaluate(question)
        except CorruptionError:
            if self.file is None:
                raise
            # A file of filters is never the truth: from now on its shards are asked. A check of all files names it.
            self.file.is_damaged = True
            return may
        kind_of, examples = self._kinds_of_cuts()
        # Whether a shard can tell follows from the values of it that were cut, which nearly all have alike: none.
        cannot_tell = [kind for kind, about in enumerate(examples) if not can_tell(about)]
        if cannot_tell:
            answer |= is_among(kind_of[chosen], np.array(cannot_tell))
        may[known] = answer
        return may


class FilterBank:
    """The filters of the shards of one writer, by the names of the shards; may be used by several threads.

    They lie behind each other in one array, which grows as a list does: a filter that comes is copied once or twice,
    and those that are there are not copied for each one that comes.
    """

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._asked: set[str] = set()
        self._kept: dict[str, _Place] = {}
        self._bytes = 0
        self._blocks: Words = np.empty((0, WORDS), np.uint32)
        self._used = 0
        self._expected = 0
        self._filters: _Filters | None = None
        self._files: tuple[_Filters, ...] = ()
        self._in_files: frozenset[str] = frozenset()
        self._forgotten: set[str] = set()
        """Shards that were damaged or built anew in this process: what files say of them is not asked any more."""
        self._parts: tuple[_Filters, ...] | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def use_files(self, files: Iterable[FilterFile], names: Sequence[str], bounds: Numbers) -> None:
        """Ask files of filters from now on, instead of those that were asked before.

        `names` and `bounds`, shape (shards, 4), are those of the live shards: what a file says of another shard that
        had the same name is not asked.
        """
        found: list[_Filters] = []
        live = {name: number for number, name in enumerate(names)}
        taken: set[str] = set()
        for file in files:
            numbers = np.array([live.get(name, -1) for name in file.names], np.int64)
            is_same = numbers >= 0
            if len(bounds):
                is_same &= (file.bounds == bounds[numbers]).all(axis=1)
            is_same &= file.blocks_of > 0
            rows = {
                file.names[row]: row
                for row in np.flatnonzero(is_same).tolist()
                if file.names[row] not in taken and file.names[row] not in self._forgotten
            }
            taken.update(rows)
            if rows:
                found.append(_Filters(rows, file.blocks, file.first, file.blocks_of, file.kinds, file.digests, file))
        with self._lock:
            self._files, self._in_files, self._parts = tuple(found), frozenset(taken), None
            for name in self._kept.keys() & self._in_files:
                self._drop(name)

    def counts_of_term(self, field_name: str, text: str) -> dict[str, int]:
        """Return how many events of shards have a term, by their names, as far as files of filters tell."""
        return {
            name: count
            for filters in self._files
            if filters.file is not None
            for name, count in filters.file.counts(field_name, text, filters.names.values())
        }

    def offer(self, name: str, shard: OpenShard) -> None:
        """Keep the filter of a shard that is asked for terms not for the first time, if there is room for it.

        Raises:
            CorruptionError: the filter is damaged.
        """
        if name in self._kept or name in self._in_files or shard.term_filter is None:
            return
        if name not in self._asked:
            self._asked.add(name)
            return
        blocks = shard.term_filter.blocks
        with self._lock:
            if name not in self._kept and self._bytes + blocks.nbytes <= self._bytes_max:
                if self._used + len(blocks) > len(self._blocks):
                    # Room for as many as will come, if they are alike: memory that is not written to costs nothing.
                    likely = min(self._expected * len(blocks), self._bytes_max // BLOCK_BYTES)
                    self._move(max(2 * self._used, self._used + len(blocks), likely))
                # Behind all that a reader of this array knows of, so that none sees it change.
                self._blocks[self._used : self._used + len(blocks)] = blocks
                self._kept[name] = _Place(self._used, len(blocks), shard.description, shard.term_filter.mark)
                self._used += len(blocks)
                self._bytes += blocks.nbytes
                self._filters = self._parts = None

    def forget(self, name: str) -> None:
        """Drop the filter of a shard that is damaged or was built anew."""
        with self._lock:
            self._asked.discard(name)
            self._forgotten.add(name)
            if name in self._in_files:
                self._in_files -= {name}
                self._files = tuple(filters.without(name) for filters in self._files)
                self._parts = None
            if name in self._kept:
                self._drop(name)

    def keep_only(self, names: Iterable[str]) -> None:
        """Drop the filters of all other shards: they are not live any more."""
        live = set(names)
        with self._lock:
            self._asked &= live
            self._forgotten &= live
            self._expected = len(live)
            for name in self._kept.keys() - live:
                self._drop(name)

    def _drop(self, name: str) -> None:
        self._bytes -= self._kept.pop(name).size * BLOCK_BYTES
        self._filters = self._parts = None
        # What is dropped leaves a gap; when most are gaps, what is left moves together.
        if self._used * BLOCK_BYTES > 2 * self._bytes:
            self._move(self._bytes // BLOCK_BYTES)

    def _move(self, room: int) -> None:
        """Copy the filters into a new array, without gaps."""
        blocks, used = np.empty((room, WORDS), np.uint32), 0
        for name, place in self._kept.items():
            blocks[used : used + place.size] = self._blocks[place.first : place.first + place.size]
            self._kept[name] = place._replace(first=used)
            used += place.size
        # Readers go on with the array that they have.
        self._blocks, self._used = blocks, used

    def current(self) -> tuple[_Filters, ...]:
        """Return the filters as they are asked; the same object as long as none comes or goes."""
        parts = self._parts
        if parts is not None:
            return parts
        with self._lock:
            if self._filters is None:
                places = list(self._kept.values())
                self._filters = _Filters(
                    {name: row for row, name in enumerate(self._kept)},
                    self._blocks[: self._used],
                    np.array([place.first for place in places], np.int64),
                    np.array([place.size for place in places], np.uint64),
                    tuple(place.description for place in places),
                    tuple(place.mark for place in places),
                )
            if self._parts is None:
                self._parts = (self._filters, *self._files)
            return self._parts


class _Place(NamedTuple):
    """Where a filter lies among those of its writer, in blocks, and what goes with it."""

    first: int
    size: int
    description: TermFacts
    mark: bytes


class JoinedFilters:
    """The filters of the shards of some writers, asked as if they were those of one.

    Args:
        banks: of the writers.
        names: of the shards of each, in the order of their numbers, which go on from one writer to the next.
    """

    def __init__(self, banks: Sequence[FilterBank], names: Sequence[tuple[str, ...]]) -> None:
        self._banks = banks
        self._names = names
        self._shards = sum(map(len, names))
        # One attribute, so that a thread never sees the filters of one moment under the places of another.
        self._joined = _Joined([], [], are_asked_again=False)

    def may_match(self, numbers: Numbers, question: query.Query, can_tell: Callable[[TermFacts], bool]) -> Mask | None:
        """Return which of some shards, by numbers that go up, may have an event that matches; None for all of them.

        A shard whose filter is not kept may, and so may one of which `can_tell` says, by its description, that its
        terms do not tell: they may be the beginnings of longer values.

        Raises:
            InvalidInputError: a kind of query that custody does not know.
        """
        parts = self._current()
        if not parts:
            return None
        if len(parts) == 1 and len(parts[0][2]) == self._shards:
            return parts[0][1].may_match(parts[0][2][numbers], question, can_tell)
        may = np.ones(len(numbers), np.bool_)
        for span, filters, rows in parts:
            begin, end = np.searchsorted(numbers, (span.start, span.stop)).tolist()
            if end > begin:
                may[begin:end] &= filters.may_match(rows[numbers[begin:end] - span.start], question, can_tell)
        return may

    def _current(self) -> list[_Part]:
        """Return filters by the numbers of their shards, with the place that each of these has there."""
        now = [bank.current() for bank in self._banks]
        joined = self._joined
        if len(joined.banks) == len(now) and all(one is other for one, other in zip(joined.banks, now, strict=True)):
            if not joined.are_asked_again:
                # Copied, or checked as a whole, when they are asked a second time: who asks once does it in vain.
                joined = self._joined = _Joined(now, _prepared(joined.parts), are_asked_again=True)
            return joined.parts
        parts: list[_Part] = []
        start = 0
        for of_bank, names in zip(now, self._names, strict=True):
            span = slice(start, start + len(names))
            parts += [_Part(span, filters, filters.rows(names)) for filters in of_bank if filters.names]
            start += len(names)
        parts = [part for part in parts if (part.rows >= 0).any()]
        self._joined = _Joined(now, parts, are_asked_again=False)
        return parts


class _Part(NamedTuple):
    """Filters of the shards with some numbers; `rows` are the places of these in them, -1 for one that is not there."""

    span: slice
    filters: _Filters
    rows: Numbers


class _Joined(NamedTuple):
    """The parts that were made of what banks had."""

    banks: list[tuple[_Filters, ...]]
    parts: list[_Part]
    are_asked_again: bool


def _prepared(parts: list[_Part]) -> list[_Part]:
    """Return filters as a process asks them that asks again and again."""
    joined = _as_one(parts)
    files = [part.filters.file for part in joined if part.filters.file is not None]
    if sum(file.bytes for file in files) <= _CHECKED_BYTES_MAX:
        for file in files:
            _is_whole(file)
    return joined


def _as_one(parts: list[_Part]) -> list[_Part]:
    """Return filters in one array, where those of memory are few bytes, and those of files are many files."""
    are_many = len(parts) > _PARTS_MAX
    chosen = [part for part in parts if are_many or part.filters.file is None]
    if len(chosen) < 2 or sum(part.filters.blocks.nbytes for part in chosen) > _JOINED_BYTES_MAX:
        return parts
    chosen = [part for part in chosen if _is_whole(part.filters.file)]
    others = [part for part in parts if part not in chosen]
    every = [part.filters for part in chosen]
    blocks = np.cumsum([0, *(len(filters.blocks) for filters in every)])
    shards = np.cumsum([0, *(len(filters.descriptions) for filters in every)])
    joined = _Filters(
        {},  # two writers may have shards of one name
        np.concatenate([filters.blocks for filters in every]),
        np.concatenate([filters.first + start for filters, start in zip(every, blocks, strict=False)]),
        np.concatenate([filters.blocks_of for filters in every]),
        tuple(about for filters in every for about in filters.descriptions),
        tuple(mark for filters in every for mark in filters.marks),
    )
    rows = np.full(max(part.span.stop for part in chosen), -1, np.int64)
    for part, start in zip(chosen, shards.tolist(), strict=False):
        known = np.flatnonzero(part.rows >= 0)
        rows[part.span.start + known] = part.rows[known] + start
    return [_Part(slice(0, len(rows)), joined, rows), *others]


def _is_whole(file: FilterFile | None) -> bool:
    """Whether all pages of a file are what was written; of filters in memory they are."""
    try:
        if file is not None:
            file.require_all()
    except CorruptionError:
        return False  # asked by itself it finds its damage
    return True


class _MayHave(QueryEvaluator[Mask]):
    """Answers False only for shards whose filter denies it."""

    def __init__(self, filters: _Filters, rows: Numbers) -> None:
        self._filters = filters
        self._rows = rows

    def all(self) -> Mask:
        return np.ones(len(self._rows), np.bool_)

    def none(self) -> Mask:
        return np.zeros(len(self._rows), np.bool_)

    def any_term(self, name: str) -> Mask:
        return self.all()

    def term(self, name: str, text: str) -> Mask:
        term = encoded(text)
        return self._by_field(name, lambda prefix, rows: self._not_denied(rows, probes_of_key(prefix + term))[:, 0])

    def prefix(self, name: str, text: str) -> Mask:
        return self.all()

    def wildcard(self, name: str, pattern: str) -> Mask:
        return self.all()

    def phrase(self, name: str, words: Sequence[str]) -> Mask:
        return self.intersect(self.term(name, word) for word in words) if words else self.none()

    def number_range(self, name: str, first: int | None, last: int | None) -> Mask:
        return self.all()

    def term_range(self, question: query.TermRange) -> Mask:
        return self.all()

    def intersect(self, parts: Iterable[Mask]) -> Mask:
        answer = self.all()
        for part in parts:
            answer &= part
        return answer

    def unite(self, parts: Iterable[Mask], terms: Mapping[str, TermSet]) -> Mask:
        answer = self.none()
        for part in parts:
            answer |= part
        for name, term_set in terms.items():
            answer |= self._any_of(name, term_set)
        return answer

    def complement(self, part: Mask) -> Mask:
        return self.all()

    def _any_of(self, name: str, term_set: TermSet) -> Mask:
        """Return which shards may have any of some terms of a field."""
        if len(term_set) > _TERMS_MAX:
            return self.all()

        def ask(prefix: bytes, rows: Numbers) -> Mask:
            probes = term_set.derived(prefix, probes_of)
            step = max(_PROBES_AT_ONCE // max(len(term_set), 1), 1)
            answers = [np.empty(0, np.bool_)]
            for start in range(0, len(rows), step):
                part = rows[start : start + step]
                not_denied = self._not_denied(part, probes)
                answers.append(np.logical_or.reduce(not_denied, axis=1))
                if len(term_set) > 1:
                    self._tell(term_set, part, not_denied)
            return np.concatenate(answers)

        return self._by_field(name, ask)

    def _by_field(self, name: str, ask: Callable[[bytes, Numbers], Mask]) -> Mask:
        """Return what `ask` says of the shards, those together that have the same number, the prefix, for a field."""
        numbers, only = self._filters.field_numbers(name)
        if only is not None:
            # Shards that do not know the field are asked: their logs may have it.
            return self.all() if only < 0 else ask(only.to_bytes(FIELD_BYTES, "big"), self._rows)
        own = numbers[self._rows]
        answer = self.none()
        for number in distinct(own).tolist():
            here = np.flatnonzero(own == number)
            answer[here] = True if number < 0 else ask(number.to_bytes(FIELD_BYTES, "big"), self._rows[here])
        return answer

    def _tell(self, term_set: TermSet, rows: Numbers, not_denied: Mask) -> None:
        """Let a set know which of its terms each shard may have, so that the shard's own filter is not asked again."""
        shards, terms = np.nonzero(not_denied)
        asked, begins = np.unique(shards, return_index=True)
        bounds = [*begins.tolist(), len(shards)]
        marks = self._filters.marks
        for row, begin, end in zip(rows[asked].tolist(), bounds, bounds[1:], strict=False):
            term_set.candidates[marks[row]] = terms[begin:end]

    def _not_denied(self, rows: Numbers, probes: Probes) -> Mask:
        """Return which values the filter of each shard does not deny, shape (rows, values)."""
        filters = self._filters
        numbers = (probes.upper * filters.blocks_of[rows, None]) >> np.uint64(32)
        places = numbers.astype(np.int64) + filters.first[rows, None]
        if filters.file is not None:
            filters.file.require(places)
        found = filters.blocks[places]
        has_all: Mask = np.logical_and.reduce((found & probes.bits) == probes.bits, axis=2)
        return has_all


class Counts(dict[str, int]):
    """How many events match a query in shards, by their names."""

    have_files = False
    """Whether what files of filters tell is among them."""


class CountMemo:
    """How many events of a shard match a query, by the query and the name of the shard; for some queries, the last.

    Shards do not change, so a query that is asked again, for its next page or by a page that is looked at, counts only
    in shards that came since. May be used by several threads.
    """

    def __init__(self, queries_max: int = 64) -> None:
        self._queries_max = queries_max
        self._counts: dict[query.Query, Counts] = {}
        self._lock = threading.Lock()

    def of(self, question: query.Query) -> Counts:
        """Return the counts of a query by the names of shards, to be read and added to."""
        # Whoosh's queries compare by value.
        if len(leaves(question)) > _LEAVES_MAX:
            return Counts()
        with self._lock:
            counts = self._counts.pop(question, None)
            self._counts[question] = counts = Counts() if counts is None else counts
            while len(self._counts) > self._queries_max:
                del self._counts[next(iter(self._counts))]
        return counts

    def forget(self, name: str) -> None:
        """Drop the counts of a shard that is damaged or was built anew."""
        with self._lock:
            for counts in self._counts.values():
                counts.pop(name, None)

    def keep_only(self, names: Iterable[str]) -> None:
        """Drop the counts of all other shards."""
        live = set(names)
        with self._lock:
            for counts in self._counts.values():
                for name in counts.keys() - live:
                    del counts[name]


@dataclass(slots=True)
class ShardFacts:
    """What a process keeps of the shards of one writer, whether they are open or not."""

    filters: FilterBank = field(default_factory=FilterBank)
    counts: CountMemo = field(default_factory=CountMemo)
    _revision: int = -1

    def forget(self, name: str) -> None:
        """Drop what is kept of a shard that is damaged or was built anew."""
        self.filters.forget(name)
        self.counts.forget(name)

    def follow(
        self,
        revision: int,
        names: Sequence[str],
        find_bounds: Callable[[], Numbers],
        find_files: Callable[[], Iterable[FilterFile]],
    ) -> None:
        """Drop what is kept of shards that a newer revision of the catalog does not have; look for files of filters.

        `find_bounds` returns the first and last event ids and times of the shards, shape (shards, 4).
        """
        # Somebody who looks at the past does not make those go that are live today.
        if revision > self._revision:
            self._revision = revision
            live = set(names)
            self.filters.keep_only(live)
            self.counts.keep_only(live)
            self.filters.use_files(find_files(), names, find_bounds())

    def counts_of(self, question: query.Query, *, in_files: bool) -> dict[str, int]:
        """Return how many events match a query in shards, by their names, to be read and added to.

        `in_files` adds what files of filters tell, which takes longer than to ask a few shards.
        """
        counts = self.counts.of(question)
        if in_files and not counts.have_files and type(question) is query.Term:
            counts.update(self.filters.counts_of_term(question.fieldname, question.text))
            counts.have_files = True
        return counts
