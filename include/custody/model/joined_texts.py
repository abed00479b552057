"""Lists of texts become the buffers of Arrow's columns of texts: Python joins all texts of a list in one call.

Arrow looks at each text by itself, which takes three times as long. Joined with NUL in between, the texts show where
each of them ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import filterfalse
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_INT32_MAX = (1 << 31) - 1
_SEPARATOR = "\0"
_GROUP_CHARACTERS = 64 << 10
"""So many characters are cut at once: more leave the processor's cache, and are new memory each time."""
_NONE = {None}
_ALONE_CHARACTERS = 16 << 10
"""From so many on texts of one length are cut by themselves: with fewer the calls of numpy take longer."""


class TextBuffers(NamedTuple):
    """The buffers of a column of texts, in Arrow's order behind the number of nulls."""

    null_count: int
    validity: bytes | memoryview
    """A bit for each text, whether it is there; empty where all are."""
    offsets: memoryview
    """Where each text begins, and the end of the last."""
    data: bytes | memoryview


def joined_texts(columns: Sequence[list[Any]]) -> list[TextBuffers | None]:
    """Return lists of texts and None as the buffers of columns; None in the place of each that has to be looked at.

    That is one with another value than a text, one with NUL in a text or with half a character, one with both None
    and empty texts, or one without texts.
    """
    made: list[TextBuffers | None] = [None] * len(columns)
    group = _Group(made)
    for place, texts in enumerate(columns):
        if not texts:
            continue
        try:
            made[place] = _of_one_text(texts)
            if made[place] is None:
                # It takes for a text what Arrow takes for one, and refuses all else.
                joined = _SEPARATOR.join(texts)
                made[place] = _of_one_length(texts, joined)
                if made[place] is None:
                    group.add(_Joined(place, texts, joined, has_none=False))
        except UnicodeEncodeError:
            continue
        except TypeError:
            filled = _filled(place, texts)
            if filled is not None:
                group.add(filled)
    group.cut()
    return made


def _of_one_text(texts: list[Any]) -> TextBuffers | None:
    """Return the buffers of a list of nothing but one text, None where it is not known to be one.

    Many columns of most producers are: all events of a batch have one origin.
    """
    text, count = texts[0], len(texts)
    # Three looks before all: to compare other texts takes ten times as long as to find the same object again.
    if not (text is texts[-1] and text is texts[count // 2] and type(text) is str and texts.count(text) == count):
        return None
    # Joined, not repeated: what says that it equals a text may be none, which the join refuses.
    data = "".join(texts).encode()
    length = len(data) // count
    if len(data) > _INT32_MAX:
        return None
    return TextBuffers(0, b"", (np.arange(count + 1, dtype=np.int32) * np.int32(length)).data, data)


def _of_one_length(texts: list[Any], joined: str) -> TextBuffers | None:
    """Return the buffers of texts of one length, as uuids are, None where they are others, or not plain ASCII."""
    count, length = len(texts), len(texts[0])
    step = length + 1
    is_worthwhile = length and _ALONE_CHARACTERS <= len(joined) <= _INT32_MAX
    if not (is_worthwhile and len(joined) == count * step - 1 and joined.isascii()):
        return None
    data = np.frombuffer(joined.encode(), np.uint8)
    # NUL at each of these places and at no other one: then each text ends at one of them.
    if data[length::step].any() or np.count_nonzero(data) != count * length:
        return None
    # Of Arrow's memory: Python would give so much back to the system, and get it anew, each time.
    alone = np.frombuffer(pa.allocate_buffer(count * length), np.uint8)
    # A shorter element takes what it has room for.
    alone[:-length].view(f"V{length}")[:] = data[:-length].view(f"V{step}")
    alone[-length:] = data[-length:]
    offsets = np.arange(0, count * length + 1, length, dtype=np.int32)
    return TextBuffers(0, b"", offsets.data, alone.data)


class _Joined(NamedTuple):
    """A list that is joined, and its place among the others."""

    place: int
    texts: list[Any]
    joined: str
    has_none: bool
    """Whether each empty text stands for None."""


def _filled(place: int, texts: list[Any]) -> _Joined | None:
    """Return texts joined, with an empty one in the place of each None; None where that cannot be, or be undone."""
    try:
        if set(filterfalse(None, texts)) == _NONE:
            texts = [text or "" for text in texts]
            return _Joined(place, texts, _SEPARATOR.join(texts), has_none=True)
    except TypeError:
        pass
    return None


class _Group:
    """Joined lists that are cut at once: a call of numpy takes as long as a hundred texts."""

    def __init__(self, made: list[TextBuffers | None]) -> None:
        self._made = made
        self._lists: list[_Joined] = []
        self._characters = 0

    def add(self, one: _Joined) -> None:
        """Add a list; what is in the group is cut where it is enough."""
        self._lists.append(one)
        self._characters += len(one.joined)
        if self._characters > _GROUP_CHARACTERS:
            self.cut()

    def cut(self) -> None:
        """Make the buffers of each list in the group; none where that cannot be."""
        lists, self._lists, self._characters = self._lists, [], 0
        if not lists:
            return
        try:
            data = np.frombuffer(_SEPARATOR.join([one.joined for one in lists]).encode(), np.uint8)
        except UnicodeEncodeError:
            return
        count = sum([len(one.texts) for one in lists])
        ends = np.flatnonzero(data == 0)
        if len(ends) != count - 1 or len(data) > _INT32_MAX:
            return
        offsets = np.zeros(count + 1, np.int32)
        offsets[1:-1] = ends
        offsets[-1] = len(data)
        offsets[1:] -= np.arange(count, dtype=np.int32)  # the separators before each end
        first = 0
        for place, texts, _, has_none in lists:
            rows = len(texts)
            own = offsets[first : first + rows + 1] - offsets[first]
            null_count, validity = _nulls(own) if has_none else (0, b"")
            self._made[place] = TextBuffers(null_count, validity, own.data, "".join(texts).encode())
            first += rows


def _nulls(offsets: npt.NDArray[np.int32]) -> tuple[int, memoryview]:
    """Return how many texts are empty, and a bit for each that is not."""
    there = offsets[1:] > offsets[:-1]
    return len(there) - int(np.count_nonzero(there)), np.packbits(there, bitorder="little").data
