"""The decompressed text of an input file, in chunks: a plain stream, or one or several gzip members.

Memory is bounded by the chunk, work by the bytes of file and text, however many members there are. Damage and excess do
not raise: the text ends there, and `cut` names the reason.
"""

from __future__ import annotations

import re
import zlib
from collections import deque
from typing import BinaryIO

CHUNK_BYTES = 1 << 16
GZIP = b"\x1f\x8b"
_WINDOW_BITS = 31  # tells zlib to expect and check a gzip header and trailer
SMALL_MEMBERS_MAX = 1000
MEMBER_BYTES_MIN = 64
"""Of text, on average, where a file has more members than SMALL_MEMBERS_MAX: one costs as much work as a page."""
_FIRST_PIECE_BYTES = 64
_ZEROS = re.compile(rb"\0*")


class InputText:
    """Reads a binary stream from its position on; `bytes_max` bounds the text after decompression."""

    def __init__(self, stream: BinaryIO, *, bytes_max: int, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._stream = stream
        self._left = bytes_max
        self.bytes_max = bytes_max
        """Of the text, and of what a format unpacks of it once more."""
        self._chunk_bytes = chunk_bytes
        self._ahead: deque[bytes] = deque()
        # A stream may return less than was asked for; two bytes decide whether it is gzip.
        self._input = stream.read(2)
        while len(self._input) == 1 and (more := stream.read(1)):
            self._input += more
        self._is_gzip = self._input == GZIP
        self._place = 0
        """Of the next byte of `_input` that is compressed."""
        self._fed = _FIRST_PIECE_BYTES
        """Bytes that the next piece may have."""
        self._members = 0
        self._text_bytes = 0
        """Of the members so far."""
        self._member: zlib._Decompress | None = None
        if self._is_gzip:
            self._begin_member()
        self.cut: tuple[str, str] | None = None
        """Code and message when the text ended before the file did."""

    def chunk(self) -> bytes:
        """Return the next bytes, at least one; nothing at the end."""
        return self._ahead.popleft() if self._ahead else self._next()

    def put_back(self, data: bytes) -> None:
        """Have the next `chunk` return these bytes."""
        if data:
            self._ahead.appendleft(data)

    def peek(self, size: int) -> bytes:
        """Return the next `size` bytes, fewer only where the text ends, and leave them to be read."""
        have = sum(map(len, self._ahead))
        while have < size and (more := self._next()):
            self._ahead.append(more)
            have += len(more)
        return b"".join(self._ahead)[:size]

    def _next(self) -> bytes:
        if self.cut is not None:
            return b""
        data = self._inflated() if self._is_gzip else self._plain()
        # The bound holds for the decompressed text: a small gzip file may hold any amount of it.
        if len(data) > self._left:
            data = data[: self._left]
            self.cut_short()
        self._left -= len(data)
        return data

    def cut_short(self) -> None:
        """End the text here: it is larger than it may be."""
        self.cut = (
            "file-too-large",
            f"expected at most {self.bytes_max} bytes of text (capture.file_bytes_max), got more. "
            "Raise the limit and ingest the file again; what is stored already is not stored twice",
        )

    def _plain(self) -> bytes:
        data, self._input = self._input, b""
        return data or self._stream.read(self._chunk_bytes)

    def _inflated(self) -> bytes:
        """Return about a chunk, or all that is left: chunks of a few bytes each would cost their readers dearly."""
        parts: list[bytes] = []
        size = 0
        while size < self._chunk_bytes and (part := self._inflated_part(self._chunk_bytes - size)):
            parts.append(part)
            size += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _inflated_part(self, size: int) -> bytes:
        while self._member is not None:
            piece = self._next_input(self._fed)
            if not piece:
                return self._damaged("it ends in the middle")
            try:
                # At most so much at a time, whatever the input expands to.
                data = self._member.decompress(piece, size)
            except zlib.error as error:
                return self._damaged(str(error))
            # Of the piece, bytes are left where the member ended before them, or the output had no room for more.
            left = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
            self._place += len(piece) - len(left)
            self._text_bytes += len(data)
            self._fed = min(2 * self._fed, self._chunk_bytes)
            if self._member.eof:
                self._after_member()
            if data:
                return data
        return b""

    def _next_input(self, size: int) -> bytes:
        """Return at most `size` bytes of the file, none at its end, and leave them to be read."""
        if self._place == len(self._input):
            self._input, self._place = self._stream.read(self._chunk_bytes), 0
        return self._input[self._place : self._place + size]

    def _after_member(self) -> None:
        """Begin the next member, if there is one: gzip files may be concatenated."""
        self._member = None
        self._members += 1
        # By the place in the chunk: who cut off what was read would copy the rest once for each member.
        while self._next_input(1) == b"\0":  # tapes pad with zeros
            zeros = _ZEROS.match(self._input, self._place)
            assert zeros is not None  # noqa: S101 - no zero at all is a match, too
            self._place = zeros.end()
        rest = self._input[self._place : self._place + len(GZIP)]
        if len(rest) == 1:
            self._input, self._place = rest + self._stream.read(self._chunk_bytes), 0
            rest = self._input[: len(GZIP)]
        if self._members > SMALL_MEMBERS_MAX + self._text_bytes // MEMBER_BYTES_MIN:
            self._damaged(f"its members hold less than {MEMBER_BYTES_MIN} bytes each")
        elif rest == GZIP:
            self._begin_member()
        elif rest:
            self._damaged("bytes that are not gzip follow it")

    def _begin_member(self) -> None:
        self._member = zlib.decompressobj(_WINDOW_BITS)
        # A member may be a few bytes long, and the bytes behind it are copied: pieces grow with the member.
        self._fed = _FIRST_PIECE_BYTES

    def _damaged(self, cause: str) -> bytes:
        self.cut = ("bad-gzip", f"expected whole gzip data, the file is damaged ({cause})")
        return b""
