"""The delivery of a spool: its events go to a server batch by batch, and each segment goes when all of it was taken.

One process delivers at a time. The positions follow the server's acknowledgement; what was sent twice because of a
crash in between counts as repeated there. An event that the server does not take for good is put aside with the reason,
durably before its place is passed, so that it does not hold up the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from custody.client.spool import (
    DELIVERY_LOCK,
    IDENTITY,
    REFUSED,
    Positions,
    lock_name,
    read_positions,
    read_segment,
    segment_name,
    segment_numbers,
    write_positions,
)
from custody.errors import InvalidInputError, NotFoundError
from custody.vfs import FileSystem, PosixFileSystem

DAMAGED_SUFFIX = ".damaged"
BATCH_BYTES = 1 << 20
"""Frames are sent together up to this size."""


class Receipt(msgspec.Struct, frozen=True):
    """What a server says of a batch."""

    stored: int = 0
    repeated: int = 0
    rejected: int = 0
    """Kept in the server's quarantine."""


class DeliverySummary(msgspec.Struct, frozen=True, kw_only=True):
    """What one delivery came to."""

    stored: int = 0
    repeated: int = 0
    rejected: int = 0
    refused: int = 0
    """Events that were put aside here."""
    segments: int = 0
    """Segments that are gone now."""


class Sender(Protocol):
    """Where events go."""

    def send(self, lines: bytes) -> Receipt:
        """Deliver events, a line of JSON each.

        Raises:
            InvalidInputError: they are not taken, and never will be.
            CustodyError: it is unknown whether they were taken.
        """
        ...


class SpoolDelivery:
    """Delivers a spool.

    Args:
        folder: of the spool.
        sender: where events go.
        fs: where the folder lies.
        progress: called with the events delivered so far.
    """

    def __init__(
        self,
        folder: Path,
        sender: Sender,
        fs: FileSystem | None = None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._folder = Path(folder)
        self._sender = sender
        self._fs: FileSystem = fs or PosixFileSystem()
        self._progress = progress
        self._positions = Positions()
        self._receipt = Receipt()
        self._refused = 0
        self._segments = 0

    def deliver(self) -> DeliverySummary:
        """Deliver what waits now.

        Raises:
            NotFoundError: there is no spool.
            LockedError: another process delivers it.
            CustodyError: the server did not take it; what was acknowledged before stays delivered.
        """
        if not self._fs.exists(self._folder / IDENTITY):
            raise NotFoundError(f"{self._folder}: expected a spool, found no file {IDENTITY}.")
        self._receipt, self._refused, self._segments = Receipt(), 0, 0
        with self._fs.lock(self._folder / DELIVERY_LOCK):
            self._positions = read_positions(self._fs, self._folder)
            # A segment's name may not be durable yet. If its number were given out again after a power failure, other
            # events would come under ordinals that the server has.
            self._fs.sync_directory(self._folder)
            self._remove_finished()
            for number in segment_numbers(self._fs, self._folder):
                self._deliver_segment(number)
        return DeliverySummary(
            stored=self._receipt.stored,
            repeated=self._receipt.repeated,
            rejected=self._receipt.rejected,
            refused=self._refused,
            segments=self._segments,
        )

    def _deliver_segment(self, number: int) -> None:
        # Before it is read: a segment that is let go of after this look may have more, and waits for the next delivery.
        is_live = self._fs.is_locked(self._folder / lock_name(number))
        content = read_segment(self._fs, self._folder / segment_name(number))
        done = self._positions.frames.get(number, 0)
        for batch in _batches(content.frames[done:]):
            self._send(number, b"".join(batch))
            done += len(batch)
            self._move(msgspec.structs.replace(self._positions, frames={**self._positions.frames, number: done}))
        if is_live:
            return
        if content.damaged_bytes:
            # The bytes stay for whoever can make sense of them, under a name that no delivery looks at. The number is
            # spent before the name that shows it goes.
            source = self._folder / segment_name(number)
            self._move(msgspec.structs.replace(self._positions, next_number=self._next_number(number)))
            self._fs.rename(source, source.with_suffix(DAMAGED_SUFFIX))
            self._fs.sync_directory(self._folder)
        self._finish(number)
        self._remove_finished()
        self._segments += 1

    def _send(self, number: int, lines: bytes) -> None:
        try:
            receipt = self._sender.send(lines)
        except InvalidInputError as error:
            events = lines.splitlines(keepends=True)
            if len(events) == 1:
                self._put_aside(number, lines, str(error))
                return
            half = len(events) // 2
            self._send(number, b"".join(events[:half]))
            self._send(number, b"".join(events[half:]))
            return
        before = self._receipt
        self._receipt = Receipt(
            before.stored + receipt.stored, before.repeated + receipt.repeated, before.rejected + receipt.rejected
        )
        self._progress(self._receipt.stored + self._receipt.repeated + self._receipt.rejected)

    def _put_aside(self, number: int, line: bytes, reason: str) -> None:
        folder = self._folder / REFUSED
        self._fs.make_directory(folder)
        event = msgspec.json.decode(line)
        name = f"{number:010d}-{event.get('source_ordinal', 0)}.json"
        self._fs.write_durably(folder / name, msgspec.json.encode({"reason": reason, "event": event}))
        self._refused += 1

    def _finish(self, number: int) -> None:
        """Keep that a segment is done and its number spent, before its file goes."""
        self._move(
            Positions(
                next_number=self._next_number(number),
                frames={key: value for key, value in self._positions.frames.items() if key != number},
                finished=(*self._positions.finished, number),
            )
        )

    def _next_number(self, number: int) -> int:
        return max(self._positions.next_number, number + 1)

    def _remove_finished(self) -> None:
        if not self._positions.finished:
            return
        for number in self._positions.finished:
            self._fs.remove(self._folder / segment_name(number))
            self._fs.remove(self._folder / lock_name(number))
        # Durable before the numbers are forgotten: a file that came back would be delivered anew.
        self._fs.sync_directory(self._folder)
        self._move(msgspec.structs.replace(self._positions, finished=()))

    def _move(self, positions: Positions) -> None:
        write_positions(self._fs, self._folder, positions)
        self._positions = positions


def _batches(frames: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Yield the frames in lists of about the size of a batch."""
    batch: list[bytes] = []
    size = 0
    for lines in frames:
        if batch and size + len(lines) > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(lines)
        size += len(lines)
    if batch:
        yield batch
