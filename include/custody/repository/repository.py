"""The repository: the one place where the rooms are wired together, and custody's Python API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pyarrow as pa

from custody.config import SETTINGS_FILE, default_settings_file, load_settings, root_of
from custody.errors import ConfigurationError
from custody.flow import Component, Session
from custody.flow.content import Content, content_of, find_content
from custody.model import Acknowledged, ContentClaim, Event, require_valid, require_valid_columns
from custody.repository.asked import Asked
from custody.repository.contents import ListedClaim, listed
from custody.repository.ingest import Ingest
from custody.repository.maintained import Maintained
from custody.repository.slots import SlotWriter, take_slot
from custody.swh import ProvenanceDatabase
from custody.swh.publishing import database_catalog, database_folder, published_state
from custody.vfs import PosixFileSystem


class Repository(Asked, Maintained):
    """A repository in a folder.

    >>> repository = Repository.open("demo")                       # doctest: +SKIP
    >>> repository.search("event_type:SEND AND filename:orders*")  # doctest: +SKIP
    """

    @classmethod
    def open(cls, root: str | Path) -> Self:
        """Open the repository in a folder.

        Raises:
            NotFoundError: there is none.
            ConfigurationError: its settings are not valid.
        """
        return cls(load_settings(Path(root)))

    @classmethod
    def create(cls, root: str | Path) -> Self:
        """Make a repository with default settings in a folder, and open it.

        Raises:
            ConfigurationError: the folder holds one already, or files that are not custody's.
        """
        root = root_of(Path(root))
        fs = PosixFileSystem()
        if fs.exists(root / SETTINGS_FILE):
            raise ConfigurationError(f"{root} holds a repository already.")
        if fs.list(root):
            raise ConfigurationError(f"{root} is not empty. Name a new or an empty folder.")
        fs.make_directory(root)
        fs.write_durably(root / SETTINGS_FILE, default_settings_file().encode())
        return cls.open(root)

    @contextmanager
    def writer(self, *, wait_seconds: float | None = None) -> Iterator[SlotWriter]:
        """Hold the first free writer slot and append events; the journal is sealed at the end.

        Waits for a slot for `wait_seconds`, or as long as the setting `repository.writer_wait_seconds` says.

        Raises:
            LockedError: live processes hold all slots.
        """
        with take_slot(self._fs, self.settings, self._clock, wait_seconds) as writer:
            writer.begin(self.workspace(writer.name).catalog.load().next_event_id)
            yield writer

    @contextmanager
    def ingest(self, *, wait_seconds: float | None = None) -> Iterator[Ingest]:
        """Hold the first free writer slot and ingest files; raises as `writer` does."""
        with self.writer(wait_seconds=wait_seconds) as writer:
            yield Ingest(self.workspace(writer.name), writer, self.workspaces, self.quarantine)

    def append(self, events: Iterable[Event], *, wait_seconds: float | None = None) -> Acknowledged:
        """Append events in one piece, and hold a writer slot for as long as that takes.

        Who appends again and again keeps a `writer` open instead. An event is not compared with those that are stored:
        that is what `ingest` does.

        Durability: as of `JournalWriter.append`: on return the events are acknowledged.

        Raises:
            InvalidInputError: an event breaks a rule; nothing was stored.
            LockedError: live processes hold all slots.
            BackpressureError: too much waits to be rolled over.
            StorageError: the disk refused; it is unknown which events survive.
        """
        chosen = list(events)
        require_valid(chosen)
        with self.writer(wait_seconds=wait_seconds) as writer:
            return Acknowledged(writer.name, writer.append(chosen))

    def append_columns(self, events: pa.Table | pa.RecordBatch, *, wait_seconds: float | None = None) -> Acknowledged:
        """Append events that are columns, as `append` does; no event becomes a Python object.

        Columns are those of the event log but `event_id`; those that say nothing can be left out. Times are timestamps
        with a time zone, or whole numbers of milliseconds.

        Raises:
            InvalidInputError: a column or a value does not fit; nothing was stored.
            LockedError, BackpressureError, StorageError: as `append` does.
        """
        valid = require_valid_columns(events)
        with self.writer(wait_seconds=wait_seconds) as writer:
            return Acknowledged(writer.name, writer.append_columns(valid))

    def append_with_content(
        self, events: Iterable[Event], content: bytes | Iterable[bytes], *, wait_seconds: float | None = None
    ) -> Acknowledged:
        """Store a content and append the events that speak of it, as `append` does; docs/content.md tells more.

        Durability: on return content and events are acknowledged; no event is stored without its content.

        Raises:
            InvalidInputError: an event breaks a rule; nothing was stored.
            LockedError, BackpressureError, StorageError: as `append` does.
        """
        chosen = list(events)
        require_valid(chosen)
        with self.writer(wait_seconds=wait_seconds) as writer:
            return Acknowledged(writer.name, writer.append_with_content(chosen, content))

    def content(self, of: Event | ContentClaim, *, previous: bool = False) -> Content:
        """Return the content that an event or a claim speaks of; with `previous`, an event's before the event.

        Its bytes are read and checked when they are asked for: `chunks` for any size, `read` for what fits in memory.

        Raises:
            NotFoundError: there is no claim, or its content is elsewhere, expired or erased.
            CorruptionError: the file is there and does not hold the content as it was written.
        """
        if isinstance(of, ContentClaim):
            return find_content(self._fs, self.settings.store, of)
        return content_of(self._fs, self.settings.store, of, previous=previous)

    def software(self, revision: int | None = None) -> ProvenanceDatabase:
        """Return the provenance tables of software that are published, now or at a revision of their catalog.

        Where a content of an event lies in software: `software().occurrences(content_swhid(content(event)))`.

        Raises:
            NotFoundError: nothing was published by then.
        """
        state = published_state(database_catalog(self.settings, self._fs, self._clock), revision)
        return ProvenanceDatabase.open(self._fs, database_folder(self.settings), state)

    def contents(self, writer: str | None = None) -> Iterator[ListedClaim]:
        """Yield the files of the content repository, of one writer or of all."""
        for name in [found.writer for found in self.workspaces()] if writer is None else [writer]:
            yield from listed(self._fs, self.settings.store, name)

    @contextmanager
    def session(
        self, component: Component, writer: SlotWriter | None = None, *, wait_seconds: float | None = None
    ) -> Iterator[Session]:
        """Do a piece of work with FlowFiles: its events are stored together at the end of the block, or not at all.

        With a `writer` that the caller holds, any number of threads have sessions at once; without one, a slot is held
        for the block.

        Raises:
            LockedError: no writer is given and live processes hold all slots.
            BackpressureError, StorageError: the commit at the end of the block failed; see `Session.commit`.
        """
        if writer is None:
            with self.writer(wait_seconds=wait_seconds) as held, Session(component, held, self._clock) as session:
                yield session
        else:
            with Session(component, writer, self._clock) as session:
                yield session
