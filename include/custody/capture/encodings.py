"""The decompressed text of an input file, in chunks: a plain stream, or one or several gzip members.

Memory is bounded by the chunk. Damage and excess do not raise: the text ends there, and `cut` says why.
"""

from __future__ import annotations

import zlib
from collections import deque
from typing import BinaryIO

CHUNK_BYTES = 1 << 16
_GZIP = b"\x1f\x8b"
_GZIP_WINDOW_BITS = 31  # tells zlib to expect and check a gzip header and trailer


class InputText:
    """Reads a binary stream from its position on; `bytes_max` bounds the text after decompression."""

    def __init__(self, stream: BinaryIO, *, bytes_max: int, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._stream = stream
        self._left = bytes_max
        self._bytes_max = bytes_max
        self._chunk_bytes = chunk_bytes
        self._ahead: deque[bytes] = deque()
        # A stream may return less than was asked for; two bytes decide whether it is gzip.
        self._input = stream.read(2)
        while len(self._input) == 1 and (more := stream.read(1)):
            self._input += more
        self._is_gzip = self._input == _GZIP
        self._member = self._new_member() if self._is_gzip else None
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
            self.cut = (
                "file-too-large",
                f"expected at most {self._bytes_max} bytes of text (capture.file_bytes_max), got more. "
                "Raise the limit and ingest the file again; what is stored already is not stored twice",
            )
        self._left -= len(data)
        return data

    def _plain(self) -> bytes:
        data, self._input = self._input, b""
        return data or self._stream.read(self._chunk_bytes)

    def _inflated(self) -> bytes:
        while self._member is not None:
            if not self._input:
                self._input = self._stream.read(self._chunk_bytes)
            if not self._input:
                return self._damaged("it ends in the middle")
            try:
                # At most a chunk at a time, whatever the input expands to.
                data = self._member.decompress(self._input, self._chunk_bytes)
            except zlib.error as error:
                return self._damaged(str(error))
            # What was not unpacked yet, as the output is bounded; it comes before the next bytes of the file.
            self._input = self._member.unconsumed_tail
            if self._member.eof:
                self._after_member(self._member.unused_data)
            if data:
                return data
        return b""

    def _after_member(self, rest: bytes) -> None:
        """Begin the next member, if there is one: gzip files may be concatenated."""
        self._member, self._input = None, b""
        rest = rest.lstrip(b"\0")  # tapes pad with zeros
        while len(rest) < len(_GZIP) and (more := self._stream.read(self._chunk_bytes)):
            rest = (rest + more).lstrip(b"\0")
        if rest.startswith(_GZIP):
            self._member, self._input = self._new_member(), rest
        elif rest:
            self._damaged("bytes that are not gzip follow it")

    def _damaged(self, cause: str) -> bytes:
        self.cut = ("bad-gzip", f"expected whole gzip data, the file is damaged ({cause})")
        return b""

    @staticmethod
    def _new_member() -> zlib._Decompress:
        return zlib.decompressobj(_GZIP_WINDOW_BITS)
