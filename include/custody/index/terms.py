"""The terms of searchable fields, as columns: the distinct terms of a field, and which row has which.

All terms are made here: the index, the scan of events without an index, and Whoosh's own writer take them from this
module, so that they cannot differ. Nothing is done event by event: texts are dictionary-encoded first, and what is
costly is done once for each distinct text.

A value of an identifier field is one term, lower-cased. A text is split into words, as Whoosh's simple analyzer does:
letters, digits, `_` and `*`, with single dots in between. ASCII texts are split all at once, by what kind of character
stands where; the others by the analyzer itself.

A `TermSet` holds the terms of a question, which are looked up in shard after shard: what is the same for all shards is
computed once.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import translate
from functools import cached_property
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from whoosh import query
from whoosh.analysis import SimpleAnalyzer
from zlib_ng import zlib_ng

from custody.index.arrays import flags, integers, number_scalar, one, text_array, text_scalar, to_arrow, within
from custody.index.by_question import ByQuestion

TERM_BYTES_MAX = 4096  # a longer value is found by its first bytes; Whoosh itself stops at 64 KiB
WORDS = SimpleAnalyzer()
# For ASCII as the analyzer has it; other texts do not come here.
_IS_WORD = np.array([chr(code).isalnum() or chr(code) in "_*" for code in range(128)] + [False] * 128)
_DOT = ord(".")
_SPECIAL = re.compile(r"[*?\[]")
_STARS = re.compile(r"\*+")
# The patterns of custody in the form of SQL's LIKE, whose own signs are escaped.
_LIKE = str.maketrans({"%": r"\%", "_": r"\_", "\\": r"\\", "*": "%", "?": "_"})

Codes = npt.NDArray[np.int32]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TermLimit:
    """How much of a value becomes a term; None for all of it."""

    characters: int | None = None
    bytes: int | None = TERM_BYTES_MAX

    def exceeded(self, values: pa.StringArray) -> pa.BooleanArray:
        """Return which values are longer."""
        least = min(number for number in (self.characters, self.bytes, _NO_LENGTH) if number is not None)
        # A character has at least one byte: in nearly every column this settles it for all values.
        exceeded = pc.greater(pc.binary_length(values), number_scalar(least))
        if self.characters is None or not flags(exceeded).any():
            return exceeded
        by_characters = pc.greater(pc.utf8_length(values), number_scalar(self.characters))
        by_bytes = pc.greater(pc.binary_length(values), number_scalar(_NO_LENGTH if self.bytes is None else self.bytes))
        return pc.or_(by_characters, by_bytes)


_NO_LENGTH = (1 << 31) - 1
INDEXED = TermLimit()
WHOLE = TermLimit(bytes=None)


@dataclass(frozen=True, slots=True)
class TermValues:
    """The terms of one field in some rows; `codes`, `rows` and `positions` have shape (n,).

    Row rows[i] has the term terms[codes[i]]; in a text, at the place positions[i]. A row may have no term or several.
    """

    terms: pa.StringArray
    codes: Codes
    rows: Rows
    positions: Codes | None = None
    cut: int | None = None
    """Characters of the shortest term that is only the beginning of its value; None: all are whole."""

    @classmethod
    def joined(cls, parts: list[TermValues]) -> TermValues:
        """Return the values of several parts, all in rows of one table."""
        bases = np.cumsum([0, *(len(part.terms) for part in parts[:-1])])
        terms = pa.concat_arrays([part.terms for part in parts])
        codes = np.concatenate([part.codes + np.int32(base) for part, base in zip(parts, bases, strict=True)])
        cuts = [part.cut for part in parts if part.cut is not None]
        return cls(terms, codes, np.concatenate([part.rows for part in parts]), cut=min(cuts, default=None))

    def lists(self, rows: int) -> list[list[str]]:
        """Return the terms of each of `rows` rows as lists, each once, in the order in which they are listed here."""
        names = self.terms.to_pylist()
        by_row: list[dict[str, None]] = [{} for _ in range(rows)]
        for row, code in zip(self.rows.tolist(), self.codes.tolist(), strict=True):
            by_row[row][names[code]] = None
        return [list(row) for row in by_row]


def term(value: str, limit: TermLimit = INDEXED) -> str:
    """Return the indexed form of a value of an identifier field."""
    # Cut by bytes, then an incomplete last letter is dropped.
    return value.encode("utf-8", "replace")[: limit.bytes].decode("utf-8", "ignore")[: limit.characters].lower()


def terms(values: pa.StringArray, limit: TermLimit = INDEXED) -> tuple[pa.StringArray, int | None]:
    """Return the indexed form of each of some values, and `TermValues.cut` of them."""
    cut = None
    exceeded = limit.exceeded(values)
    if flags(exceeded).any():
        beginnings = [term(value, limit) for value in values.filter(exceeded).to_pylist()]
        cut = min(map(len, beginnings))
        values = pc.replace_with_mask(values, exceeded, text_array(beginnings))
    lowered = pc.ascii_lower(values)
    # Arrow lowers ASCII in one pass. Other letters follow Python's rules, because queries are lowered by Python.
    plain = pc.string_is_ascii(values)
    if flags(plain).all():
        return lowered, cut
    # Python lowers letters whose small form is longer, and the sigma at a word's end; queries are lowered by it too.
    other = pc.invert(plain)
    return pc.replace_with_mask(
        lowered, other, text_array([one.lower() for one in values.filter(other).to_pylist()])
    ), cut


def whole(values: pa.Array, rows: Rows | None = None, limit: TermLimit = INDEXED) -> TermValues:
    """Return whole values as terms; `rows` says which row has each, without it the i-th value belongs to row i."""
    encoded = values if pa.types.is_dictionary(values.type) else pc.dictionary_encode(values)
    codes, is_present = _codes(encoded.indices)
    rows = np.arange(len(values)) if rows is None else rows
    texts, cut = terms(encoded.dictionary.cast(pa.string()), limit)
    return TermValues(texts, codes, rows if is_present is None else rows[is_present], cut=cut)


def element_values(lists: pa.ListArray, limit: TermLimit = INDEXED) -> TermValues:
    """Return the elements of lists as whole values."""
    offsets = integers(lists.offsets, np.int32)
    rows = np.repeat(np.arange(len(lists)), np.diff(offsets))
    return whole(lists.values.slice(offsets[0], offsets[-1] - offsets[0]), rows, limit)


def attribute(table: pa.Table, name: str, limit: TermLimit = INDEXED) -> TermValues:
    """Return an attribute's value after each event: the updated one where the event touched it, else the previous."""
    previous, has_previous = _attribute(column(table, "previous_attributes"), name)
    updated, has_updated = _attribute(column(table, "updated_attributes"), name)
    only_previous = np.flatnonzero(has_previous & ~has_updated)
    # An attribute that the event removed is null among the updated ones, and must not fall back to the previous
    # value.
    before = whole(previous.take(to_arrow(only_previous)), only_previous, limit)
    after = whole(updated, limit=limit)  # null where it is not there, or was removed
    return TermValues.joined([before, after]) if len(before.rows) else after


def words(text: str) -> list[str]:
    """Return the indexed words of a text, in their order."""
    return [token.text for token in WORDS(text)]


def text_values(values: pa.StringArray) -> TermValues:
    """Return the words of each row's text and their places in the text; each distinct text is cut once."""
    encoded = pc.dictionary_encode(values)
    distinct = encoded.dictionary
    plain = flags(pc.string_is_ascii(distinct))
    split = _plain_words(distinct, plain) if plain.all() else _any_words(distinct)
    present = np.flatnonzero(flags(encoded.indices.is_valid()))
    code_of = integers(encoded.indices.drop_null(), np.int32)
    # The words of text t are first[t] to first[t + 1]; each row gets those of its text.
    first = np.searchsorted(split.rows, np.arange(len(distinct) + 1))
    counts = (first[1:] - first[:-1])[code_of]
    positions = within(counts)
    source = np.repeat(first[:-1][code_of], counts) + positions
    return TermValues(split.terms, split.codes[source], np.repeat(present, counts), positions.astype(np.int32))


def literal_prefix(pattern: str) -> str:
    """Return what every match begins with."""
    return _SPECIAL.split(pattern, maxsplit=1)[0]


def match_wildcard(texts: pa.StringArray, pattern: str) -> npt.NDArray[np.bool_]:
    """Return which texts match as a whole, shape (texts,): `*` any characters, `?` one, `[a-z]` one of some.

    Arrow matches patterns without `[` in a time that grows with the text only, however many `*` there are.
    """
    # LIKE has no sets of characters, so these go through Python's expressions, text by text.
    if "[" in pattern:
        matches = re.compile(translate(pattern)).match
        return np.fromiter((matches(text) is not None for text in texts.to_pylist()), np.bool_, len(texts))
    return flags(pc.match_like(texts, _STARS.sub("*", pattern).translate(_LIKE)))


def column(table: pa.Table, name: str) -> pa.Array:
    """Return a column of a table as one array."""
    return one(table.column(name))


def _codes(indices: pa.Array) -> tuple[Codes, npt.NDArray[np.bool_] | None]:
    """Return the indices that are there, and which are there, None for all."""
    if not indices.null_count:
        return integers(indices.cast(pa.int32()), np.int32), None
    is_present = flags(indices.is_valid())
    return integers(indices.cast(pa.int32()), np.int32)[is_present], is_present


def _attribute(maps: pa.MapArray, name: str) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Return the value of one key for each map, and which maps have the key; of a key that is there twice, the last."""
    offsets = integers(maps.offsets, np.int32).astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    keys, items = maps.keys.slice(first, last - first), maps.items.slice(first, last - first)
    hits = np.flatnonzero(flags(pc.equal(keys, text_scalar(name))))
    rows = np.searchsorted(offsets - first, hits, side="right") - 1
    # Later hits overwrite earlier ones: of a key that a map has twice, the last one counts, as in Python.
    places = np.zeros(len(maps), np.int64)
    places[rows] = hits
    present = np.zeros(len(maps), np.bool_)
    present[rows] = True
    return items.take(to_arrow(places, ~present)), present


def _plain_words(values: pa.StringArray, plain: npt.NDArray[np.bool_]) -> TermValues:
    """Return the words of ASCII texts; the rows are the texts' numbers and go up."""
    # Joined anew, so that offsets begin at 0 whatever slice the array was.
    values = pc.ascii_lower(pa.concat_arrays([values]))
    _, offsets_buffer, characters = values.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32, len(values) + 1).astype(np.int64)
    data = np.frombuffer(characters or b"", np.uint8)[: offsets[-1]]
    begin, end = _bounds(data, offsets)
    words = pa.StringArray.from_buffers(*_sliced(data, begin, end))
    encoded = words.dictionary_encode()
    rows = np.searchsorted(offsets, begin, side="right") - 1
    return TermValues(encoded.dictionary, integers(encoded.indices, np.int32), rows)


def _bounds(data: npt.NDArray[np.uint8], offsets: Rows) -> tuple[Rows, Rows]:
    """Return where words begin and end; no word goes over the end of a text."""
    if not len(data):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    inner = offsets[(offsets > 0) & (offsets < len(data))]
    is_word = _IS_WORD[data]
    has_before = np.concatenate([[False], is_word[:-1]])
    # Texts lie one behind the other without a gap: a dot at a border joins nothing.
    has_before[inner] = False
    has_after = np.concatenate([is_word[1:], [False]])
    has_after[inner - 1] = False
    inside = is_word | ((data == _DOT) & has_before & has_after)
    before = np.concatenate([[False], inside[:-1]])
    before[inner] = False
    after = np.concatenate([inside[1:], [False]])
    after[inner - 1] = False
    return np.flatnonzero(inside & ~before), np.flatnonzero(inside & ~after) + 1


def _sliced(data: npt.NDArray[np.uint8], begin: Rows, end: Rows) -> tuple[int, pa.Buffer, pa.Buffer]:
    """Return the length and the buffers of a string array of some pieces of the data, which do not overlap."""
    lengths = end - begin
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    mark = np.zeros(len(data) + 1, np.int8)
    mark[begin] += 1
    np.add.at(mark, end, -1)
    characters = data[np.cumsum(mark[:-1], dtype=np.int8).astype(np.bool_)]
    return len(begin), pa.py_buffer(offsets.tobytes()), pa.py_buffer(characters.tobytes())


def _any_words(values: pa.StringArray) -> TermValues:
    """Return the words of texts, one text after the other."""
    by_text = [words(value) for value in values.to_pylist()]
    flat = text_array([word for row in by_text for word in row]).dictionary_encode()
    rows = np.repeat(np.arange(len(by_text)), [len(row) for row in by_text])
    return TermValues(flat.dictionary, integers(flat.indices, np.int32), rows)


Hashes = npt.NDArray[np.uint32]
_Derived = TypeVar("_Derived")


def encoded(text: str | bytes) -> bytes:
    """Return a term in the form in which a dictionary holds it."""
    return text.encode("utf-8", "replace") if isinstance(text, str) else bytes(text)


def uuid_bytes(term: bytes) -> bytes | None:
    """Return the 16 bytes of a uuid in its usual form, None for another text."""
    try:
        uuid = bytes.fromhex(term.replace(b"-", b"").decode())
    except ValueError:
        return None
    # Written again, because other texts have the same digits: upper case, spaces, dashes at other places.
    return uuid if len(uuid) == _UUID_BYTES and uuid_text(uuid) == term else None


def uuid_text(uuid: bytes) -> bytes:
    """Return the usual form of the 16 bytes of a uuid."""
    digits = uuid.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}".encode()


_UUID_BYTES = 16


class TermSet:
    """Distinct terms of one field."""

    def __init__(self, terms: Iterable[bytes]) -> None:
        self.terms = tuple(dict.fromkeys(terms))
        self.candidates: dict[bytes, npt.NDArray[np.int64]] = {}
        """By the mark of a shard's filter, the numbers of the terms that the shard may have, going up, where filters of
        many shards were asked at once."""
        self._hashed: dict[bytes, tuple[list[bytes], Hashes]] = {}
        self._derived: dict[tuple[bytes, object], object] = {}

    def __len__(self) -> int:
        return len(self.terms)

    @cached_property
    def uuids(self) -> tuple[bytes | None, ...]:
        """The 16 bytes of each term that is a uuid."""
        return tuple(map(uuid_bytes, self.terms))

    def hashed(self, prefix: bytes) -> tuple[list[bytes], Hashes]:
        """Return the terms with a shard's prefix of the field, and the hash of each, shape (terms,)."""
        hashed = self._hashed.get(prefix)
        if hashed is None:
            keys = [prefix + term for term in self.terms]
            hashed = keys, np.fromiter(map(zlib_ng.crc32, keys), np.uint32, len(keys))
            # Without a lock: two threads compute the same value. Shards number their fields alike, so there are few
            # prefixes.
            self._hashed[prefix] = hashed
        return hashed

    def derived(self, prefix: bytes, derive: Callable[[Hashes], _Derived]) -> _Derived:
        """Return what a function makes of the hashes, computed once for all shards with the prefix."""
        key = prefix, derive
        if key not in self._derived:
            self._derived[key] = derive(self.hashed(prefix)[1])
        return cast("_Derived", self._derived[key])


class Alternatives:
    """An OR, taken apart: the terms of each field, and all other parts."""

    def __init__(self, question: query.Or) -> None:
        terms: dict[str, list[bytes]] = defaultdict(list)
        self.others: list[query.Query] = []
        for part in question.children():
            if type(part) is query.Term:
                terms[part.fieldname].append(encoded(part.text))
            else:
                self.others.append(part)
        self.terms = {name: TermSet(texts) for name, texts in terms.items()}


alternatives = ByQuestion(Alternatives)
"""Take an OR apart."""
