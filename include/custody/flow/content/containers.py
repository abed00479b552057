"""Content containers: the folders of a writer, each a disk of its own or not, over which its contents are spread.

A container has a mark, the file `CONTAINER` in its folder, and a record with the same bytes beside the contents
(docs/formats/content-container.md). Where the mark is not that of the record, the container is missing: its contents
are out of reach, not gone, and nothing is written there.

Containers of older releases have no marks. The first content that a writer stores adopts them: a folder that has
sections is marked; an empty one beside it may be the place of a disk that is away, so it is missing until contents
are there. Sections without a sign show that the adoption is not complete: it puts them right last.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from functools import partial
from uuid import UUID

import msgspec

from custody.config import ContentStore
from custody.errors import ContentContainerMissingError, CorruptionError, FormatVersionError
from custody.format.names import CONTAINER_MARK, MARKED_SUFFIX, ContentPaths, is_section, name_as_text
from custody.store import LocalStore
from custody.store.disk_mark import DiskMark, MarkFormat, mark_damage
from custody.vfs import FileSystem

# Part of the format: seven bytes for the kind of file, the eighth for its version.
PREAMBLE = b"CUSTCON\x01"


class ContainerMark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the mark of a content container says: whose it is. `store` is where its record lies, for people."""

    id: UUID
    writer: str
    container: str
    store: str
    created_ms: int
    is_awaited: bool = False
    """Whether the folder was empty when an older release's contents were adopted: its disk has no mark yet."""

    @property
    def whose(self) -> str:
        """Whose folder it marks, in words that follow `it is`."""
        return (
            f"the content container {self.container!r} of the writer {self.writer!r}, with its record at {self.store}"
        )


CONTAINER_FORMAT = MarkFormat(PREAMBLE, msgspec.json.Decoder(ContainerMark), "the mark of a content container")


class ContentContainer:
    """One container of one writer: its folder, its mark, and the record of it."""

    def __init__(self, fs: FileSystem, paths: ContentPaths, name: str) -> None:
        self._fs = fs
        self._store = LocalStore(fs, paths.store.folder)
        self._writer = paths.writer
        self._key = paths.mark_prefix + name
        self.name = name
        self.folder = paths.container(name)
        self._disk_folder = paths.store.elsewhere.get(name)
        self.mark = self.folder / CONTAINER_MARK
        """The file by which the disk is recognised."""
        self._disk = DiskMark(fs, self._store, self._key, self.mark, CONTAINER_FORMAT)
        self._marked: bytes | None = None

    @property
    def is_marked(self) -> bool:
        """Whether it was taken into use with a mark; containers of older releases were not."""
        return self._record() is not None

    @property
    def has_sections(self) -> bool:
        """Whether folders of contents are there."""
        return any(is_section(name) for name in self._fs.list(self.folder))

    def check(self) -> None:
        """Raise unless the folder is that of this container now; one without a record counts as there.

        Raises:
            ContentContainerMissingError: it has no mark, or another one's.
        """
        record = self._record()
        difference = None if record is None else self._disk.difference(record)
        if record is None or difference is None:
            return
        if self._is_awaited(record) and self.has_sections:
            return  # the disk of an older release is back
        raise self._missing(difference)

    def add(self, now_ms: int) -> None:
        """Take the container into use; nothing changes if it was before and has its mark.

        Durability: on return record, mark and sign survive power loss.

        Raises:
            ContentContainerMissingError: it was taken into use, and its disk is away.
            ConfigurationError: the folder is a container of another writer or repository.
        """
        record = self._record()
        if record is None:
            # The folder of a disk is not made: where the disk is not mounted, it would lie below the disk's place.
            if self._disk_folder is not None and not self._fs.exists(self._disk_folder):
                raise self._missing(f"the folder {self._disk_folder} does not exist, and custody does not make it")
            self._disk.take(partial(self._new, now_ms), f"{self.folder}: cannot become a content container")
            return
        self.check()
        if not self._fs.exists(self.mark):
            self._fs.publish_if_absent(self.mark, record)
        # Whoever wrote the sign may have died before its name was durable; contents will rely on it.
        self._disk.settle()

    def expect(self, now_ms: int) -> None:
        """Take the container for one of an older release whose disk is away: it is missing until contents are there.

        Durability: on return record and sign survive power loss.
        """
        self._disk.expect(partial(self._new, now_ms, is_awaited=True))

    def _record(self) -> bytes | None:
        if self._marked is None:
            try:
                self._marked = self._disk.record()
            except (CorruptionError, FormatVersionError) as error:
                raise self._missing(f"{error} Copy the mark of the disk, {CONTAINER_MARK}, over it") from error
        return self._marked

    def _is_awaited(self, record: bytes) -> bool:
        return not self._fs.exists(self.mark) and CONTAINER_FORMAT.decode(record, self._key).is_awaited

    def _new(self, now_ms: int, *, is_awaited: bool = False) -> ContainerMark:
        return ContainerMark(
            id=uuid.uuid4(),
            writer=self._writer,
            container=self.name,
            store=name_as_text(self._store.locate(self._key)),
            created_ms=now_ms,
            is_awaited=is_awaited,
        )

    def _missing(self, why: str) -> ContentContainerMissingError:
        return ContentContainerMissingError(
            f"{self.folder}: content container {self.name!r} of writer {self._writer!r} is missing: {why}. Mount its "
            f"disk there, or name its folder in content.containers as {self.name}=FOLDER. For a disk that is lost for "
            f"good, or a new one, copy {self._store.locate(self._key)} to {self.mark}."
        )


class ContentContainers:
    """The content containers of one writer.

    Args:
        fs: the file system of their folders.
        store: the store's folder.
        writer: whose contents lie in them.
    """

    def __init__(self, fs: FileSystem, store: ContentStore, writer: str) -> None:
        self._fs = fs
        self._paths = ContentPaths(store, writer)
        self._records = LocalStore(fs, store.folder)
        self._by_name: dict[str, ContentContainer] = {}

    def get(self, name: str) -> ContentContainer:
        """Return a container, whether it is there or not."""
        return self._by_name.setdefault(name, ContentContainer(self._fs, self._paths, name))

    def names(self) -> list[str]:
        """Return the names of the containers that may have contents, by the folders and by the records."""
        prefix = self._paths.mark_prefix
        marked = (key.removeprefix(prefix) for key in self._records.keys(prefix) if key.endswith(MARKED_SUFFIX))
        return sorted({*self._folders(), *(name.removesuffix(MARKED_SUFFIX) for name in marked)})

    def present(self) -> list[str]:
        """Return the names of the containers whose folders are there, with their own marks."""
        return [name for name in self._folders() if not self.why_missing(name)]

    def missing(self) -> Iterator[tuple[str, ContentContainerMissingError]]:
        """Yield each container that is out of reach, and why."""
        for name in self.names():
            error = self.why_missing(name)
            if error is not None:
                yield name, error

    def why_missing(self, name: str) -> ContentContainerMissingError | None:
        """Return why a container is out of reach, None where it is there or was never taken into use."""
        try:
            self.get(name).check()
        except ContentContainerMissingError as error:
            return error
        return None

    def adopt(self, configured: Iterable[str], now_ms: int) -> None:
        """Mark the containers of an older release; the caller holds the writer's lock. Can be repeated.

        Durability: on return what was adopted survives power loss. A disk that refuses is left for the next attempt.
        """
        folders = [self.get(name) for name in sorted({*self._folders(), *configured})]
        unmarked = [one for one in folders if self._fs.exists(one.folder) and not one.is_marked]
        old = [one for one in unmarked if one.has_sections]
        # Only beside contents without a mark is an empty folder suspicious: else it is the disk of a new container.
        if not old:
            return
        # Those that may be away first: as long as one of the others has no sign, the adoption begins again.
        for one in unmarked:
            if one not in old:
                one.expect(now_ms)
        for one in old:
            one.add(now_ms)

    def damage(self) -> Iterator[tuple[str, str]]:
        """Yield where a record or a sign is not as it was written, and what is wrong with it."""
        return mark_damage(self._records, self._paths.mark_prefix, CONTAINER_FORMAT)

    def _folders(self) -> list[str]:
        home, elsewhere = self._paths.home, self._paths.store.elsewhere
        # A folder in the store of the name of one that is elsewhere is not that container's.
        names = self._fs.list(home) if self._fs.is_directory(home) else []
        below = [name for name in names if self._fs.is_directory(home / name) and name not in elsewhere]
        return below + [name for name in elsewhere if self._fs.exists(self._paths.container(name))]
