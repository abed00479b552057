"""The inversion of one field: its sorted terms, and for each term the documents that have it.

All posting lists of a field are made by one sort of numbers, each a term's rank above a document's number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from custody.index.arrays import Bytes, Ints, integers, raw, starts, to_arrow
from custody.index.positions import Positions
from custody.index.terms import TermValues

Documents = npt.NDArray[np.uint32]
_DOCUMENT_BITS = np.uint64(32)
_DOCUMENT_MASK = np.uint64(0xFFFFFFFF)
_ARRAY_BYTES_MAX = (1 << 31) - 1  # of a string array with offsets of 32 bits


@dataclass(frozen=True, slots=True)
class InvertedField:
    """The terms of a field in the order of their bytes, and their posting lists one behind the other.

    `text` holds the bytes of all terms, `lengths` and `frequencies` (documents that have the term) one number a term,
    `documents` the numbers of the documents, going up within a list.
    """

    text: Bytes
    lengths: Ints
    frequencies: Ints
    documents: Documents
    positions: Positions | None = None

    @property
    def first(self) -> Ints:
        """Where each term's list begins in `documents`."""
        return starts(self.frequencies)


def invert(runs: Sequence[TermValues], documents: int) -> InvertedField:
    """Return the lists of a field from the values of successive rows; the last of `documents` rows is document 0."""
    # Whoosh wants terms in the order of their bytes. Ranks are given to the distinct terms only, once.
    distinct, codes = _distinct(runs)
    order = integers(pc.array_sort_indices(distinct), np.uint64).astype(np.int64)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    # Rows count up from the oldest event; the subtraction below turns them into documents, newest first.
    rows = np.concatenate([run.rows for run in runs])
    keys, bits = _keys(rank[codes], documents - 1 - rows, len(order), documents)
    places = None if runs[0].positions is None else np.concatenate([run.positions for run in runs])
    if places is None:
        keys.sort()
    else:
        # Within a document the words come in the order of the text; a stable sort keeps them so.
        by_key = np.argsort(keys, kind="stable")
        keys, places = keys[by_key], places[by_key]
    # Equal keys are one posting: a row may have a term twice, as parent and child, or a word several times.
    is_new = np.ones(len(keys), np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=is_new[1:])
    counts = np.diff(np.flatnonzero(is_new), append=len(keys))
    keys = keys[is_new]
    frequencies = np.bincount((keys >> bits).astype(np.int64), minlength=len(order))
    text, lengths = _bytes_of(distinct.take(to_arrow(order)))
    used = frequencies > 0
    if not used.all():  # a dictionary may hold terms that no row refers to
        text, lengths = _kept(text, lengths, used)
    owners = (keys & ((keys.dtype.type(1) << bits) - keys.dtype.type(1))).astype(np.uint32)
    positions = None if places is None else Positions(places, counts)
    return InvertedField(text, lengths, frequencies[used], owners, positions)


def _keys(
    ranks: Ints, documents: Ints, rank_count: int, document_count: int
) -> tuple[npt.NDArray[np.uint32], np.uint32] | tuple[npt.NDArray[np.uint64], np.uint64]:
    """Return rank above document in one number, of 32 bits where they fit, and the bits of a document."""
    # Keys of 32 bits sort faster, and those of most fields fit into them.
    bits = max(document_count - 1, 1).bit_length()
    if bits + max(rank_count - 1, 1).bit_length() <= 32:
        return (ranks.astype(np.uint32) << np.uint32(bits)) | documents.astype(np.uint32), np.uint32(bits)
    return (ranks.astype(np.uint64) << np.uint64(bits)) | documents.astype(np.uint64), np.uint64(bits)


def _distinct(runs: Sequence[TermValues]) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Return the distinct terms of all runs and the number of each value's term."""
    size = sum(run.terms.nbytes for run in runs)
    # Offsets of 32 bits cannot address more than 2 GiB of text; the wider ones cost memory and are rarely needed.
    kind = pa.string() if size <= _ARRAY_BYTES_MAX else pa.large_string()
    encoded = pa.concat_arrays([run.terms.cast(kind) for run in runs]).dictionary_encode()
    number = integers(encoded.indices, np.int32).astype(np.int64)
    bases = np.cumsum([0, *(len(run.terms) for run in runs)])
    codes = [number[base : base + len(run.terms)][run.codes] for base, run in zip(bases[:-1], runs, strict=True)]
    return encoded.dictionary, np.concatenate(codes)


def _bytes_of(terms: pa.Array) -> tuple[Bytes, Ints]:
    width = np.int64 if pa.types.is_large_string(terms.type) else np.int32
    _, offsets_buffer, characters = terms.buffers()
    offsets = np.frombuffer(offsets_buffer, width)[terms.offset : terms.offset + len(terms) + 1].astype(np.int64)
    data = np.frombuffer(characters or b"", np.uint8)[offsets[0] : offsets[-1]]
    return data, np.diff(offsets)


def _kept(text: Bytes, lengths: Ints, used: npt.NDArray[np.bool_]) -> tuple[Bytes, Ints]:
    return text[np.repeat(used, lengths)], lengths[used]


def invert_numbers(values: npt.NDArray[np.int64], documents: Documents, step_bits: int) -> InvertedField:
    """Return the terms of signed 64-bit numbers as Whoosh makes them, documents[i] having values[i].

    A term is one byte, how many bits the number was shifted right, and the shifted number with its sign bit turned
    over, big-endian, so that terms sort as numbers do. Each shift is a tier: a range is a few terms of several tiers.
    """
    # With the sign bit turned over unsigned order is signed order, and the order of big-endian bytes too.
    ordered = values.astype(np.int64).view(np.uint64) ^ np.uint64(1 << 63)
    by_value = np.lexsort((documents, ordered))
    numbers, owners = ordered[by_value], documents[by_value].astype(np.uint64)
    tiers: list[tuple[Bytes, Ints, Documents]] = []
    for shift in range(0, 64, step_bits):
        shifted = numbers >> np.uint64(shift)
        is_new = np.ones(len(shifted), np.bool_)
        np.not_equal(shifted[1:], shifted[:-1], out=is_new[1:])
        frequencies = np.diff(np.flatnonzero(is_new), append=len(shifted))
        # Shifting merged no terms, so the documents of this tier come in the same order as those of the one before.
        if tiers and len(frequencies) == len(tiers[-1][1]):
            all_owners = tiers[-1][2]
        else:
            keys = ((np.cumsum(is_new) - 1).astype(np.uint64) << _DOCUMENT_BITS) | owners
            keys.sort()
            all_owners = (keys & _DOCUMENT_MASK).astype(np.uint32)
        text = np.empty((len(frequencies), 9), np.uint8)
        text[:, 0] = shift
        text[:, 1:] = raw(shifted[is_new].astype(">u8"))
        tiers.append((text, frequencies, all_owners))
    text = np.concatenate([tier[0] for tier in tiers])
    frequencies = np.concatenate([tier[1] for tier in tiers])
    all_owners = np.concatenate([tier[2] for tier in tiers])
    return InvertedField(text.ravel(), np.full(len(text), 9, np.int64), frequencies, all_owners)
