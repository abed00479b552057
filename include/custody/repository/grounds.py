"""What every call of a repository starts from: its settings, its disk, and the files of its writers."""

from __future__ import annotations

from custody.clock import Clock, SystemClock
from custody.config import Settings
from custody.errors import ConfigurationError
from custody.index import Shards
from custody.quarantine import Quarantine
from custody.rollover import Workspace
from custody.vfs import FileSystem, PosixFileSystem

NAME_IT = "Each writer counts its own event ids: name the writer that is meant (--writer, or the argument writer)."


class Grounds:
    """The settings, the disk and the writers of a repository."""

    def __init__(self, settings: Settings, fs: FileSystem | None = None, clock: Clock | None = None) -> None:
        self.settings = settings
        self._fs: FileSystem = fs or PosixFileSystem()
        self._clock: Clock = clock or SystemClock()
        self._shards = Shards(self._fs, settings.query.open_shards_max)
        self._workspaces: dict[str, Workspace] = {}
        self.quarantine = Quarantine(self._fs, settings.quarantine, settings.repository.quarantine_bytes_max)

    def workspace(self, writer: str | None = None) -> Workspace:
        """Return one writer's files; the writer of the settings when none is named."""
        name = writer or self.settings.repository.writer
        # Kept, because it knows the catalog as it was read last.
        if name not in self._workspaces:
            self._workspaces[name] = Workspace(self.settings, name, self._fs, self._clock)
        return self._workspaces[name]

    def workspaces(self) -> list[Workspace]:
        """Return the files of every writer that has any."""
        return [self.workspace(found.writer) for found in Workspace.all(self.settings, self._fs)]

    def _writers(self) -> list[str]:
        """Return the writers that have events; the one of the settings when none has."""
        # A slot that was only tried has a folder and nothing in it.
        names = [item.writer for item in self.workspaces() if item.catalog.load().revision >= 0 or item.has_anything()]
        return names or [self.settings.repository.writer]

    def _meant(self, writer: str | None) -> list[Workspace]:
        names = self._writers() if writer is None else [writer]
        return [self.workspace(name) for name in names]

    def _one_writer(self, writer: str | None) -> str:
        """Return the writer that is meant: event ids say nothing without it."""
        names = [writer] if writer is not None else self._writers()
        if len(names) > 1:
            raise ConfigurationError(f"the writers {', '.join(map(repr, names))} have events. {NAME_IT}")
        return names[0]
