"""The bad pieces of one body, held until all of it was read, and then kept in the quarantine together.

Their number is bounded, whatever comes: beyond the first PIECES_MAX, which are kept one by one, the others of a body
are joined to texts that can be read again as they are. So a body of a million bad pieces costs one file of about its
size.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from custody.capture import Format, InputPlace
from custody.capture.avro import header_size
from custody.capture.validate import NOT_JSON
from custody.errors import InvalidInputError
from custody.model import EventProblem
from custody.quarantine import BadPiece, bad_piece

PIECES_MAX = 1000
"""Pieces of a body that are kept one by one."""
BYTES_MAX = 64 << 20
"""Of bad pieces that are held: a file with more of them gets several bodies in the quarantine."""
_ANY_JSON = msgspec.json.Decoder(msgspec.Raw)


class HeldPiece(NamedTuple):
    """A piece that could not be stored, or was stored with a warning, and why."""

    raw: bytes
    place: InputPlace
    problem: EventProblem


class BodyFacts(NamedTuple):
    """What the pieces of a body share."""

    file: str
    format: Format
    node: str | None


@dataclass(slots=True)
class _Joined:
    """Pieces that are one text."""

    problem: EventProblem
    """Of the first one."""
    place: InputPlace
    text: bytearray
    codes: Counter[str] = field(default_factory=Counter)


class BadPieces:
    """Collects the bad pieces of one body."""

    def __init__(self) -> None:
        self.nbytes = 0
        self.first: list[HeldPiece] = []
        """Those that are kept one by one."""
        self._joined: dict[bytes, _Joined] = {}
        """The others, by the bytes that each of their texts begins with."""

    def __bool__(self) -> bool:
        return bool(self.first)

    @property
    def is_full(self) -> bool:
        """Whether no more should be held."""
        return self.nbytes >= BYTES_MAX

    def add(self, piece: HeldPiece, format: Format) -> None:
        """Hold a piece."""
        self.nbytes += len(piece.raw)
        if len(self.first) < PIECES_MAX:
            self.first.append(piece)
            return
        begin, text = _joinable(piece.raw, format)
        joined = self._joined.get(begin)
        if joined is None:
            joined = self._joined[begin] = _Joined(piece.problem, piece.place, bytearray(begin))
        joined.codes[piece.problem.code] += 1
        joined.text += text

    def taken(self, facts: BodyFacts, now_ms: int) -> list[BadPiece]:
        """Return what the quarantine keeps of the body, the pieces of `first` first; hold nothing any more."""
        pieces = [_kept(piece, facts, now_ms) for piece in self.first]
        for begin, joined in self._joined.items():
            text = bytes(joined.text[:-1] + b"]" if begin == b"[" else joined.text)
            count = joined.codes.total()
            codes = ", ".join(f"{code} {times}" for code, times in joined.codes.most_common())
            message = f"{count} more pieces of this body ({codes}), the first one: {joined.problem.message}"
            problem = EventProblem(joined.problem.severity, joined.problem.code, message)
            whole = InputPlace(None, joined.place.offset)
            pieces.append(_kept(HeldPiece(text, whole, problem), facts, now_ms, count))
        self.nbytes, self.first, self._joined = 0, [], {}
        return pieces


def _joinable(raw: bytes, format: Format) -> tuple[bytes, bytes]:
    """Return what the text of a piece and its like begins with, and what the piece adds to it."""
    if format is Format.NIFI_AVRO:
        try:
            size = header_size(raw)
        except InvalidInputError:
            return b"", raw + b"\n"
        # Of one file all have the same header: behind it their blocks are a file again.
        return raw[:size], raw[size:]
    try:
        _ANY_JSON.decode(raw)
    except NOT_JSON:
        return b"", raw + b"\n"
    return b"[", raw + b","


def _kept(piece: HeldPiece, facts: BodyFacts, now_ms: int, count: int = 1) -> BadPiece:
    raw, place, problem = piece
    return bad_piece(
        raw,
        severity=problem.severity,
        code=problem.code,
        message=problem.message,
        file=facts.file,
        index=place.index,
        offset=place.offset,
        node=facts.node,
        received_ms=now_ms,
        format=facts.format,
        pieces=count,
    )
