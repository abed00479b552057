"""A posting list: the documents that have a term, decoded block by block and only where they are needed."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np

from custody.index.reader.lists import KeptLists, WholeList
from custody.index.reader.pages import CheckedFile
from custody.index.reader.pickled import plain_data, plain_prefix
from custody.index.segment.arrays import Ints
from custody.index.segment.postings import (
    ABOUT_POSTINGS,
    DATA_OPEN,
    FIRST_BYTES,
    HEAD_BYTES,
    LIST_MARK,
    WIDTHS,
)

NONE: Ints = np.empty(0, np.int64)
_DIFFERENCE = {code[0]: np.dtype([("code", "u1"), ("value", f"<u{width - 1}")]) for width, code in WIDTHS}
_DOCUMENT = np.dtype([("code", "u1"), ("value", "<u4")])
_HEAD = struct.Struct(">i")
_BULK_HEAD = struct.Struct("<ixI")
_STOCK_HEAD_MAX = 256
_CHUNK = 4096
_BLOCKS_ALONE = 4


class Block(NamedTuple):
    """Where the data of a block lies, how many postings it has and which document is its last."""

    place: int
    end: int
    postings: int
    last: int


class PostingList:
    """The documents of one term, going up; for one query of one thread.

    What was found is kept: the places of blocks, and the block decoded last, so that neighbours are cheap.
    """

    def __init__(
        self,
        file: CheckedFile,
        layout: Literal["bulk", "stock"],
        place: int,
        frequency: int,
        first: int,
        last: int,
        kept: KeptLists | None = None,
    ) -> None:
        self.frequency = frequency
        self._place = place
        self._kept = kept
        self._whole = None if kept is None else kept.get(place)
        self._decodings = 0
        self.first = first
        self.last = last
        self._file = file
        self._layout = layout
        self._next: int | None = place
        self._blocks: list[Block] = []
        self._lasts: list[int] = []
        self._decoded: tuple[int, Ints] = (-1, NONE)

    def chunks(self, low: int, high: int) -> Iterator[Ints]:
        """Yield the documents from `low` to before `high`."""
        number = self._block_from(low) if self._whole is None else None
        while number is not None:
            if self._is_read_on():
                low = max(low, self._blocks[number - 1].last + 1) if number else low
                break
            documents = self._documents(number)
            begin, end = (
                documents.searchsorted((low, high)) if documents[0] < low or documents[-1] >= high else (0, None)
            )
            found = documents[begin:end]
            if len(found):
                yield found
            if documents[-1] >= high - 1:
                return
            number = self._block(number + 1)
        if self._whole is not None:
            begin, end = self._whole.bounds(low, high)
            for start in range(begin, end, _CHUNK):
                yield self._whole.documents[start : min(start + _CHUNK, end)].astype(np.int64)

    def among(self, documents: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Return which of some documents, going up, are in the list."""
        mask = np.zeros(len(documents), np.bool_)
        begin = 0
        while begin < len(documents):
            if self._is_read_on() and self._whole is not None:
                mask[begin:] = self._whole.among(documents[begin:])
                break
            number = self._block_from(int(documents[begin]))
            if number is None:
                break
            own = self._documents(number)
            end = len(documents) if documents[-1] <= own[-1] else int(documents.searchsorted(own[-1], side="right"))
            asked = documents[begin:end]
            mask[begin:end] = own[own.searchsorted(asked)] == asked  # none is above the block's last
            begin = end
        return mask

    def blocks(self) -> Iterator[tuple[Block, Ints]]:
        """Yield all blocks with their documents."""
        number = self._block_from(0)
        while number is not None:
            yield self._blocks[number], self._documents(number)
            number = self._block(number + 1)

    def _is_read_on(self) -> bool:
        """Whether the list is in memory as a whole; after some blocks the rest is decoded at once, and kept."""
        if self._whole is None and self._decodings > _BLOCKS_ALONE and self._kept is not None:
            parts = [documents for _, documents in self.blocks()]
            self._whole = WholeList(np.concatenate(parts).astype(np.int32))
            self._kept.put(self._place, self._whole)
        return self._whole is not None

    def data_of(self, block: Block) -> memoryview:
        """Return the data of a block."""
        return self._file.span(block.place, block.end)

    def _block_from(self, document: int) -> int | None:
        """Return the number of the first block that ends at a document or behind it."""
        number = bisect_left(self._lasts, document)
        while number == len(self._lasts) or self._lasts[number] < document:
            found = self._block(len(self._lasts))
            if found is None:
                return None
            number = found
        return number

    def _block(self, number: int) -> int | None:
        """Return the number when there is such a block; finds the place of the next one."""
        if number < len(self._blocks):
            return number
        if self._next is None:
            return None
        place = self._next
        if not self._blocks:
            if bytes(self._file.span(place, place + len(LIST_MARK))) != LIST_MARK:
                raise self._file.error(place, "a posting list", "other bytes")
            place += len(LIST_MARK)
        length = _HEAD.unpack(self._file.span(place, place + _HEAD.size))[0]
        begin, end = place + _HEAD.size, place + _HEAD.size + abs(length)
        block = self._bulk_head(begin, end) if self._layout == "bulk" else self._stock_head(begin, end)
        if not 0 < block.postings <= self.frequency or block.last > self.last:
            raise self._file.error(place, f"a block of up to {self.frequency} postings", f"{block.postings}")
        self._next = None if length < 0 else end
        self._blocks.append(block)
        self._lasts.append(block.last)
        return number

    def _bulk_head(self, begin: int, end: int) -> Block:
        data = begin + HEAD_BYTES - _HEAD.size
        about = self._file.span(begin, data)
        postings, last = _BULK_HEAD.unpack_from(about, ABOUT_POSTINGS)
        return Block(data, end, postings, last)

    def _stock_head(self, begin: int, end: int) -> Block:
        about, length = plain_prefix(self._file.span(begin, min(end, begin + _STOCK_HEAD_MAX)))
        match about:
            case (int(postings), int(last), float() | int(), 0, int(), int()):
                return Block(begin + length, end, postings, last)
        raise self._file.error(begin, "the description of a block", repr(about))

    def _documents(self, number: int) -> Ints:
        if self._decoded[0] == number:
            return self._decoded[1]
        self._decodings += 1
        block = self._blocks[number]
        documents = self._bulk_data(block) if self._layout == "bulk" else self._stock_data(block)
        if len(documents) != block.postings or documents[-1] != block.last:
            raise self._file.error(block.place, f"{block.postings} documents up to {block.last}", "others")
        self._decoded = number, documents
        return documents

    def _bulk_data(self, block: Block) -> Ints:
        data = self._file.span(block.place, block.end)
        begin = len(DATA_OPEN)
        documents = np.empty(block.postings, np.int64)
        documents[0] = np.frombuffer(data, _DOCUMENT, 1, begin)["value"][0]
        if block.postings > 1:
            begin += FIRST_BYTES
            kind = _DIFFERENCE.get(data[begin])
            if kind is None:
                raise self._file.error(block.place + begin, "a difference", f"code {data[begin]}")
            documents[1:] = np.frombuffer(data, kind, block.postings - 1, begin)["value"]
            np.cumsum(documents, out=documents)
        return documents

    def _stock_data(self, block: Block) -> Ints:
        match plain_data(self._file.span(block.place, block.end)):
            case (tuple(deltas), _, _):
                return np.cumsum(np.array(deltas, np.int64))
        raise self._file.error(block.place, "a block of postings", "other data")


class InlineList(PostingList):
    """A short list that lies in the dictionary: all documents at once."""

    def __init__(self, file: CheckedFile, place: int, end: int, frequency: int) -> None:
        begin = place + len(DATA_OPEN)
        data = file.span(begin, begin + frequency * FIRST_BYTES)
        documents = np.frombuffer(data, _DOCUMENT)["value"].astype(np.int64)
        first, last = int(documents[0]), int(documents[-1])
        super().__init__(file, "bulk", place, frequency, first, last)
        self._blocks = [Block(place, end, frequency, last)]
        self._lasts = [last]
        self._next = None
        self._decoded = 0, documents
