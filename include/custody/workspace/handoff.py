"""Hand-overs: sealed groups of journals in the store, so that a pass needs no disk of the producer.

A group has a folder of objects, named by its first event id and the incarnation that wrote it: one object a journal,
below the digest of its bytes, and the manifest, which is put last and only if its key is free. Only a manifest makes a
group handed over; objects without one are what an interrupted hand-over left. docs/formats/handoff.md,
docs/design/060-hand-over.md.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from custody.errors import ConflictError, CorruptionError, CustodyError, NotFoundError
from custody.format.framing import DocumentFormat
from custody.format.names import FETCHING_SUFFIX, HANDOFF, ID_DIGITS, JournalName
from custody.store import ObjectData, ObjectStore, put_object, read_parts
from custody.store.local import LocalStore
from custody.vfs import FileSystem

# Part of the format, like the fields of `HandoffManifest`: add, never change.
PREAMBLE = b"CUSTHOV\x01"
KIND_HANDOFF = 1
MANIFEST = "manifest"
_NO_INCARNATION = "none"
_PART_BYTES = 16 << 20
_FOLDER = re.compile(rf"(\d{{{ID_DIGITS}}})-([0-9a-f]{{32}}|{_NO_INCARNATION})")


class HandedJournal(msgspec.Struct, frozen=True, kw_only=True):
    """A sealed journal that was handed over."""

    name: str
    bytes: int
    sha256: str


class HandoffManifest(msgspec.Struct, frozen=True, kw_only=True):
    """A group that was handed over: all its journals, of all containers."""

    writer: str
    database: str
    incarnation: str
    """The incarnation that wrote the journals; empty where nothing names it."""
    epoch: int
    """Number of the claim that held the name when the group was handed over; 0 where nobody had claimed it."""
    first_event_id: int
    """Of the group's name: that of its first event, if it has one."""
    next_event_id: int
    """One more than the greatest id in it; `first_event_id` where it has no event."""
    events: int
    journals: tuple[HandedJournal, ...]
    host: str
    handed_over_ms: int


_FORMAT = DocumentFormat(
    PREAMBLE,
    KIND_HANDOFF,
    msgspec.json.Decoder(HandoffManifest),
    name="hand-over",
    content="the manifest of a group that was handed over",
    remedy="Move it away: custody handoff puts it again as long as the producer has the journals.",
)
encode_manifest = _FORMAT.encode
decode_manifest = _FORMAT.decode


@dataclass(frozen=True, slots=True)
class HandoffFolder:
    """The objects of one group of one incarnation."""

    first_event_id: int
    incarnation: str

    def __str__(self) -> str:
        return f"{self.first_event_id:0{ID_DIGITS}d}-{self.incarnation or _NO_INCARNATION}"

    @classmethod
    def parse(cls, name: str) -> HandoffFolder | None:
        """Return None for a name of another kind."""
        match = _FOLDER.fullmatch(name)
        return cls(int(match[1]), match[2].removeprefix(_NO_INCARNATION)) if match else None


class Handoff:
    """What one writer handed over, in the store of its catalog.

    Args:
        fs: the disk for copies of what a remote store holds.
        store: where it is handed over to.
        home: the prefix of the writer's database.
        copies: the folder for these copies.
    """

    def __init__(self, fs: FileSystem, store: ObjectStore, home: str, copies: Path) -> None:
        self._fs = fs
        self._store = store
        self._prefix = f"{home}{HANDOFF}/"
        self._copies = copies

    def folders(self) -> list[HandoffFolder]:
        """Return the groups that have objects, handed over or not, by first event id."""
        parsed = (HandoffFolder.parse(name) for name in self._store.folders(self._prefix))
        return [folder for folder in parsed if folder is not None]

    def manifest(self, folder: HandoffFolder) -> HandoffManifest | None:
        """Return a group's manifest, None where it is not handed over.

        Raises:
            CorruptionError, FormatVersionError: it cannot be read.
        """
        key = self._key(folder, MANIFEST)
        try:
            manifest = decode_manifest(self._store.get(key), self._store.locate(key))
        except NotFoundError:
            return None
        if any(JournalName.parse(journal.name) is None for journal in manifest.journals):
            raise CorruptionError(f"{self._store.locate(key)}: expected names of sealed journals, got others.")
        return manifest

    def manifests(self) -> Iterator[tuple[HandoffFolder, HandoffManifest]]:
        """Yield what is handed over, by first event id; raises as `manifest`."""
        for folder in self.folders():
            manifest = self.manifest(folder)
            if manifest is not None:
                yield folder, manifest

    def put_journal(self, folder: HandoffFolder, name: str, data: ObjectData) -> HandedJournal:
        """Put one journal.

        Durability: on return it survives power loss under its key.

        Raises:
            CorruptionError: other bytes are there under its digest.
        """
        journal = HandedJournal(name=name, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
        key = self._journal_key(folder, journal)
        if not put_object(self._store, key, data, is_key_of_content=True):
            raise CorruptionError(
                f"{self._store.locate(key)} @0: expected the bytes of the digest in its name, got others. Move it away."
            )
        # What was read back is what will be merged: a store may have kept less than it acknowledged.
        for _ in self._parts(folder, journal):
            pass
        return journal

    def put_manifest(self, folder: HandoffFolder, manifest: HandoffManifest) -> HandoffManifest:
        """Declare a group handed over, unless it is; return the manifest that counts.

        Durability: on return it survives power loss.

        Raises:
            ConflictError: a group of these ids with other journals is handed over: another host writes under the name.
        """
        key = self._key(folder, MANIFEST)
        if put_object(self._store, key, encode_manifest(manifest)):
            return manifest
        # Another hand-over of the same group was first, perhaps this one whose answer was lost before a crash. It is as
        # good as this one if it has the same journals.
        stored = self.manifest(folder)
        if stored is None or stored.journals != manifest.journals:
            other = "nothing" if stored is None else f"other journals, of the machine {stored.host!r}"
            raise ConflictError(
                f"{self._store.locate(key)}: expected the journals of this machine, got {other}. Two machines write "
                "under one name with a copy of the same disk. Give one of them a writer name of its own "
                "(repository.writer); its journals stay where they are."
            )
        self._store.settle(key)  # whoever put it may have died before it was durable
        return stored

    def paths(self, folder: HandoffFolder, manifest: HandoffManifest) -> tuple[Path, ...]:
        """Return the journals of a group as files; those in a remote store are copied once and checked.

        Raises:
            CorruptionError: an object has other bytes than were handed over.
            NotFoundError: the group was swept in this moment.
        """
        return tuple(self._path(folder, journal) for journal in manifest.journals)

    def path_here(self, folder: HandoffFolder, journal: HandedJournal) -> Path | None:
        """Return a journal as a file of this machine, None where the store alone has it."""
        if isinstance(self._store, LocalStore):
            return Path(self._store.locate(self._journal_key(folder, journal)))
        path = self._copy(folder, journal)
        return path if self._fs.exists(path) else None

    def copy_part(self, folder: HandoffFolder, journal: HandedJournal, start: int, stop: int, target: Path) -> None:
        """Write some bytes of a journal's object into a file; whoever reads them checks them. Not durable.

        Raises:
            NotFoundError: the group was swept in this moment.
        """
        key = self._journal_key(folder, journal)
        with self._fs.create(target) as file:
            while start < stop:
                part = self._store.get_range(key, start, min(stop - start, _PART_BYTES))
                if not part:
                    break
                start += file.write(part)

    def remove(self, folder: HandoffFolder) -> int:
        """Remove the objects of a group whose events are live; return their bytes. May be repeated.

        The manifest goes first: without it the rest is a leftover, which the next sweep finds.
        """
        self._store.delete(self._key(folder, MANIFEST))
        prefix = f"{self._prefix}{folder}/"
        objects = list(self._store.list(prefix))
        if isinstance(self._store, LocalStore):
            # As a whole: an upload that was interrupted may have left a temporary file or an empty folder.
            self._fs.remove_tree(Path(self._store.locate(prefix.rstrip("/"))))
        else:
            for info in objects:
                self._store.delete(info.key)
            self._fs.remove_tree(self._copies / str(folder))
        return sum(info.size_bytes for info in objects)

    def drop_stale_copies(self) -> None:
        """Remove this machine's copies of groups that are not in the store any more."""
        names = {str(folder) for folder in self.folders()}
        for name in self._fs.list(self._copies):
            if HandoffFolder.parse(name) is not None and name not in names:
                self._fs.remove_tree(self._copies / name)

    def locate(self, folder: HandoffFolder, journal: HandedJournal | None = None) -> str:
        """Return where the objects of a group lie, or one of its journals, for messages."""
        return self._store.locate(
            self._key(folder, MANIFEST) if journal is None else self._journal_key(folder, journal)
        )

    def size(self, folder: HandoffFolder, journal: HandedJournal) -> int:
        """Return the length of a journal's object; raises NotFoundError."""
        info = self._store.head(self._journal_key(folder, journal))
        if info is None:
            raise NotFoundError(f"{self.locate(folder, journal)}: there is no such object.")
        return info.size_bytes

    def read(self, folder: HandoffFolder, journal: HandedJournal) -> bytes:
        """Return the bytes of a journal's object, whatever they are; raises NotFoundError."""
        return self._store.get(self._journal_key(folder, journal))

    def _path(self, folder: HandoffFolder, journal: HandedJournal) -> Path:
        key = self._journal_key(folder, journal)
        if isinstance(self._store, LocalStore):
            return Path(self._store.locate(key))
        path = self._copy(folder, journal)
        # Written under its final name only when it is whole, and its folder names the digest: what is there is right.
        if not self._fs.exists(path):
            self._fs.make_directory(path.parent)
            self._save(self._parts(folder, journal), path)
        return path

    def _copy(self, folder: HandoffFolder, journal: HandedJournal) -> Path:
        return self._copies / str(folder) / journal.sha256 / journal.name

    def _save(self, parts: Iterator[bytes], path: Path) -> None:
        partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}{FETCHING_SUFFIX}")
        try:
            with self._fs.create(partial) as file:
                for part in parts:
                    file.write(part)
                file.sync()
        except CustodyError:
            self._fs.remove(partial)
            raise
        self._fs.rename(partial, path)
        self._fs.sync_directory(path.parent)

    def _parts(self, folder: HandoffFolder, journal: HandedJournal) -> Iterator[bytes]:
        """Yield the bytes of a journal's object in parts; what is wrong with them is raised behind the last."""
        key = self._journal_key(folder, journal)
        parts, whole, size = read_parts(self._store, key), hashlib.sha256(), 0
        if parts is None:
            raise NotFoundError(f"{self._store.locate(key)}: there is no such object.")
        for part in parts:
            whole.update(part)
            size += len(part)
            yield part
        if whole.hexdigest() != journal.sha256:
            raise CorruptionError(
                f"{self._store.locate(key)} @0: expected {journal.bytes} bytes with the SHA-256 {journal.sha256}, got "
                f"{size} others. Remove it: custody handoff puts it again as long as the producer has the journal."
            )

    def _journal_key(self, folder: HandoffFolder, journal: HandedJournal) -> str:
        return self._key(folder, f"{journal.sha256}/{journal.name}")

    def _key(self, folder: HandoffFolder, name: str) -> str:
        return f"{self._prefix}{folder}/{name}"
