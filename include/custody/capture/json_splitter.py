"""The splitter of JSON texts: an array's elements, one object a line, or objects one after the other.

The structure of the text decides where an element ends (brackets and commas outside of strings, `JsonStructure`), not a
parser. So an element that is no JSON costs itself only; where the structure itself breaks off, the elements before are
kept and the rest is one piece. The structure is found in columns of bytes, at about 200 MB/s, and does not depend on
where the text is cut into chunks. Of text that is no JSON the answer is deterministic and has no meaning.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from custody.capture.encodings import InputText
from custody.capture.validate import PIECE_BYTES_MAX, InputPlace, Rejected, excerpt, rejected

OPEN, CLOSE, COMMA = 3, 4, 5
_QUOTE, _BACKSLASH = 1, 2
# By single bytes: UTF-8 has none of these inside of another character.
_KINDS = np.zeros(256, np.uint8)
for _text, _kind in ((b'"', _QUOTE), (b"\\", _BACKSLASH), (b"[{", OPEN), (b"]}", CLOSE), (b",", COMMA)):
    _KINDS[list(_text)] = _kind

_Positions = npt.NDArray[np.intp]


class JsonStructure:
    """The structure of one text that comes in chunks; `depth` is the number of open brackets so far."""

    def __init__(self) -> None:
        self.depth = 0
        self._in_string = False
        self._is_escaped = False

    def scan(self, chunk: bytes, level: int) -> list[tuple[int, int]]:
        """Return (position, kind) of each bracket that is the `level`-th one or closes it, and of the commas in it.

        Level 1 is an outermost bracket: the commas are those between its elements.
        """
        kinds = _KINDS[np.frombuffer(chunk, np.uint8)]
        positions = np.flatnonzero(kinds)
        kinds = kinds[positions]
        escaped = self._escaped(positions[kinds == _BACKSLASH], len(chunk))
        is_quote = kinds == _QUOTE
        if len(escaped):
            is_quote &= ~np.isin(positions, escaped, assume_unique=True)
        # Behind an even number of quotes; what a quote itself counts as does not matter.
        outside = (np.cumsum(is_quote) + self._in_string) % 2 == 0
        steps = np.zeros(len(kinds), np.intp)
        steps[outside & (kinds == OPEN)] = 1
        steps[outside & (kinds == CLOSE)] = -1
        depths = self.depth + np.cumsum(steps)
        is_boundary = outside & (
            ((kinds == COMMA) & (depths == level))
            | ((kinds == OPEN) & (depths == level))
            # Also below the level: a bracket too many is a boundary, where the structure breaks off.
            | ((kinds == CLOSE) & (depths <= level - 1))
        )
        if len(kinds):
            self.depth = int(depths[-1])
            self._in_string = not outside[-1]
        return list(zip(positions[is_boundary].tolist(), kinds[is_boundary].tolist(), strict=True))

    def _escaped(self, backslashes: _Positions, length: int) -> _Positions:
        """Return the positions right behind an odd number of backslashes; remember one that lies in the next chunk."""
        first = [0] if self._is_escaped else []
        self._is_escaped = False
        if not len(backslashes):
            self._is_escaped = bool(first) and length == 0
            return np.array(first, np.intp)
        # A backslash at the end of the last chunk and those at the beginning of this one are one run.
        is_continued = bool(first) and backslashes[0] == 0
        odd = behind_odd_runs(backslashes, is_continued=is_continued)
        first = [] if is_continued else first
        self._is_escaped = bool(len(odd)) and int(odd[-1]) == length
        return np.append(np.array(first, np.intp), odd)


def behind_odd_runs(backslashes: _Positions, *, is_continued: bool = False) -> _Positions:
    """Return the positions right behind runs of an odd number of backslashes, whose characters are escaped.

    Args:
        backslashes: their positions, which go up; at least one where the first run is continued.
        is_continued: whether one more backslash, which is not among them, belongs to the first run.
    """
    starts = np.flatnonzero(np.diff(backslashes, prepend=-2) != 1)
    lengths = np.diff(np.append(starts, len(backslashes)))
    ends = backslashes[starts + lengths - 1] + 1
    if is_continued:
        lengths[0] += 1
    odd: _Positions = ends[lengths % 2 == 1]
    return odd


_HEAD_BYTES = 1 << 16
_SPACE = b" \t\r\n"
_LITTLE_BYTES = 4096
_BOM = b"\xef\xbb\xbf"
_BREAKS_OFF = "expected whole events up to the closing bracket, the JSON breaks off here"


class JsonElement(msgspec.Struct, frozen=True, gc=False):
    """One element, byte for byte as in the text."""

    place: InputPlace
    raw: bytes


class _Piece:
    """The element that is being put together from chunks; its bytes are held once."""

    def __init__(self) -> None:
        self._content = io.BytesIO()
        self.size = 0
        self.offset = 0

    def add(self, data: bytes, offset: int) -> None:
        if not self.size:
            bare = data.lstrip(_SPACE)
            self.offset = offset + len(data) - len(bare)
            data = bare
        # Beyond the bound only the size is counted: a message needs no more.
        room = PIECE_BYTES_MAX - self._content.tell()
        self._content.write(data if len(data) <= room else data[:room])
        self.size += len(data)

    def raw(self) -> bytes:
        return self._content.getvalue().rstrip(_SPACE)


class JsonSplitter:
    """Splits one text; `event_bytes_max` bounds an element, a larger one is rejected unread."""

    def __init__(self, text: InputText, event_bytes_max: int) -> None:
        self._text = text
        self._event_bytes_max = event_bytes_max
        self._piece = _Piece()
        self._index = 0
        self._offset = 0  # of the next chunk
        self._is_open = self._is_first = self._is_broken = False

    def split(self) -> Iterator[JsonElement | Rejected]:
        """Yield the elements in their order; the beginning of the text shows how they are arranged."""
        head = self._text.peek(_HEAD_BYTES)
        if head.startswith(_BOM):
            self._skip(len(_BOM))
            head = head[len(_BOM) :]
        head = head.lstrip(_SPACE)
        if head.startswith(b"["):
            yield from self._arrays()
        elif head.startswith(b"{"):
            yield from self._lines() if _is_lines(head) else self._documents()
        else:
            yield self._not_json()

    def split_within(self, key: re.Pattern[bytes]) -> Iterator[JsonElement | Rejected]:
        """Yield the elements of each array that follows a match of `key`; the text around them is passed over.

        A match must end before the array's bracket and be no longer than HEAD_BYTES.
        """
        while self._skip_past(key):
            yield from self._arrays(only_one=True)
        if self._text.cut and not self._is_broken:
            yield self._broken(b"", 0)

    def _arrays(self, *, only_one: bool = False) -> Iterator[JsonElement | Rejected]:
        """Split an array, and those that follow it, as in concatenated files."""
        structure = JsonStructure()
        self._is_open = self._is_first = False
        while chunk := self._text.chunk():
            start = 0
            for position, kind in structure.scan(chunk, 1):
                element = self._boundary(chunk, start, position, kind)
                if element:
                    yield element
                elif element is False:
                    yield self._broken(chunk, start)
                    return
                start = position + 1
                if only_one and kind == CLOSE:
                    self._advance(chunk, start)
                    return
            if not self._is_open and chunk[start:].strip(_SPACE):
                yield self._broken(chunk, start)
                return
            self._keep(chunk, start)
        if self._is_open or self._text.cut:
            yield self._broken(b"", 0)

    def _boundary(
        self, chunk: bytes, start: int, position: int, kind: int
    ) -> JsonElement | Rejected | Literal[False] | None:
        """Return the element that a bracket or comma of the array ends; False where there must be no such boundary."""
        if not self._is_open:
            self._is_open = self._is_first = chunk[start : position + 1].lstrip(_SPACE) == b"["
            return None if self._is_open else False
        is_end = kind == CLOSE
        if is_end and chunk[position : position + 1] != b"]":
            return False
        element = self._element(chunk, start, position, may_be_empty=is_end and self._is_first)
        self._is_open, self._is_first = not is_end, False
        return element

    def _documents(self) -> Iterator[JsonElement | Rejected]:
        structure, is_open = JsonStructure(), False
        while chunk := self._text.chunk():
            start = 0
            for position, kind in structure.scan(chunk, 1):
                if kind != CLOSE:
                    is_open = True
                elif is_open and (element := self._element(chunk, start, position + 1)):
                    yield element
                    start, is_open = position + 1, False
                else:
                    yield self._broken(chunk, start)
                    return
            self._keep(chunk, start)
        if self._piece.size or self._text.cut:
            yield self._broken(b"", 0)

    def _lines(self) -> Iterator[JsonElement | Rejected]:
        while chunk := self._text.chunk():
            first, last = chunk.find(b"\n"), chunk.rfind(b"\n")
            if first >= 0 and (element := self._element(chunk, 0, first)):
                yield element
            if first < last:
                yield from self._whole_lines(chunk[first + 1 : last], self._offset + first + 1)
            self._keep(chunk, last + 1)
        if self._text.cut:
            yield self._broken(b"", 0)
        elif element := self._element(b"", 0, 0):
            yield element

    def _whole_lines(self, lines: bytes, offset: int) -> Iterator[JsonElement | Rejected]:
        """Yield the elements of some lines, the first of which begins at `offset` of the text."""
        for line in lines.split(b"\n"):
            if raw := line.strip(_SPACE):
                before = len(line) - len(line.lstrip(_SPACE)) if len(raw) < len(line) else 0
                yield self._numbered(raw, offset + before, len(raw))
            offset += len(line) + 1

    def _element(
        self, chunk: bytes, start: int, end: int, *, may_be_empty: bool = True
    ) -> JsonElement | Rejected | Literal[False] | None:
        """Return the element before a boundary; for an empty one None, or False where it must not be empty."""
        if self._piece.size:
            self._piece.add(chunk[start:end], self._offset + start)
            size, offset, raw = self._piece.size, self._piece.offset, self._piece.raw()
            self._piece = _Piece()
            # Without the blanks at the end, as far as the end was kept.
            size = len(raw) if size <= PIECE_BYTES_MAX else size
        else:
            raw = chunk[start:end].lstrip(_SPACE)
            offset = self._offset + end - len(raw)
            raw = raw.rstrip(_SPACE)
            size = len(raw)
        if not raw:
            return None if may_be_empty else False
        return self._numbered(raw, offset, size)

    def _numbered(self, raw: bytes, offset: int, size: int) -> JsonElement | Rejected:
        """Return the next element; `raw` are the first of its bytes where it is too large."""
        place = InputPlace(self._index, offset)
        self._index += 1
        if size > self._event_bytes_max:
            return too_large(place, size, self._event_bytes_max, raw)
        return JsonElement(place, raw)

    def _keep(self, chunk: bytes, start: int) -> None:
        """Add the bytes behind the last boundary to the element that they begin."""
        self._piece.add(chunk[start:], self._offset + start)
        self._offset += len(chunk)

    def _broken(self, chunk: bytes, start: int) -> Rejected:
        """Return the rest of the text as one piece."""
        self._is_broken = True
        raw, place = self._rest(chunk, start)
        code, message = self._text.cut or ("not-json", _BREAKS_OFF)
        return rejected(InputPlace(self._index, place), code, message, raw)

    def _not_json(self) -> Rejected:
        raw, _ = self._rest(b"", 0)
        expected = f"expected a JSON array of events, got {excerpt(raw)}; one event a line is read too"
        code, message = self._text.cut or ("not-json", expected)
        return rejected(InputPlace(None, 0), code, message, raw)

    def _rest(self, chunk: bytes, start: int) -> tuple[bytes, int]:
        self._keep(chunk, start)
        while chunk := self._text.chunk():
            self._keep(chunk, 0)
        offset = self._piece.offset if self._piece.size else self._offset
        return self._piece.raw(), offset

    def _advance(self, chunk: bytes, size: int) -> None:
        """Pass over the first bytes of a chunk and put the rest back.

        A little of it becomes a chunk of its own: often the next boundary is near, and the large part stays untouched.
        """
        self._text.put_back(chunk[size + _LITTLE_BYTES :])
        self._text.put_back(chunk[size : size + _LITTLE_BYTES])
        self._offset += size

    def _skip(self, size: int) -> None:
        while size and (chunk := self._text.chunk()):
            passed = min(size, len(chunk))
            self._advance(chunk, passed)
            size -= passed

    def _skip_past(self, key: re.Pattern[bytes]) -> bool:
        window = b""
        while chunk := self._text.chunk():
            window += chunk
            if match := key.search(window):
                self._advance(window, match.end())
                return True
            # A match may begin in this window and end in the next one: the last bytes are searched again.
            passed = max(0, len(window) - _HEAD_BYTES)
            window, self._offset = window[passed:], self._offset + passed
        return False


def _is_lines(head: bytes) -> bool:
    """Whether there is one object a line: the first line is a whole object, or the second begins like another one."""
    line, newline, rest = head.partition(b"\n")
    # A first line that is longer than the head counts as a whole object.
    if not newline:
        return True
    try:
        msgspec.json.decode(line, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return rest[:1] == b"{"
    return True


def too_large(place: InputPlace, size: int, bytes_max: int, raw: bytes) -> Rejected:
    """Return the rejection of an element of `size` bytes, of which `raw` are the first."""
    message = f"expected at most {bytes_max} bytes (capture.event_bytes_max), got {size}"
    if len(raw) < size:
        message += f"; the first {len(raw)} of them are kept"
    return rejected(place, "event-too-large", message, raw)
