"""The journal writer: events get their ids, are appended and synced, and only then acknowledged.

One live writer a writer name: it holds `<container>/<writer>/LOCK` from open to close. Ids go up by one from the
number that the caller found on disk. A group of journals is opened by the first append after a seal. A writer that
failed to write or sync once is poisoned: what it left is cut or sealed by the next open.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from custody.clock import Clock
from custody.errors import ClosedError
from custody.format.names import ContainerPaths, JournalName
from custody.journal.file import JournalHeader, encode_batch, write_header
from custody.journal.sealing import Sealed, seal, seal_abandoned
from custody.model import Event, to_batch
from custody.vfs import FileSystem, WritableFile, temporary


def lock_path(containers: Sequence[Path], writer: str) -> Path:
    """Return the file that a live writer holds."""
    return ContainerPaths(containers[0], writer).lock


class JournalWriter:
    """Appends events for one writer name.

    Args:
        fs: where the containers lie.
        containers: one folder a disk; groups go round them.
        writer: the writer's name.
        database: the database that the events belong to.
        clock: tells when a journal was made.

    Raises:
        LockedError: another live process writes under this name.
    """

    def __init__(self, fs: FileSystem, containers: Sequence[Path], writer: str, database: str, clock: Clock) -> None:
        self._fs = fs
        self._containers = tuple(containers)
        self._writer = writer
        self._database = database
        self._clock = clock
        self._next_event_id = 0
        self._file: WritableFile | None = None
        self._path: Path | None = None
        self._broken: str | None = None
        self._held = ExitStack()
        for root in self._containers:
            fs.make_directory(ContainerPaths(root, writer).journals)
        self._held.enter_context(fs.lock(lock_path(self._containers, writer)))
        try:
            self.recovered: list[Sealed] = seal_abandoned(fs, self._containers, writer)
        except BaseException:
            self._held.close()
            raise

    def begin(self, next_event_id: int) -> None:
        """Set the first id to give out: one more than the greatest that exists anywhere."""
        if next_event_id < self._next_event_id:
            raise ValueError(f"event ids only go up: expected at least {self._next_event_id}, got {next_event_id}")
        self._next_event_id = next_event_id

    def append(self, events: Sequence[Event]) -> range:
        """Append events and sync; return their ids.

        Durability: on return the events are acknowledged and survive power loss. On raise it is unknown which
        of them do, and the writer is poisoned.

        Raises:
            ClosedError: the writer was closed or is poisoned.
            StorageError: the disk refused.
        """
        if self._broken is not None:
            raise ClosedError(f"writer {self._writer!r} {self._broken}. Open the repository again.")
        ids = range(self._next_event_id, self._next_event_id + len(events))
        if not events:
            return ids
        record = encode_batch(to_batch(events, ids.start))
        try:
            file = self._file or self._open_journal()
            file.write(record)
            file.sync()
        except BaseException as error:
            self._broken = f"failed to write ({error})"
            raise
        self._next_event_id = ids.stop
        return ids

    def seal(self) -> Path | None:
        """Close the open group to further events; return its journal's name, None when there is none."""
        if self._file is None or self._path is None or self._broken is not None:
            return None
        try:
            self._file.close()
            sealed = seal(self._fs, self._path)
        except BaseException as error:
            self._broken = f"failed to seal ({error})"
            raise
        self._file = self._path = None
        return sealed

    def close(self) -> None:
        """Seal and let the writer name go; a poisoned writer leaves its journal to recovery."""
        try:
            self.seal()
        finally:
            if self._file is not None:
                self._file.close()
                self._file = None
            self._broken = self._broken or "is closed"
            self._held.close()

    def _open_journal(self) -> WritableFile:
        root = self._containers[self._next_event_id % len(self._containers)]
        folder = ContainerPaths(root, self._writer).journals
        self._path = folder / str(JournalName(self._next_event_id, 0, sealed=False))
        # A journal gets its name when its header is durable: without one nobody could tell damage from a crash.
        partial = temporary(self._path)
        self._file = self._fs.create(partial)
        header = JournalHeader(
            writer=self._writer,
            database=self._database,
            first_event_id=self._next_event_id,
            created_ms=self._clock.now_ms(),
        )
        write_header(self._file, header)
        self._file.sync()
        self._fs.rename(partial, self._path)
        self._fs.sync_directory(folder)
        return self._file

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
