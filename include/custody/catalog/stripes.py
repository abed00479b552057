"""Stripes: folders on disks of their own, by name, over which finished event logs are spread.

A stripe has a mark, the file `STRIPE` in the folder of the writer's database. A record with the same bytes lies in the
store (docs/formats/stripe.md). Only a folder with the very mark of the record is the stripe: at a place where no disk
is mounted, or another one, nothing is read, written or missed.

A stripe is taken into use in three steps, so that a crash between them is told from a disk that is away: the record,
the mark, and last a sign beside the record. Files lie on it only after the sign is durable.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from uuid import UUID

import msgspec

from custody.errors import StripeMissingError
from custody.format.names import MARKED_SUFFIX, STRIPE_MARK, STRIPES, is_name, name_as_text, shard_container
from custody.store import LocalStore, ObjectStore
from custody.store.disk_mark import DiskMark, MarkFormat, mark_damage
from custody.vfs import FileSystem

# Part of the format: seven bytes for the kind of file, the eighth for its version.
PREAMBLE = b"CUSTSTR\x01"
# A log may be written twice before one is dropped, and a disk that is nearly full is slow.
_ROOM_FACTOR = 2


class StripeMark(msgspec.Struct, frozen=True, kw_only=True):
    """What the mark of a stripe says: whose it is. `store` is where its record lies, for people."""

    id: UUID
    writer: str
    database: str
    stripe: str
    store: str
    created_ms: int

    @property
    def whose(self) -> str:
        """Whose folder it marks, in words that follow `it is`."""
        return (
            f"the stripe {self.stripe!r} of the writer {self.writer!r}, database {self.database!r}, with its record "
            f"at {self.store}"
        )

    def encode(self) -> bytes:
        """Return the file's bytes."""
        return STRIPE_FORMAT.encode(self)

    @classmethod
    def decode(cls, data: bytes, where: object) -> StripeMark:
        """Return the mark in a file's bytes; raises as `MarkFormat.decode`."""
        return STRIPE_FORMAT.decode(data, where)


STRIPE_FORMAT = MarkFormat(PREAMBLE, msgspec.json.Decoder(StripeMark), "the mark of a stripe")


class Stripe:
    """One stripe of one writer's database: its folder, its mark, and the record of it in the store."""

    def __init__(self, owner: Stripes, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.files = LocalStore(owner.fs, folder)
        """The store in which its files lie, under the keys that they would have in the repository's store."""
        self._owner = owner
        self._disk = owner.disk(name, self.mark)
        self._marked: bytes | None = None

    @property
    def home(self) -> Path:
        """The folder, on the stripe, of the writer's database."""
        return self.folder / self._owner.writer / self._owner.database

    @property
    def mark(self) -> Path:
        """The file by which the disk is recognised."""
        return self.home / STRIPE_MARK

    def check(self) -> None:
        """Raise unless the folder has the mark of this stripe now.

        Raises:
            StripeMissingError: it has none, or another one's.
        """
        if self._marked is None:
            self._marked = self._owner.record(self.name)
        if self._marked is None:
            raise self._missing("the store has no record of it: nothing of this writer was ever put there")
        difference = self._disk.difference(self._marked)
        if difference is not None:
            raise self._missing(difference)

    def add(self, now_ms: int) -> None:
        """Take the stripe into use for this writer; nothing changes if it was before.

        Durability: on return record, mark and sign survive power loss.

        Raises:
            StripeMissingError: its folder does not exist, or it was taken into use and its disk is away.
            ConfigurationError: the folder is a stripe of another repository, or under another name.
        """
        owner = self._owner
        if owner.record(self.name) is not None:
            self.check()
            self._disk.settle()
            return
        # Another writer's mark shows whether the disk is there.
        for other in owner.others():
            if other.record(self.name) is not None:
                other.get(self.name).check()
        # The folder is not made: where the disk is not mounted, it would lie below the place of the disk.
        if not owner.fs.exists(self.folder):
            raise self._missing("the folder does not exist; custody does not make it")
        self._disk.take(
            lambda: StripeMark(
                id=uuid.uuid4(),
                writer=owner.writer,
                database=owner.database,
                stripe=self.name,
                store=name_as_text(owner.store.locate(owner.key(self.name))),
                created_ms=now_ms,
            ),
            f"{self.folder}: cannot become the stripe {self.name!r}",
        )

    def has_room(self, size: int) -> bool:
        """Whether its disk can take files of so many bytes, as far as the system tells."""
        space = self._owner.fs.space(self.folder)
        return space is None or (not space.is_read_only and space.free_bytes >= _ROOM_FACTOR * size)

    def _missing(self, why: str) -> StripeMissingError:
        return StripeMissingError(
            f"{self.folder}: stripe {self.name!r} of writer {self._owner.writer!r} is missing: {why}. "
            "Mount its disk there, or set repository.stripes to where it is."
        )


class Stripes:
    """The stripes of one writer's database.

    Args:
        fs: the file system of their folders.
        store: where their records lie.
        writer: whose files lie on them.
        database: of what.
        folders: the folders of the stripes, absolute, by name.
        retired: names of those that get no new files.
    """

    def __init__(
        self,
        fs: FileSystem,
        store: ObjectStore,
        writer: str,
        database: str,
        folders: Mapping[str, Path],
        retired: Collection[str] = (),
    ) -> None:
        self.fs = fs
        self.store = store
        self.writer = writer
        self.database = database
        self._prefix = f"{writer}/{database}/{STRIPES}/"
        self._by_name = {name: Stripe(self, name, folder) for name, folder in folders.items()}
        self._writable = sorted(set(folders).difference(retired))

    def others(self) -> Iterator[Stripes]:
        """Yield the stripes of the same database of all other writers, under the same names in the same folders."""
        folders = {name: stripe.folder for name, stripe in self._by_name.items()}
        for writer in self.store.folders(""):
            if writer != self.writer and is_name(writer):
                yield Stripes(self.fs, self.store, writer, self.database, folders)

    def key(self, name: str) -> str:
        """Return the key of a stripe's record."""
        return self._prefix + name

    def record(self, name: str) -> bytes | None:
        """Return the record of a stripe that was taken into use, None for any other."""
        stripe = self._by_name.get(name)
        # Also of a stripe that the settings do not name any more; its mark is then not looked for.
        return self.disk(name, Path() if stripe is None else stripe.mark).record()

    def disk(self, name: str, mark: Path) -> DiskMark[StripeMark]:
        """Return what recognises the disk of a stripe."""
        return DiskMark(self.fs, self.store, self.key(name), mark, STRIPE_FORMAT)

    def in_use(self) -> list[str]:
        """Return the names of the stripes that may have files, also of those that the settings do not name."""
        names = (key.removeprefix(self._prefix) for key in self.store.keys(self._prefix))
        return sorted(name.removesuffix(MARKED_SUFFIX) for name in names if name.endswith(MARKED_SUFFIX))

    def damage(self) -> Iterator[tuple[str, str]]:
        """Return where a record or a sign is not as it was written, and what is wrong with it."""
        return mark_damage(self.store, self._prefix, STRIPE_FORMAT)

    def get(self, name: str) -> Stripe:
        """Return a stripe.

        Raises:
            StripeMissingError: the settings do not name its folder.
        """
        stripe = self._by_name.get(name)
        if stripe is None:
            raise StripeMissingError(
                f"stripe {name!r} of writer {self.writer!r} is missing: repository.stripes does not say where it is. "
                f'Add "{name}=FOLDER" there.'
            )
        return stripe

    def checked(self) -> Iterator[tuple[str, Stripe | StripeMissingError]]:
        """Yield each stripe that may have files, by name, or why it is out of reach."""
        for name in self.in_use():
            try:
                stripe = self.get(name)
                stripe.check()
            except StripeMissingError as error:
                yield name, error
            else:
                yield name, stripe

    def choose(self, first_event_id: int, size: int, now_ms: int) -> str:
        """Return the stripe on which a new log of about so many bytes belongs, and take it into use; "" is the store.

        It follows from the log's first id. Only if that one is away, or has no room, the next one takes its place:
        whoever asks again may get another answer, and notes the first one.

        Durability: on return the stripe's record and mark survive power loss.

        Raises:
            StripeMissingError: all are missing; the error is that of the log's own.
            ConfigurationError: a folder is the stripe of another repository.
        """
        if not self._writable:
            return ""
        first = shard_container(first_event_id, len(self._writable))
        failure: StripeMissingError | None = None
        present: list[str] = []
        for name in (*self._writable[first:], *self._writable[:first]):
            try:
                self._by_name[name].add(now_ms)
            except StripeMissingError as error:
                failure = failure or error
                continue
            if self._by_name[name].has_room(size):
                return name
            present.append(name)
        if present:
            return present[0]  # without room, too: the error of the write says which disk is full
        raise failure or StripeMissingError(f"writer {self.writer!r}: no stripe is there.")
