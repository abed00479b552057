"""Words of a text, as Whoosh's simple analyzer finds them: letters, digits, `_` and `*`, with single dots in between.

ASCII texts are cut all at once, by what kind of character stands where; the others by the analyzer itself.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from whoosh.analysis import SimpleAnalyzer

from custody.index.arrays import flags, integers
from custody.index.arrays import texts as to_texts
from custody.index.values import Rows, Values

WORDS = SimpleAnalyzer()

_IS_WORD = np.array([chr(code).isalnum() or chr(code) in "_*" for code in range(128)] + [False] * 128)
_DOT = ord(".")


def words(text: str) -> list[str]:
    """Return the indexed words of a text, in their order."""
    return [token.text for token in WORDS(text)]


def text_values(texts: pa.StringArray) -> Values:
    """Return the words of each row's text and where in the text they stand; each distinct text is cut once."""
    encoded = pc.dictionary_encode(texts)
    distinct = encoded.dictionary
    plain = flags(pc.string_is_ascii(distinct))
    found = _plain_words(distinct, plain) if plain.all() else _any_words(distinct)
    kept = np.flatnonzero(flags(encoded.indices.is_valid()))
    code_of = integers(encoded.indices.drop_null(), np.int32)
    # The words of text t are first[t] to first[t + 1]; each row gets those of its text.
    first = np.searchsorted(found.rows, np.arange(len(distinct) + 1))
    counts = (first[1:] - first[:-1])[code_of]
    begins = np.cumsum(counts) - counts
    within = np.arange(int(counts.sum())) - np.repeat(begins, counts)
    source = np.repeat(first[:-1][code_of], counts) + within
    return Values(found.terms, found.codes[source], np.repeat(kept, counts), within.astype(np.int32))


def _plain_words(texts: pa.StringArray, plain: npt.NDArray[np.bool_]) -> Values:
    """Return the words of ASCII texts; the rows are the texts' numbers and go up."""
    texts = pc.ascii_lower(pa.concat_arrays([texts]))
    _, offsets_buffer, characters = texts.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32, len(texts) + 1).astype(np.int64)
    data = np.frombuffer(characters or b"", np.uint8)[: offsets[-1]]
    begin, end = _bounds(data, offsets)
    words = pa.StringArray.from_buffers(*_sliced(data, begin, end))
    encoded = words.dictionary_encode()
    rows = np.searchsorted(offsets, begin, side="right") - 1
    return Values(encoded.dictionary, integers(encoded.indices, np.int32), rows)


def _bounds(data: npt.NDArray[np.uint8], offsets: Rows) -> tuple[Rows, Rows]:
    """Return where words begin and end; no word goes over the end of a text."""
    if not len(data):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    inner = offsets[(offsets > 0) & (offsets < len(data))]
    is_word = _IS_WORD[data]
    has_before = np.concatenate([[False], is_word[:-1]])
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


def _any_words(texts: pa.StringArray) -> Values:
    """Return the words of texts, one text after the other."""
    found = [words(text) for text in texts.to_pylist()]
    flat = to_texts([word for row in found for word in row]).dictionary_encode()
    rows = np.repeat(np.arange(len(found)), [len(row) for row in found])
    return Values(flat.dictionary, integers(flat.indices, np.int32), rows)
