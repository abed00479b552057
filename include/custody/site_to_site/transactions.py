"""Transactions of Site-to-Site on their way: begun, their packets staged on disk, ended, and the end remembered.

A transaction owes nothing before its sender confirms it, so its packets are written without a sync. `commit` hands
them on, and what takes them makes them durable; then the end is written durably, and only then answered. So the same
confirmation again, after a lost answer or a restart, gets the same answer. docs/formats/site-to-site.md.

Processes share the folder: any of them serves any request of a transaction.
"""

from __future__ import annotations

import io
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

import msgspec
from zlib_ng import zlib_ng

from custody.clock import Clock
from custody.errors import BackpressureError, CorruptionError, NotFoundError, StorageError
from custody.format.checked_json import has_right_checksum, with_checksum
from custody.site_to_site.packets import PacketError, PacketLimits, PacketReader, drive
from custody.vfs import TEMPORARY_SUFFIX, FileSystem, temporary

ENDED_FOLDER = "ended"
_OPEN, _PACKETS, _STAGED, _ENDED = ".open", ".packets", ".staged", ".json"
# Milliseconds since 1970 when it was begun, so that names alone say what is old, and 122 random bits: the id is all
# that later requests show of who sends them.
_ID = re.compile(r"[0-9]{13}-[0-9a-f]{32}")
_ID_LENGTH = 13 + 1 + 32
ENDED_KEPT_MS = 3_600_000
"""How long after its begin a transaction's end is remembered."""
_SWEEP_ENDED_MS = 60_000
_COMMIT_MS = 300_000
"""How long a commit may take before a sweep takes the transaction for abandoned."""
_VERSION = 1
_State = TypeVar("_State")

Deliver = Callable[[Mapping[str, str], BinaryIO], object]
"""Takes the attributes and the content of one packet; on return it has them durably."""


class UnknownTransactionError(NotFoundError):
    """No transaction has this id: it never had, it expired, or it ended long ago."""


class TransactionStateError(PacketError):
    """A request comes at the wrong time: a second body, or a confirmation without one."""


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """Bounds of transactions."""

    open_max: int
    seconds: int
    """How long a transaction lives without a sign of its sender."""
    packets: PacketLimits


class OpenTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """The sign of life of a transaction."""

    expires_ms: int


class StagedTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """What a body held that was read to its end."""

    packets: int
    bytes: int
    crc32: int


class EndedTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """How a transaction ended that was confirmed and stored."""

    format_version: int = _VERSION
    packets: int
    ended_ms: int

    def encode(self) -> bytes:
        """Return the file's bytes."""
        return with_checksum(msgspec.json.encode(self, order="sorted"))


_OPEN_FORM = msgspec.json.Decoder(OpenTransaction)
_STAGED_FORM = msgspec.json.Decoder(StagedTransaction)
_ENDED_FORM = msgspec.json.Decoder(EndedTransaction)


def read_ended(fs: FileSystem, path: Path) -> EndedTransaction | None:
    """Return how a transaction ended; None where nothing readable says so."""
    if not fs.exists(path):
        return None
    data = fs.read(path)
    if not has_right_checksum(data):
        return None
    try:
        ended = _ENDED_FORM.decode(data)
    except msgspec.DecodeError:
        return None
    return ended if ended.format_version == _VERSION else None


class Transactions:
    """The transactions of one input port. Threads may share it."""

    def __init__(self, fs: FileSystem, folder: Path, clock: Clock, limits: TransactionLimits) -> None:
        self._fs = fs
        self._folder = folder
        self._clock = clock
        self.limits = limits
        # One commit at a time: a repeated confirmation waits for the first one, and finds how that ended.
        self._committing = threading.Lock()
        self._beginning = threading.Lock()
        self._ended_swept_ms = 0
        fs.make_directory(folder / ENDED_FOLDER)

    def begin(self) -> str:
        """Begin a transaction; return its id.

        Raises:
            BackpressureError: too many are open.
            StorageError: the disk refused.
        """
        with self._beginning:
            open_now = self.sweep()
            if open_now >= self.limits.open_max:
                raise BackpressureError(
                    f"{open_now} transactions are open (site_to_site.transactions_max). Try again later."
                )
            transaction = f"{self._clock.now_ms():013d}-{uuid.uuid4().hex}"
            self._touch(transaction, self._lifetime_ms)
        return transaction

    def extend(self, transaction: str) -> None:
        """Start the time of a transaction anew.

        Raises:
            UnknownTransactionError: there is none.
        """
        self.require(transaction)
        self._touch(transaction, self._lifetime_ms)

    def require(self, transaction: str) -> None:
        """Check that a transaction is open.

        Raises:
            UnknownTransactionError: it is not.
        """
        state = self._read(transaction, _OPEN, _OPEN_FORM)
        if state is None or state.expires_ms <= self._clock.now_ms():
            raise UnknownTransactionError(f"no transaction {transaction[:80]!r} is open here: it is over, or expired.")

    def stage(self, transaction: str, *, is_compressed: bool) -> Staging:
        """Return where the packets of a transaction go.

        Raises:
            UnknownTransactionError: there is none.
            TransactionStateError: its packets came already.
        """
        self.require(transaction)
        path = self._path(transaction, _PACKETS)
        if self._fs.exists(path):
            raise TransactionStateError(f"transaction {transaction}: expected one body, got a second one.")
        return Staging(self, transaction, self._fs, path, self.limits.packets, is_compressed=is_compressed)

    def staged(self, transaction: str, staged: StagedTransaction) -> None:
        """Note that all packets of a transaction lie in its file; its time starts anew.

        Raises:
            UnknownTransactionError: it expired meanwhile.
        """
        self.extend(transaction)
        self._replace(self._path(transaction, _STAGED), msgspec.json.encode(staged))

    def commit(self, transaction: str, deliver: Deliver) -> EndedTransaction:
        """Hand a transaction's packets on, each once it was confirmed; the same answer to the same confirmation.

        Durability: on return the end survives power loss, and so does all that `deliver` made durable.

        Raises:
            UnknownTransactionError: there is none, or its bytes did not survive a power failure.
            TransactionStateError: it has no packets.
            CustodyError: whatever `deliver` raises; the transaction stays as it is.
        """
        with self._committing:
            ended = self._ended(transaction)
            if ended is not None:
                self._discard(transaction)  # a crash may have come between
                return ended
            staged = self._staged(transaction)
            self._touch(transaction, _COMMIT_MS)
            for attributes, content in self._packets(transaction, staged):
                deliver(attributes, content)
            ended = EndedTransaction(packets=staged.packets, ended_ms=self._clock.now_ms())
            self._fs.write_durably(self._ended_path(transaction), ended.encode())
            self._discard(transaction)
            return ended

    def cancel(self, transaction: str) -> None:
        """Throw a transaction away.

        Raises:
            UnknownTransactionError: there is none.
        """
        self.require(transaction)
        self._discard(transaction)

    def abandon(self, transaction: str) -> None:
        """Throw a transaction away, if there is one."""
        self._discard(transaction)

    def sweep(self) -> int:
        """Remove what expired, and what crashes left; return how many transactions are open."""
        now = self._clock.now_ms()
        if now - self._ended_swept_ms >= _SWEEP_ENDED_MS:
            self._ended_swept_ms = now
            self._sweep_ended(now)
        names = self._fs.list(self._folder)
        known = {name.removesuffix(_OPEN) for name in names if name.endswith(_OPEN)}
        alive = {transaction for transaction in known if self._is_alive(transaction, now)}
        for transaction in known - alive:
            self._discard(transaction)
        for name in names:
            if self._is_left_over(name, known, now):
                self._fs.remove(self._folder / name)
        return len(alive)

    @property
    def _lifetime_ms(self) -> int:
        return self.limits.seconds * 1000

    def _is_alive(self, transaction: str, now: int) -> bool:
        state = self._read(transaction, _OPEN, _OPEN_FORM)
        return state is not None and state.expires_ms > now

    def _is_left_over(self, name: str, known: set[str], now: int) -> bool:
        """Whether a file belongs to no transaction any more."""
        transaction = name[:_ID_LENGTH]
        if not _ID.fullmatch(transaction) or transaction in known:
            return False
        if name.endswith(TEMPORARY_SUFFIX):
            return _is_older(name, now)  # it may have been made in this moment, to become a sign of life
        # Asked once more: a list may lack a name that is being replaced.
        return not self._fs.exists(self._path(transaction, _OPEN))

    def _sweep_ended(self, now: int) -> None:
        for name in self._fs.list(self._folder / ENDED_FOLDER):
            if not _is_older(name, now):
                return  # names are sorted, and begin with their time
            self._fs.remove(self._folder / ENDED_FOLDER / name)

    def _ended(self, transaction: str) -> EndedTransaction | None:
        return read_ended(self._fs, self._ended_path(transaction)) if _ID.fullmatch(transaction) else None

    def _staged(self, transaction: str) -> StagedTransaction:
        self.require(transaction)
        staged = self._read(transaction, _STAGED, _STAGED_FORM)
        if staged is None or not staged.packets:
            raise TransactionStateError(f"transaction {transaction}: expected packets before it is confirmed.")
        return staged

    def _packets(self, transaction: str, staged: StagedTransaction) -> Iterator[tuple[Mapping[str, str], BinaryIO]]:
        path = self._path(transaction, _PACKETS)
        view = self._fs.view(path)
        try:
            # Written without a sync: after a power failure the bytes may be others than those that were agreed upon.
            if len(view) != staged.bytes or zlib_ng.crc32(view) != staged.crc32:
                self._discard(transaction)
                raise UnknownTransactionError(f"transaction {transaction}: its bytes were lost. Send it again.")
            stream = _ViewStream(view)
            reader = PacketReader(lambda _: None, PacketLimits(len(view)), is_compressed=False)
            for _ in range(staged.packets):
                attributes, length = drive(reader.head(), stream.exactly)
                with stream.part(length) as content:
                    yield attributes, content
        finally:
            view.release()

    def _touch(self, transaction: str, lifetime_ms: int) -> None:
        state = OpenTransaction(expires_ms=self._clock.now_ms() + lifetime_ms)
        self._replace(self._path(transaction, _OPEN), msgspec.json.encode(state))

    def _replace(self, path: Path, data: bytes) -> None:
        """Replace a file without a sync: nothing is owed yet, and after a power failure the sender sends all anew."""
        partial = temporary(path)
        with self._fs.create(partial) as file:
            file.write(data)
        self._fs.rename(partial, path)

    def _read(self, transaction: str, suffix: str, form: msgspec.json.Decoder[_State]) -> _State | None:
        # An id from outside becomes part of a path only if it looks like one of ours.
        path = self._folder / f"{transaction}{suffix}"
        if not _ID.fullmatch(transaction) or not self._fs.exists(path):
            return None
        with suppress(msgspec.DecodeError, StorageError):
            return form.decode(self._fs.read(path))
        return None  # another process ended it in between, or a power failure left no whole file

    def _path(self, transaction: str, suffix: str) -> Path:
        return self._folder / f"{transaction}{suffix}"

    def _ended_path(self, transaction: str) -> Path:
        return self._folder / ENDED_FOLDER / f"{transaction}{_ENDED}"

    def _discard(self, transaction: str) -> None:
        if _ID.fullmatch(transaction):
            # The sign of life last: what a crash leaves is still known, and swept.
            for suffix in (_STAGED, _PACKETS, _OPEN):
                self._fs.remove(self._path(transaction, suffix))


class Staging:
    """The packets of one transaction while they come; ended by `end`, or given up by `abort`."""

    def __init__(
        self,
        transactions: Transactions,
        transaction: str,
        fs: FileSystem,
        path: Path,
        limits: PacketLimits,
        *,
        is_compressed: bool,
    ) -> None:
        self._transactions = transactions
        self._transaction = transaction
        self._file = fs.create(path)
        self.reader = PacketReader(self._file.write, limits, is_compressed=is_compressed)

    def feed(self, data: bytes) -> None:
        """Take the next bytes of a body; raises PacketError as `PacketReader.feed`, StorageError for the disk."""
        self.reader.feed(data)

    def end(self) -> int:
        """Say that the body has ended; return the checksum of its packets.

        Raises:
            PacketError: it ended within a packet, or had none.
            UnknownTransactionError: the transaction expired meanwhile.
        """
        self.reader.end()
        if not self.reader.packets:
            raise self.reader.wrong("a packet", "an empty body")
        self._file.close()
        staged = StagedTransaction(
            packets=self.reader.packets, bytes=self.reader.plain_bytes, crc32=self.reader.checksum
        )
        self._transactions.staged(self._transaction, staged)
        return self.reader.checksum

    def abort(self) -> None:
        """Throw the transaction away: its sender has to begin another one."""
        self._file.close()
        self._transactions.abandon(self._transaction)


class _ViewStream:
    """Reads the staged bytes of a transaction from their beginning."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._place = 0

    def exactly(self, length: int) -> bytes:
        """Return the next bytes."""
        end = self._place + length
        if end > len(self._view):
            raise CorruptionError(f"byte {self._place}: expected {length} more staged bytes, got fewer.")
        data = bytes(self._view[self._place : end])
        self._place = end
        return data

    def part(self, length: int) -> BinaryIO:
        """Return the next bytes as a file, without a copy of all of them."""
        start, self._place = self._place, self._place + length
        return cast(BinaryIO, io.BufferedReader(_ViewFile(self._view[start : self._place])))


class _ViewFile(io.RawIOBase):
    """A part of memory as a file that can be read."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._place = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        target = memoryview(cast(bytearray, buffer)).cast("B")
        piece = self._view[self._place : self._place + len(target)]
        target[: len(piece)] = piece
        self._place += len(piece)
        return len(piece)

    def close(self) -> None:
        if not self.closed:
            self._view.release()
        super().close()


def _is_older(name: str, now_ms: int) -> bool:
    return not name[:13].isdigit() or int(name[:13]) < now_ms - ENDED_KEPT_MS
