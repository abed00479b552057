"""Comparing two shards by what they answer: which parts of a shard are not those of one that was built of its logs.

Of the same events and settings the same code builds the same bytes, so that digests are compared first. What follows is
for shards of another release, or of other settings, and for forged ones, whose checksums are right.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from custody.index.arrays import Ints
from custody.index.shard import OpenShard


def shard_differences(shard: OpenShard, built: OpenShard) -> list[str]:
    """Return the parts of a shard that are not as in one that was built of the same events with the same fields.

    Terms that one of the two cut are compared as far as both have them: readers look at the logs for the rest.

    Raises:
        CorruptionError: a shard is damaged.
    """
    if shard.digest == built.digest:
        return []
    if shard.documents != built.documents:
        return ["its events"]
    wrong = [f"the column {name}" for name in sorted(built.description.absent) if not _same_column(shard, built, name)]
    if set(shard.description.fields) != set(built.description.fields):
        return [*wrong, "its fields"]
    wrong += [name for name in sorted(built.description.fields) if not _same_terms(shard, built, name)]
    if not (wrong or _has_own_terms(shard)):
        wrong.append("the filter of its terms")
    return wrong


def _same_column(shard: OpenShard, built: OpenShard, name: str) -> bool:
    if name not in shard.description.absent or not np.array_equal(shard.zones(name), built.zones(name)):
        return False
    own, expected = shard.numbers(name).span(0, shard.documents), built.numbers(name).span(0, built.documents)
    return bool(np.array_equal(own, expected)) and shard.absent(name) == built.absent(name)


def _same_terms(shard: OpenShard, built: OpenShard, field: str) -> bool:
    cuts = [each.description.whole_below(field) for each in (shard, built)]
    if cuts[0] != cuts[1]:
        least = min(cut for cut in cuts if cut is not None)
        return bool(_beginnings(shard, field, least).equals(_beginnings(built, field, least)))
    (first, end), (other, _) = shard.terms.range_of(field), built.terms.range_of(field)
    texts = shard.terms.texts(first, end)
    if not texts.equals(built.terms.texts(*built.terms.range_of(field))):
        return False
    for number, text in enumerate(texts.to_pylist()):
        if not np.array_equal(_documents(shard, first + number), _documents(built, other + number)):
            return False
        if _places(shard, field, text) != _places(built, field, text):
            return False
    return True


def _beginnings(shard: OpenShard, field: str, characters: int) -> pa.Array:
    """Return of each document the first characters of its term; fields whose terms are cut have one a document."""
    codes = shard.terms.codes(field).astype(np.int64)
    texts = shard.terms.texts(*shard.terms.range_of(field))
    beginnings = pc.utf8_slice_codeunits(texts, 0, characters)
    return beginnings.take(pa.array(codes, mask=codes < 0))


def _documents(shard: OpenShard, number: int) -> Ints:
    parts = [np.empty(0, np.int64), *shard.terms.list_of(number).chunks(0, shard.documents)]
    return np.concatenate(parts)


def _places(shard: OpenShard, field: str, text: str) -> list[tuple[bytes, bytes]]:
    """Return the places of a word in its documents; none in a field that is no text."""
    packed = shard.description.packed
    if not packed or packed.fields[field].places is None:
        return []
    placed = shard.terms.placed(field, text.encode())
    found = [] if placed is None else [places() for _, places in placed.placed()]
    return [(all_places.tobytes(), counts.tobytes()) for all_places, counts in found]


def _has_own_terms(shard: OpenShard) -> bool:
    """Whether the filter has all terms of the shard: those that it lacks would not be found."""
    return shard.term_filter is None or all(
        shard.terms.find(field, text.encode()) is not None
        for field in shard.description.fields
        for text in shard.terms.texts(*shard.terms.range_of(field)).to_pylist()
    )
