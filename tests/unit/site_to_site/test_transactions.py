"""Transactions: nothing is owed before the confirmation, and afterwards the same confirmation has the same answer."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import pytest

from custody.clock import ManualClock
from custody.errors import BackpressureError, StorageError
from custody.site_to_site.packets import PacketError, PacketLimits
from custody.site_to_site.transactions import (
    ENDED_KEPT_MS,
    EndedTransaction,
    TransactionLimits,
    Transactions,
    TransactionStateError,
    UnknownTransactionError,
)
from custody.vfs import FileSystem, PosixFileSystem
from custody.vfs.memory import CrashMode, InjectedCrash, MemoryFileSystem
from tests.nifi_client import packed

LIMITS = TransactionLimits(open_max=3, seconds=30, packets=PacketLimits(1 << 16))
PACKETS = [packed({"number": str(number)}, b"content %d" % number) for number in range(3)]
FOLDER = Path("/r/site-to-site")


class Taken:
    """What was handed on."""

    def __init__(self) -> None:
        self.contents: list[bytes] = []

    def __call__(self, attributes: Mapping[str, str], content: BinaryIO) -> None:
        self.contents.append(content.read())


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_772_409_600_000)


@pytest.fixture
def transactions(tmp_path: Path, clock: ManualClock) -> Transactions:
    return Transactions(PosixFileSystem(), tmp_path / "s", clock, LIMITS)


def staged(transactions: Transactions, packets: list[bytes] = PACKETS) -> str:
    transaction = transactions.begin()
    staging = transactions.stage(transaction, is_compressed=False)
    staging.feed(b"".join(packets))
    assert staging.end() == zlib.crc32(b"".join(packets))
    return transaction


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_file())


def test_packets_are_handed_on_once_they_are_confirmed_and_only_once(
    transactions: Transactions, tmp_path: Path
) -> None:
    taken = Taken()
    transaction = staged(transactions)
    assert taken.contents == []
    first = transactions.commit(transaction, taken)
    assert first.packets == 3
    assert transactions.commit(transaction, taken) == first
    assert taken.contents == [b"content 0", b"content 1", b"content 2"]
    assert names(tmp_path / "s") == []


def test_another_process_and_a_restart_know_what_was_staged_and_how_it_ended(
    tmp_path: Path, clock: ManualClock
) -> None:
    def again() -> Transactions:
        return Transactions(PosixFileSystem(), tmp_path / "s", clock, LIMITS)

    taken = Taken()
    transaction = staged(again())
    ended = again().commit(transaction, taken)
    assert again().commit(transaction, taken) == ended
    assert len(taken.contents) == 3


def test_a_commit_that_fails_can_be_repeated(transactions: Transactions) -> None:
    def full(attributes: Mapping[str, str], content: BinaryIO) -> None:
        raise StorageError("the disk is full")

    transaction = staged(transactions)
    with pytest.raises(StorageError, match="full"):
        transactions.commit(transaction, full)
    assert transactions.commit(transaction, Taken()).packets == 3


def test_what_is_canceled_or_silent_is_thrown_away(
    transactions: Transactions, clock: ManualClock, tmp_path: Path
) -> None:
    canceled, silent = staged(transactions), staged(transactions)
    transactions.cancel(canceled)
    clock.advance(29_000)
    transactions.extend(silent)
    clock.advance(29_000)
    transactions.require(silent)
    clock.advance(1_000)
    for transaction in (canceled, silent, "0" * 46, "../../etc/passwd", ""):
        with pytest.raises(UnknownTransactionError):
            transactions.commit(transaction, Taken())
        with pytest.raises(UnknownTransactionError):
            transactions.extend(transaction)
    transactions.begin()
    assert len(names(tmp_path / "s")) == 1


def test_only_so_many_are_open_and_the_silent_make_room(transactions: Transactions, clock: ManualClock) -> None:
    for _ in range(3):
        transactions.begin()
    with pytest.raises(BackpressureError, match="transactions_max"):
        transactions.begin()
    clock.advance(30_000)
    transactions.begin()


def test_a_transaction_has_one_body_and_needs_one(transactions: Transactions) -> None:
    transaction = transactions.begin()
    with pytest.raises(TransactionStateError, match="expected packets"):
        transactions.commit(transaction, Taken())
    staging = transactions.stage(transaction, is_compressed=False)
    with pytest.raises(PacketError, match="empty body"):
        staging.end()
    staging.feed(PACKETS[0])
    staging.end()
    with pytest.raises(TransactionStateError, match="second one"):
        transactions.stage(transaction, is_compressed=False)


def test_a_body_that_is_given_up_leaves_nothing(transactions: Transactions, tmp_path: Path) -> None:
    transaction = transactions.begin()
    staging = transactions.stage(transaction, is_compressed=False)
    staging.feed(PACKETS[0][:5])
    staging.abort()
    assert names(tmp_path / "s") == []


def test_bytes_that_a_power_failure_changed_are_sent_again(transactions: Transactions, tmp_path: Path) -> None:
    transaction = staged(transactions)
    path = tmp_path / "s" / f"{transaction}.packets"
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(UnknownTransactionError, match="Send it again"):
        transactions.commit(transaction, Taken())


def test_ends_are_forgotten_after_an_hour(transactions: Transactions, clock: ManualClock, tmp_path: Path) -> None:
    transaction = staged(transactions)
    transactions.commit(transaction, Taken())
    clock.advance(ENDED_KEPT_MS - 1_000)
    transactions.begin()
    assert transactions.commit(transaction, Taken()).packets == 3
    clock.advance(61_000)
    transactions.begin()
    assert names(tmp_path / "s" / "ended") == []


def test_what_crashes_left_is_swept(transactions: Transactions, clock: ManualClock, tmp_path: Path) -> None:
    transaction = staged(transactions)
    (tmp_path / "s" / f"{transaction}.open").unlink()
    left = tmp_path / "s" / f"{clock.now_ms():013d}-{'0' * 32}.open.{'a' * 32}.partial"
    left.write_bytes(b"{")
    (tmp_path / "s" / "a-note-of-somebody").write_bytes(b"")
    transactions.sweep()
    assert names(tmp_path / "s") == sorted([left.name, "a-note-of-somebody"])
    clock.advance(ENDED_KEPT_MS + 1)
    transactions.sweep()
    assert names(tmp_path / "s") == ["a-note-of-somebody"]


def work(fs: FileSystem, promised: dict[str, EndedTransaction], stored: list[bytes]) -> None:
    """Three transactions; what takes their packets is another disk, which loses nothing."""
    transactions = Transactions(fs, FOLDER, ManualClock(1_772_409_600_000), LIMITS)

    def take(attributes: Mapping[str, str], content: BinaryIO) -> None:
        stored.append(content.read())

    for number in range(3):
        transaction = staged(transactions, PACKETS[number:])
        if number == 1:
            transactions.cancel(transaction)
        else:
            promised[transaction] = transactions.commit(transaction, take)


@pytest.mark.in_parts(2)
@pytest.mark.parametrize("mode", CrashMode)
def test_after_a_crash_at_any_operation_the_same_confirmation_has_the_same_answer(mode: CrashMode) -> None:
    whole = MemoryFileSystem()
    work(whole, {}, [])
    operations = len(whole.operations)
    assert operations > 30
    for crash_at in range(1, operations + 1):
        for seed in range(3):
            fs = MemoryFileSystem(crash_at)
            promised: dict[str, EndedTransaction] = {}
            with pytest.raises(InjectedCrash):
                work(fs, promised, [])
            left = Transactions(fs.crashed(mode, seed), FOLDER, ManualClock(1_772_409_601_000), LIMITS)
            for transaction, ended in promised.items():
                assert left.commit(transaction, Taken()) == ended
            # Whatever else lies there keeps nobody out.
            again = Taken()
            left.commit(staged(left), again)
            assert len(again.contents) == 3
