"""The number columns of a packed shard: each stretch of ZONE_DOCUMENTS documents by itself, in as few bits as do.

A stretch is a line, its base and its slope, and for each document how far its number lies above the line, in one width
for all. So ids that count down take no bits at all, and times that nearly do take few. Where a document has no number,
the greatest number of that width stands for none. A column begins with the bases, slopes, places and widths of all
stretches. Docs: docs/formats/packed-shard.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from custody.format.number_sets import distinct
from custody.index.arrays import Bytes, Ints
from custody.index.bit_packing import WIDTH_MAX, WORD_BYTES, Words, as_bytes, bit_lengths, masks, packed, run, unpacked
from custody.index.fields import ABSENT
from custody.index.manifest import ZONE_DOCUMENTS, Zones
from custody.index.paged_file import CheckedFile

_ZONE_SHIFT = ZONE_DOCUMENTS.bit_length() - 1
_WHOLE = 64
"""Wider numbers than a read holds take whole words."""
_WIDENED = ((4, 8), (8, 16), (WIDTH_MAX, _WHOLE))
"""Part of what the writer produces, not of the format: widths between these two become the second one. Such numbers are
read at once; a few bits more buy half of the time of a range of times."""
_HAS_ABSENT = 0x80
_TABLE: tuple[np.dtype[Any], ...] = (np.dtype("<i8"), np.dtype("<i8"), np.dtype("<u8"), np.dtype("u1"))
"""Base, slope, place in bytes from the end of the tables on, and width; in the width's highest bit, whether some
documents have no number."""
_ENTRY_BYTES = sum(kind.itemsize for kind in _TABLE)
# Beyond these a line could leave the numbers that 64 bits hold; such stretches have slope 0.
_LINE_MAX = 1 << 61

_STEPS = np.arange(ZONE_DOCUMENTS)
_ZONES_KEPT = 8
"""Those at the ends of a range are read for each page of its events."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Encoded:
    """Stretches as they are stored: base, slope and width, and whether numbers are absent, shape (stretches,);
    and how far each number lies above its line, shape (stretches, documents of one).
    """

    bases: Numbers
    slopes: Numbers
    widths: Ints
    is_absent: npt.NDArray[np.bool_]
    above: Words


def encoded_numbers(numbers: Numbers) -> Bytes:
    """Return the column of a number a document, ABSENT for none."""
    count, whole = -(-len(numbers) // ZONE_DOCUMENTS), len(numbers) // ZONE_DOCUMENTS
    parts = [_encoded(numbers[: whole * ZONE_DOCUMENTS].reshape(whole, ZONE_DOCUMENTS))]
    if whole < count:
        parts.append(_encoded(numbers[whole * ZONE_DOCUMENTS :][None, :]))
    bases, slopes = (np.concatenate([getattr(part, name) for part in parts]) for name in ("bases", "slopes"))
    widths = np.concatenate([part.widths for part in parts])
    flags = np.concatenate([part.is_absent for part in parts]) * np.int64(_HAS_ABSENT)
    documents = np.full(count, ZONE_DOCUMENTS)
    documents[whole:] = len(numbers) - whole * ZONE_DOCUMENTS
    sizes = -(-documents * widths // 8)
    places = np.cumsum(sizes) - sizes
    step = np.arange(len(numbers)) % ZONE_DOCUMENTS
    at = np.repeat(places * 8, documents) + step * np.repeat(widths, documents)
    size = int(sizes.sum())
    words = packed(np.concatenate([part.above.ravel() for part in parts]), at, size * 8)
    tables = zip([bases, slopes, places, widths | flags], _TABLE, strict=True)
    heads = [np.frombuffer(table.astype(kind).tobytes(), np.uint8) for table, kind in tables]
    return np.concatenate([*heads, as_bytes(words, size)])


def _encoded(numbers: Numbers) -> _Encoded:
    """Return stretches of equal length, shape (stretches, documents of one)."""
    is_absent = numbers == ABSENT
    has_absent = is_absent.any(axis=1)
    # Where a number is absent, the line passes for it: so it changes neither base nor width.
    slopes = _slopes(numbers, is_absent)
    bases, above = _above(numbers, is_absent, np.zeros(len(numbers), np.int64))
    sloped_bases, sloped_above = _above(numbers, is_absent, slopes)
    is_sloped = sloped_above.max(axis=1, initial=0) < above.max(axis=1, initial=0)
    above[is_sloped] = sloped_above[is_sloped]
    greatest = above.max(axis=1, initial=0)
    # Every number of the width but the greatest is one of a document, where some have none.
    widths = bit_lengths(greatest + has_absent.astype(np.uint64))
    for low, wider in _WIDENED:
        widths[(widths > low) & (widths < wider)] = wider
    none = np.broadcast_to(masks(widths)[:, None], above.shape)
    above[is_absent] = none[is_absent]
    return _Encoded(np.where(is_sloped, sloped_bases, bases), np.where(is_sloped, slopes, 0), widths, has_absent, above)


def _slopes(numbers: Numbers, is_absent: npt.NDArray[np.bool_]) -> Numbers:
    """Return the slope from the first to the last number of each stretch; 0 where a line could leave 64 bits."""
    if numbers.shape[1] < 2:
        return np.zeros(len(numbers), np.int64)
    first, last = numbers[:, 0], numbers[:, -1]
    low, high = numbers.min(axis=1, initial=ABSENT), np.where(is_absent, 0, numbers).max(axis=1, initial=0)
    is_safe = (low >= -_LINE_MAX) & (high <= _LINE_MAX) & ~is_absent[:, 0] & ~is_absent[:, -1]
    rise = np.where(is_safe, last, 0) - np.where(is_safe, first, 0)
    slopes: Numbers = (2 * rise + numbers.shape[1] - 1) // (2 * (numbers.shape[1] - 1))
    return np.where(np.abs(rise) < _LINE_MAX // ZONE_DOCUMENTS, slopes, 0)


def _above(numbers: Numbers, is_absent: npt.NDArray[np.bool_], slopes: Numbers) -> tuple[Numbers, Words]:
    """Return the base of each stretch for a slope, and how far its numbers lie above the line, 0 for absent ones."""
    rest = numbers - slopes[:, None] * np.arange(numbers.shape[1])
    bases = np.where(is_absent, np.iinfo(np.int64).max, rest).min(axis=1)
    bases[is_absent.all(axis=1)] = 0
    # As unsigned numbers: the distance between any two signed ones fits.
    above = rest.view(np.uint64) - bases.view(np.uint64)[:, None]
    above[is_absent] = 0
    return bases, above


class PackedColumn:
    """One number a document of an open shard; may be used by several threads. As `NumberColumn`."""

    def __init__(self, file: CheckedFile, place: int, documents: int, zones: Zones | None = None) -> None:
        self._file = file
        self._documents = documents
        count = -(-documents // ZONE_DOCUMENTS)
        self._data = place + count * _ENTRY_BYTES
        tables = file.span(place, self._data)
        at = 0
        parts: list[npt.NDArray[Any]] = []
        for kind in _TABLE:
            parts.append(np.frombuffer(tables, kind, count, at))
            at += count * kind.itemsize
        self._bases, self._slopes = (part.astype(np.int64) for part in parts[:2])
        self._places = self._data + parts[2].astype(np.int64)
        self._widths = (parts[3] & (_HAS_ABSENT - 1)).astype(np.int64)
        self._has_absent = (parts[3] & _HAS_ABSENT) != 0
        is_possible = (self._widths <= WIDTH_MAX) | (self._widths == _WHOLE)
        if not is_possible.all():
            raise file.error(place, f"widths of up to {WIDTH_MAX} bits, or {_WHOLE}", f"{int(self._widths.max())}")
        self.zones = np.empty((2, 0), np.int64) if zones is None else zones
        self.least, self.greatest = -ABSENT, ABSENT
        """No number is smaller or greater; of a column without zones nothing is known."""
        if self.zones.shape[1]:
            self.least, self.greatest = int(self.zones[0].min()), int(self.zones[1].max())
        self._zones_kept: dict[int, Numbers] = {}
        self._line = self._one_line()

    def span(self, low: int, high: int) -> Numbers:
        """Return the numbers of the documents from `low` to before `high`."""
        zone = low >> _ZONE_SHIFT
        if low >= high or self._line is not None or (high - 1) >> _ZONE_SHIFT != zone:
            return self.of(np.arange(low, high))
        begin = zone << _ZONE_SHIFT
        return self._zone(zone)[low - begin : high - begin]

    def of(self, documents: Ints) -> Numbers:
        """Return the numbers of some documents, going up."""
        if self._line is not None:
            base, slope = self._line
            on_line: Numbers = base + slope * documents
            return on_line
        zone = documents >> _ZONE_SHIFT
        step = documents & (ZONE_DOCUMENTS - 1)
        widths = self._widths[zone]
        whole = widths == _WHOLE
        if whole.any():
            return self._of_whole(documents, whole)
        places = self._places[zone] * 8 + step * widths
        self._file.require(places >> 3, WORD_BYTES)
        above = unpacked(self._file.data, places, widths)
        numbers: Numbers = self._bases[zone] + self._slopes[zone] * step + above
        is_absent = self._has_absent[zone]
        if is_absent.any():
            numbers[is_absent & (above == (np.int64(1) << widths) - 1)] = ABSENT
        return numbers

    def below(self, number: int) -> int:
        """Return the first document whose number is below this one, in a column whose numbers go down."""
        low, high = 0, self._documents
        while low < high:
            middle = (low + high) // 2
            if int(self.of(np.array([middle]))[0]) < number:
                high = middle
            else:
                low = middle + 1
        return low

    def candidates(self, low: int, high: int) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Return which zones can hold a number from `low` to `high`, and which hold no others, shape (zones,)."""
        smallest, greatest = self.zones
        return (greatest >= low) & (smallest <= high), (smallest >= low) & (greatest <= high)

    def _one_line(self) -> tuple[int, int] | None:
        """Return base and slope of the one line on which all numbers lie; None where there is none."""
        if not len(self._widths) or self._widths.any() or (self._slopes != self._slopes[0]).any():
            return None
        base, slope = int(self._bases[0]), int(self._slopes[0])
        if abs(slope) * self._documents > _LINE_MAX or abs(base) > _LINE_MAX:
            return None
        expected = base + slope * ZONE_DOCUMENTS * np.arange(len(self._bases))
        return (base, slope) if (self._bases == expected).all() else None

    def _of_whole(self, documents: Ints, whole: npt.NDArray[np.bool_]) -> Numbers:
        """Return numbers of which some, or all, take whole words."""
        numbers = np.empty(len(documents), np.int64)
        for zone in distinct(documents >> _ZONE_SHIFT).tolist():
            begin = zone << _ZONE_SHIFT
            low, high = documents.searchsorted((begin, begin + ZONE_DOCUMENTS)).tolist()
            steps = documents[low:high] - begin
            numbers[low:high] = self._zone(zone)[steps]
        return numbers

    def _zone(self, zone: int) -> Numbers:
        """Return the numbers of a stretch, to be read only; those of the last few are kept."""
        kept = self._zones_kept.get(zone)
        if kept is not None:
            return kept
        count = min(self._documents - (zone << _ZONE_SHIFT), ZONE_DOCUMENTS)
        place, width = int(self._places[zone]), int(self._widths[zone])
        if width == _WHOLE:
            above = self._file.array(place, place + count * WORD_BYTES).view("<u8").astype(np.uint64).view(np.int64)
        else:
            above = run(self._file, place, width, count, ZONE_DOCUMENTS)
        numbers: Numbers = above + self._bases[zone]
        if self._slopes[zone]:
            numbers += self._slopes[zone] * _STEPS[:count]
        if self._has_absent[zone]:
            numbers[above == (-1 if width == _WHOLE else (1 << width) - 1)] = ABSENT
        numbers.flags.writeable = False
        # Without a lock: two threads may keep the same, and what one of them keeps may go.
        if len(self._zones_kept) >= _ZONES_KEPT:
            self._zones_kept = {}
        self._zones_kept[zone] = numbers
        return numbers
