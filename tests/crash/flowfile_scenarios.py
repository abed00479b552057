"""Scenarios of the FlowFile repository: commits, snapshots, swap files, and processes that die beside others."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest

from custody.errors import BackpressureError, StorageError
from custody.flowfile_repository import ArchiveOptions, ContentArchive, swap
from custody.flowfile_repository.state import claim_text
from custody.repository.flow import Flow
from custody.vfs import FileSystem, WritableFile
from custody.vfs.base import Primitives
from custody.vfs.faults import Fault, FaultyFileSystem
from custody.vfs.memory import CrashMode, FileNode, InjectedCrash, MemoryFileSystem
from custody.vfs.wrapping import WrappingFile, WrappingFileSystem
from tests.crash.enumeration import Scenario, operations_of, run_to
from tests.crash.flowfile_ledger import FIRST, LAST, RANKED, SETTINGS, WORKER, FlowLedger, opened, seen, stored_events


class FlowScenario(Scenario[FlowLedger]):
    """What must hold of queues, contents and events, whatever was done to them."""

    def new_record(self) -> FlowLedger:
        return FlowLedger()

    def copy(self, record: FlowLedger) -> FlowLedger:
        return record.copy()

    def check(self, fs: FileSystem, record: FlowLedger) -> None:
        with opened(fs, record) as flow:
            record.settle(flow, stored_events(fs))

    def use(self, fs: FileSystem, record: FlowLedger) -> None:
        with opened(fs, record) as flow:
            check_order(flow)
            create(flow, FIRST, 300)
            move_on(flow, FIRST, RANKED)
            # The last thing is a commit without a snapshot behind it: the log alone has to bring it back.
            create(flow, LAST, 300)


def check_order(flow: Flow) -> None:
    """FlowFiles leave their queues in the order of their priorities, also those in swap files; all go back."""
    expected = seen(flow)
    for name, waiting in expected.items():
        session = flow.session(WORKER)
        order = [flowfile.uuid for flowfile in session.get_many(name, len(waiting) + 1)]
        session.rollback()
        assert order == [flowfile.uuid for flowfile, _ in waiting], f"{name}: not in the order of priorities"


def create(flow: Flow, queue: str, *sizes: int) -> None:
    """Make FlowFiles with contents of so many bytes, the last ones with the highest priority."""
    with flow.session(WORKER) as session:
        for number, size in enumerate(sizes):
            made = session.create({"rank": str(len(sizes) - number)})
            session.receive(made, f"http://source/{number}")
            session.write_bytes(made, f"{size:04d}".encode() * (size // 4))
            session.transfer(made, queue)


def move_on(flow: Flow, source: str, target: str) -> None:
    """Take the first FlowFile of a queue, give it another content, and send it on."""
    with flow.session(WORKER) as session:
        [taken] = session.get_many(source, 1)
        with session.append(taken) as output:
            output.write(b"more")
        session.put_attributes(taken, {"from": source, "rank": "5"})
        session.transfer(taken, target, relationship="success")


def end(flow: Flow, queue: str, count: int = 1) -> None:
    """Let the first FlowFiles of a queue leave the flow."""
    with flow.session(WORKER) as session:
        taken = session.get_many(queue, count)
        assert len(taken) == count, f"{queue}: expected {count} FlowFiles, got {len(taken)}"
        for flowfile in taken:
            session.remove(flowfile, "done")


class Flowing(FlowScenario):
    """FlowFiles are made, split, changed, sent on, put back and removed; two snapshots in between."""

    def run(self, fs: FileSystem, record: FlowLedger) -> None:
        with opened(fs, record) as flow:
            create(flow, RANKED, 400, 2400)
            flow.queues.checkpoint()
            with flow.session(WORKER) as session:
                [taken] = session.get_many(RANKED, 1)
                for part, queue in zip(session.split(taken, [(0, 400), (400, 2000)]), (FIRST, LAST), strict=True):
                    session.transfer(part, queue)
                session.remove(taken, "split")
            move_on(flow, FIRST, RANKED)
            undone = flow.session(WORKER)
            undone.put_attribute(undone.get_many(RANKED, 1)[0], "never", "seen")
            undone.rollback()
            flow.queues.checkpoint()
            end(flow, LAST)
            with flow.session(WORKER) as session:
                passed, chosen = session.get_many(RANKED, 2)
                session.put_back(passed)
                session.transfer(chosen, FIRST, LAST)


class Releasing(FlowScenario):
    """Each content has a file of its own; the files of those that are done are given away after the next snapshot."""

    def run(self, fs: FileSystem, record: FlowLedger) -> None:
        with opened(fs, record) as flow:
            create(flow, FIRST, 5000, 5004)
            end(flow, FIRST)
            flow.queues.checkpoint()
            move_on(flow, FIRST, LAST)
            flow.queues.checkpoint()
            end(flow, LAST)
        with opened(fs, record) as flow:
            flow.queues.checkpoint()
            assert len(record.released) == 3


class Purging(FlowScenario):
    """Contents of the archive are deleted; one of them is claimed again while it is looked up which are held."""

    def run(self, fs: FileSystem, record: FlowLedger) -> None:
        with opened(fs, record) as flow:
            create(flow, FIRST, 5000, 5004)
            contents = [item.flowfile for item in flow.queues.waiting(FIRST)]
            end(flow, FIRST, 2)
            # The ledger's own archive takes for granted that what was released is not claimed again.
            with patch.object(flow.queues, "_archive", ContentArchive(fs, SETTINGS.content_store, ArchiveOptions())):
                flow.queues.checkpoint()
        with opened(fs, record) as flow:

            def claim_again() -> set[str]:
                assert not fs.is_locked(SETTINGS.flowfiles_home / "lock"), "others wait while events are read"
                one = contents[0]
                with flow.session(WORKER) as session:
                    session.transfer(session.create({}, size=one.size, content_claim=one.content_claim), LAST)
                return set()

            archive = Emptied(fs, SETTINGS.content_store, ArchiveOptions(), claim_again)
            with patch.object(flow.queues, "_archive", archive):
                flow.queues.checkpoint()
            assert [archive.exists(str(claim_text(one))) for one in contents] == [True, False]


class Emptied(ContentArchive):
    """An archive all of which may go."""

    def due(self, archived: Mapping[str, int], now_ms: int) -> list[str]:
        return list(archived)


class Swapping(FlowScenario):
    """A queue holds more than fits into memory: parts of it go to swap files, and come back block by block."""

    def run(self, fs: FileSystem, record: FlowLedger) -> None:
        with small_blocks():
            with opened(fs, record) as flow:
                create(flow, RANKED, *(40,) * 9)
                assert flow.queues.size(RANKED).swapped
                end(flow, RANKED)
                create(flow, RANKED, *(44,) * 5)
                flow.queues.checkpoint()
                end(flow, RANKED, 6)
                move_on(flow, RANKED, FIRST)
            with opened(fs, record) as flow:
                end(flow, RANKED, 4)
                flow.queues.checkpoint()
                create(flow, RANKED, *(48,) * 6)

    def check(self, fs: FileSystem, record: FlowLedger) -> None:
        with small_blocks():
            super().check(fs, record)

    def use(self, fs: FileSystem, record: FlowLedger) -> None:
        with small_blocks():
            super().use(fs, record)


@contextmanager
def small_blocks() -> Iterator[None]:
    """Let swap files have blocks of two FlowFiles."""
    with patch.object(swap, "BLOCK_FLOWFILES", 2):
        yield


class FailingDisk(FlowScenario):
    """The disk refuses a sync, or a part of a write; the process goes on.

    Args:
        kind: `sync` or `write`.
        path: of which files, as a pattern.
        first: which one of theirs is refused, counted from 1.
    """

    def __init__(self, kind: str, path: str, first: int) -> None:
        self._kind, self._path, self._first = kind, path, first

    def run(self, fs: FileSystem, record: FlowLedger) -> None:
        fault = Fault(frozenset({self._kind}), self._path, first=self._first, errno=errno.EIO, taken_bytes=20)
        refused = 0
        with opened(FaultyFileSystem(fs, fault), record) as flow:
            works: list[Callable[[], None]] = [
                partial(create, flow, FIRST, 400, 404),
                partial(move_on, flow, FIRST, RANKED),
                flow.queues.checkpoint,
                partial(end, flow, FIRST),
            ]
            for work in works:
                try:
                    work()
                except StorageError:
                    refused += 1
                    record.settle(flow, stored_events(fs))
                    work()
            create(flow, LAST, 400)
        assert refused == 1


class ForgettingSync(FlowScenario):
    """A sync of the log fails, and the disk forgets what was not synced then; another process goes on at once."""

    def run(self, fs: FileSystem, record: FlowLedger) -> None:
        disk = ForgetfulFileSystem(fs, Fault(frozenset({"sync"}), "flowfiles/log/*.log", first=5, errno=errno.EIO))
        with opened(disk, record) as other, opened(disk, record) as one:
            create(one, FIRST, 400, 404)
            # A record that nobody syncs before the sync that fails.
            [taken] = one.session(WORKER).get_many(FIRST, 1)
            with pytest.raises(StorageError):
                create(one, RANKED, 400)
            record.settle(one, stored_events(fs), taken=frozenset({taken.uuid}))
            create(other, RANKED, 404)


class ForgettingJournal(FlowScenario):
    """A sync of the journal fails, and the disk forgets those events; a later sync of the file succeeds.

    Args:
        first: which sync of a journal it is.
    """

    def __init__(self, first: int = 3) -> None:
        self._first = first

    def run(self, fs: FileSystem, record: FlowLedger) -> None:
        disk = ForgetfulFileSystem(fs, Fault(frozenset({"sync"}), "journals/*", first=self._first, errno=errno.EIO))
        with opened(disk, record) as flow:
            create(flow, FIRST, 400, 404)
            move_on(flow, FIRST, RANKED)
            with suppress(BackpressureError):  # until the writer is opened again nothing can be delivered
                create(flow, FIRST, 408)
        with opened(disk, record) as flow:
            record.settle(flow, stored_events(fs))
            create(flow, FIRST, 408)


class ForgetfulFileSystem(FaultyFileSystem):
    """A disk in memory that forgets what a failed sync should have made durable: a later sync finds nothing to do."""

    def __init__(self, inner: FileSystem, *faults: Fault) -> None:
        super().__init__(inner, *faults)
        while not isinstance(inner, MemoryFileSystem):
            assert isinstance(inner, WrappingFileSystem)
            inner = inner.inner  # type: ignore[assignment]
        self._memory = inner
        self._forgotten: dict[Path, list[tuple[int, int]]] = {}
        self._names: dict[Path, Path] = {}
        """The names of today of files that were renamed while they were open."""

    def create(self, path: Path) -> WritableFile:
        return _ForgetfulFile(super().create(path), path, self)

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        self._names[source] = target

    def append(self, path: Path) -> WritableFile:
        return _ForgetfulFile(super().append(path), path, self)

    def cut(self, path: Path, length: int) -> None:
        super().cut(path, length)
        self._forgotten[path] = [(start, min(stop, length)) for start, stop in self._forgotten.get(path, [])]

    def sync_file(self, path: Path) -> None:
        super().sync_file(path)
        self.leave_out(path)

    def forget(self, path: Path) -> None:
        """Note what a failed sync did not bring to the disk."""
        node = self._node(path)
        self._forgotten.setdefault(self._names.get(path, path), []).append((len(node.durable), len(node.data)))

    def leave_out(self, path: Path) -> None:
        """Take out of what is durable what was forgotten before."""
        node = self._node(path)
        data = bytearray(node.durable)
        for start, stop in self._forgotten.get(self._names.get(path, path), []):
            data[start:stop] = bytes(max(stop - start, 0))
        node.durable = bytes(data)

    def _node(self, path: Path) -> FileNode:
        return self._memory._tree.file("sync", self._names.get(path, path))


class _ForgetfulFile(WrappingFile):
    def __init__(self, inner: WritableFile, path: Path, fs: ForgetfulFileSystem) -> None:
        super().__init__(inner, path)
        self._fs = fs

    def sync(self) -> None:
        try:
            super().sync()
        except StorageError:
            self._fs.forget(self.path)
            raise
        self._fs.leave_out(self.path)


class Refusing(FlowScenario):
    """The journal refuses the events of a commit, which stands; no other one is done before they are delivered."""

    def run(self, fs: FileSystem, record: FlowLedger) -> None:
        fault = Fault(frozenset({"write"}), "journals/*", first=3, count=None, errno=errno.ENOSPC, taken_bytes=20)
        with opened(FaultyFileSystem(fs, fault), record) as flow:
            create(flow, FIRST, 400, 404)
            move_on(flow, FIRST, RANKED)
            assert record.commits == 2
            with pytest.raises(BackpressureError, match="could not be delivered"):
                create(flow, FIRST, 408)
        with opened(fs, record) as flow:
            record.settle(flow, stored_events(fs))
            create(flow, FIRST, 408)


class Dying(FlowScenario):
    """A process works with two sessions: one never ends, the other one commits."""

    def run(self, fs: FileSystem, record: FlowLedger) -> None:
        with opened(fs, record) as flow:
            create(flow, RANKED, 400, 404, 408)
            flow.session(WORKER).get_many(RANKED, 1)
            move_on(flow, RANKED, FIRST)


LEFTOVERS = (
    "a transaction that was not synced",
    "events that are in the log alone",
    "events that were not synced",
    "a delivery that was not noted",
)
"""What a process left that died in its last commit, one operation after the other."""


class Inheriting(FlowScenario):
    """A process died with FlowFiles that it had taken, and with events that it had not delivered; others go on."""

    def __init__(self, leftover: str) -> None:
        operations = operations_of(Dying())
        committed = [
            number
            for number, operation in enumerate(operations, 1)
            if operation.kind == "sync" and "log" in operation.path.parts
        ]
        self._disk, self._ledger, _ = run_to(Dying(), committed[-1] + LEFTOVERS.index(leftover))

    names_from = 1_000_000

    def start(self) -> MemoryFileSystem:
        return self._disk.crashed(CrashMode.ALL_KEPT)

    def new_record(self) -> FlowLedger:
        return self._ledger.copy()

    def run(self, fs: FileSystem, record: FlowLedger) -> None:
        with opened(fs, record) as flow, opened(fs, record) as other:
            record.settle(other, stored_events(fs))
            move_on(flow, RANKED, FIRST)
            move_on(other, FIRST, LAST)
            flow.queues.checkpoint()
            end(other, LAST)


class TakingOver(Inheriting):
    """The same, and the next process only looks."""

    def run(self, fs: FileSystem, record: FlowLedger) -> None:
        with opened(fs, record) as flow:
            record.settle(flow, stored_events(fs))


class Reopening(FlowScenario):
    """A process was killed while it wrote a snapshot; the next one goes on, and writes one too.

    Args:
        crash_at: the operation of `Flowing` at which the first one was killed.
    """

    names_from = 1_000_000

    def __init__(self, crash_at: int) -> None:
        self._disk, self._ledger, _ = run_to(Flowing(), crash_at)

    @staticmethod
    def places() -> list[int]:
        """Return the operations of `Flowing` that write its second snapshot."""
        operations = operations_of(Flowing())
        written = [at for at, operation in enumerate(operations, 1) if operation.path.name == "snapshot.partial"]
        named = [at for at in written if operations[at - 1].kind == "rename"]
        first = min(at for at in written if at > named[0])
        return list(range(first, named[1] + 12))

    def start(self) -> MemoryFileSystem:
        return self._disk.crashed(CrashMode.ALL_KEPT)

    def new_record(self) -> FlowLedger:
        return self._ledger.copy()

    def run(self, fs: FileSystem, record: FlowLedger) -> None:
        with opened(fs, record) as flow:
            record.settle(flow, stored_events(fs))
            create(flow, FIRST, 400)
            flow.queues.checkpoint()
            create(flow, FIRST, 404)


class Sharing(FlowScenario):
    """Two processes work on the same queues in turn; each of them writes a snapshot that the other one follows."""

    def run(self, fs: FileSystem, record: FlowLedger) -> None:
        with opened(fs, record) as one, opened(fs, record) as other:
            create(one, FIRST, 400, 404)
            move_on(other, FIRST, RANKED)
            one.queues.checkpoint()
            move_on(other, FIRST, LAST)
            other.queues.checkpoint()
            other.queues.checkpoint()
            move_on(one, RANKED, FIRST)
            one.queues.checkpoint()
        with opened(fs, record) as other:
            end(other, FIRST)


class Meeting(FlowScenario):
    """Another process commits in the middle of one's commit, wherever that one does not hold the lock.

    Args:
        before: the operation of the first process before which the other one comes, counted from its commit.
    """

    def __init__(self, before: int) -> None:
        self._before = before
        self.is_done = False
        """Whether the first process had fewer operations."""

    def run(self, fs: FileSystem, record: FlowLedger) -> None:
        with ExitStack() as stack:
            other = stack.enter_context(opened(fs, record))
            meeting = Counting(fs, lambda: _commit_if_free(fs, other))
            one = stack.enter_context(opened(meeting, record))
            create(one, FIRST, 400, 404)
            meeting.left = self._before
            move_on(one, FIRST, RANKED)
            one.queues.checkpoint()
            self.is_done = meeting.left > 0
            create(other, LAST, 400)


def _commit_if_free(fs: FileSystem, flow: Flow) -> None:
    if not fs.is_locked(SETTINGS.flowfiles_home / "lock"):
        with flow.session(WORKER) as session:
            session.transfer(session.create({"rank": "1"}), RANKED)


class Surviving(FlowScenario):
    """One process is killed at one of its operations; another one lives on, and goes on with what it finds.

    Args:
        dies_at: the operation of the first process, counted from its start; it lives when there are fewer.
    """

    def __init__(self, dies_at: int) -> None:
        self._dies_at = dies_at
        self.is_done = False
        """Whether it had fewer operations."""

    def run(self, fs: FileSystem, record: FlowLedger) -> None:
        with small_blocks(), ExitStack() as stack:
            lasting = stack.enter_context(opened(fs, record))
            create(lasting, RANKED, *(400,) * 9)
            held = lasting.session(WORKER)
            [kept] = held.get_many(RANKED, 1)
            doomed = Doomed(fs, self._dies_at)
            try:
                self._work(doomed, record)
            except InjectedCrash:
                if not doomed.is_dead:
                    raise  # it is the crash of all
            self.is_done = not doomed.is_dead
            lasting.queues.tick()
            record.settle(lasting, stored_events(fs), taken=frozenset({kept.uuid}))
            held.transfer(kept, FIRST, relationship="success")
            held.commit()
            create(lasting, LAST, 400)

    def _work(self, fs: FileSystem, record: FlowLedger) -> None:
        with opened(fs, record) as flow:
            end(flow, RANKED, 3)
            flow.session(WORKER).get_many(RANKED, 2)
            flow.queues.checkpoint()
            create(flow, RANKED, *(404,) * 5)


class Counting(WrappingFileSystem):
    """The disk as one process sees it; something happens before one of its operations.

    Args:
        inner: the disk of all.
        strike: what happens.
        left: before which operation, counted from now; 0 for none.
    """

    def __init__(self, inner: Primitives, strike: Callable[[], None], left: int = 0) -> None:
        super().__init__(inner)
        self._strike = strike
        self.left = left

    def create(self, path: Path) -> WritableFile:
        self.count()
        return _CountingFile(self.inner.create(path), path, self)

    def append(self, path: Path) -> WritableFile:
        return _CountingFile(self.inner.append(path), path, self)

    def rename(self, source: Path, target: Path) -> None:
        self.count()
        self.inner.rename(source, target)

    def link(self, source: Path, target: Path) -> bool:
        self.count()
        return self.inner.link(source, target)

    def remove(self, path: Path) -> None:
        self.count()
        self.inner.remove(path)

    def add_directory(self, folder: Path) -> None:
        self.count()
        self.inner.add_directory(folder)

    def remove_directory(self, folder: Path) -> None:
        self.count()
        self.inner.remove_directory(folder)

    def cut(self, path: Path, length: int) -> None:
        self.count()
        self.inner.cut(path, length)

    def sync_file(self, path: Path) -> None:
        self.count()
        self.inner.sync_file(path)

    def sync_directory(self, folder: Path) -> None:
        self.count()
        self.inner.sync_directory(folder)

    def lock(self, path: Path) -> AbstractContextManager[None]:
        # Held locks are let go by the contexts that end on the way out, as the system lets go those of the dead.
        self.count()
        return self.inner.lock(path)

    def count(self) -> None:
        """Count an operation that is about to be done."""
        self.left -= 1
        if self.left == 0:
            self._strike()


class Doomed(Counting):
    """The disk as one process sees it that is killed in one of its operations: nothing later has an effect."""

    def __init__(self, inner: Primitives, dies_at: int) -> None:
        super().__init__(inner, self._die, dies_at)
        self.is_dead = False

    def count(self) -> None:
        """Count an operation; a dead process does none."""
        if self.is_dead:
            self._die()
        super().count()

    def _die(self) -> None:
        self.is_dead = True
        raise InjectedCrash("one of the processes was killed")


class _CountingFile(WrappingFile):
    def __init__(self, inner: WritableFile, path: Path, fs: Counting) -> None:
        super().__init__(inner, path)
        self._fs = fs

    def write(self, data: bytes) -> int:
        was_last = self._fs.left == 1
        try:
            self._fs.count()
        except InjectedCrash:
            if was_last:
                # A write in which its process is killed leaves a part.
                self.inner.write(bytes(data)[: len(data) // 2])
            raise
        return self.inner.write(data)

    def sync(self) -> None:
        self._fs.count()
        self.inner.sync()
