"""Staged units in the object store, so that no step needs the disk of the one before.

A unit is a folder of objects, named by its first group: the events of each future log below the digest of their bytes,
the manifest `unit`, which is put last and only if its key is free, and beside it what later steps say of each log: the
entries of its log and its shard for the catalog. Only a manifest makes a unit. docs/formats/stored-unit.md.

Nothing here replaces an object but the entries, which say of a log that is there what its bytes are. So an attempt that
goes on although another one took over, or twice at once, adds objects that nobody lists, and changes no unit.
"""

from __future__ import annotations

import hashlib
import re
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import msgspec

from custody.catalog import Action
from custody.errors import CorruptionError, NotFoundError, StorageError
from custody.eventlog import StagedLog
from custody.format.framing import DocumentFormat
from custody.format.names import ID_DIGITS, UNIT_MANIFEST
from custody.store import ObjectStore, put_object
from custody.vfs import FileSystem
from custody.workspace.unit_manifest import UnitManifest

# Part of the format, like the fields of `LogEntries`: add, never change.
PREAMBLE = b"CUSTENT\x01"
KIND_ENTRIES = 1
LOG_ENTRY, SHARD_ENTRY = "log", "shard"
_STAGING = "staging"
_PART_SUFFIX = ".part"
_PART_BYTES = 16 << 20
_ATTEMPTS = 4
_PAUSE_SECONDS = 0.2
_MANIFEST_KEY = re.compile(rf"(\d{{{ID_DIGITS}}})/{UNIT_MANIFEST}")


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What a step wrote of a future log, as the action that will list it in the catalog."""

    writer: str
    database: str
    first_event_id: int
    action: bytes
    """An `Action` of the catalog, as protobuf."""


_FORMAT = DocumentFormat(
    PREAMBLE,
    KIND_ENTRIES,
    msgspec.json.Decoder(LogEntry),
    name="entry of a log",
    content="what the catalog is to list of a log",
    remedy="Remove it: the step that wrote it writes it again.",
)
encode_entry = _FORMAT.encode
decode_entry = _FORMAT.decode


class StoredUnits:
    """The staged units of one writer in its store.

    Args:
        fs: the disk for copies of staged events.
        store: where the units lie.
        home: the prefix of the writer's database.
        copies: the folder for these copies.
        writer, database: whose they are.
    """

    def __init__(self, fs: FileSystem, store: ObjectStore, home: str, copies: Path, writer: str, database: str) -> None:
        self._fs = fs
        self._store = store
        self._prefix = f"{home}{_STAGING}/"
        self._copies = copies
        self._writer = writer
        self._database = database
        self._whole: set[Path] = set()
        """The copies that were checked since this process began."""

    def firsts(self) -> list[int]:
        """Return the first groups of the units, in order; one request for a thousand objects."""
        keys = (key.removeprefix(self._prefix) for key in self._store.keys(self._prefix))
        return sorted(int(match[1]) for key in keys if (match := _MANIFEST_KEY.fullmatch(key)))

    def folders(self) -> list[int]:
        """Return what has objects, a manifest or not."""
        names = self._store.folders(self._prefix)
        return sorted(int(name) for name in names if name.isdecimal() and len(name) == ID_DIGITS)

    def size_bytes(self, first: int) -> int:
        """Return the bytes of a unit's objects."""
        return sum(info.size_bytes for info in self._store.list(f"{self._prefix}{first:0{ID_DIGITS}d}/"))

    def locate(self, first: int) -> str:
        """Return where a unit lies, for messages."""
        return self._store.locate(self._key(first, UNIT_MANIFEST))

    def manifest(self, first: int) -> UnitManifest:
        """Return what a unit consists of.

        Raises:
            NotFoundError: it is gone: swept since it was listed.
            CorruptionError, FormatVersionError: it cannot be read.
        """
        return self._manifest(first, UNIT_MANIFEST)

    def _manifest(self, first: int, name: str) -> UnitManifest:
        place = self._store.locate(self._key(first, name))
        manifest = UnitManifest.decode(self._store.get(self._key(first, name)), Path(place))
        if manifest.digests is msgspec.UNSET or len(manifest.digests) != len(manifest.logs):
            raise CorruptionError(
                f"{place}: expected a digest for each log, got others. Remove it: the next rollover makes it again "
                "from the journals."
            )
        return manifest

    def publish(self, manifest: UnitManifest, path_of: Callable[[StagedLog], Path], check: Callable[[], None]) -> None:
        """Put a unit whose events lie in files of this machine; one that is there already is kept.

        `check` raises when another attempt took over; it is asked right before the manifest is put.

        Durability: on return the unit that has the name survives power loss.

        Raises:
            StorageError: the store refuses.
            CorruptionError: other bytes are there under a digest.
        """
        self.declare(self._with_events(manifest, path_of), check)

    def declare(self, manifest: UnitManifest, check: Callable[[], None], name: str = UNIT_MANIFEST) -> None:
        """Put the manifest of a unit whose events are in the store; as `publish`."""
        check()
        key = self._key(manifest.first_group, name)
        # Whoever was first counts: its unit is as good as this one, and its own digests name its events.
        if not put_object(self._store, key, manifest.encode()):
            self._store.settle(key)

    def publish_part(
        self, manifest: UnitManifest, part: str, path_of: Callable[[StagedLog], Path], check: Callable[[], None]
    ) -> None:
        """Put a merged range of a large unit, which is no unit yet; as `publish`."""
        self.declare(self._with_events(manifest, path_of), check, f"{part}{_PART_SUFFIX}")

    def part(self, first: int, part: str) -> UnitManifest | None:
        """Return the manifest of a merged range, None where it is not there; raises as `manifest`."""
        try:
            return self._manifest(first, f"{part}{_PART_SUFFIX}")
        except NotFoundError:
            return None

    def _with_events(self, manifest: UnitManifest, path_of: Callable[[StagedLog], Path]) -> UnitManifest:
        digests = tuple(self._put_events(manifest.first_group, path_of(log)) for log in manifest.logs)
        return msgspec.structs.replace(manifest, digests=digests)

    def events(self, manifest: UnitManifest, log: StagedLog) -> Path:
        """Return a file with the staged events of a log; it is fetched once, and checked by its digest.

        A copy is not synced, since the store has its bytes. So one that is found is checked as well: a power loss may
        have kept its name and lost a part of it.

        Raises:
            NotFoundError: the unit was swept.
            CorruptionError: the store has other bytes.
        """
        assert manifest.digests is not msgspec.UNSET  # noqa: S101 - `manifest` checked it
        digest = manifest.digests[manifest.logs.index(log)]
        path = self._copies / f"{manifest.first_group:0{ID_DIGITS}d}" / digest
        if not self._fs.exists(path) or (path not in self._whole and not self._is_whole(path, digest)):
            self._fetch(self._key(manifest.first_group, digest), path, digest)
        self._whole.add(path)
        return path

    def put_entry(self, first: int, log: StagedLog, kind: str, action: Action) -> None:
        """Say of a log or a shard that it is in the store, and what the catalog is to list; a former word is replaced.

        Durability: on return it survives power loss.
        """
        entry = LogEntry(
            writer=self._writer,
            database=self._database,
            first_event_id=log.first_event_id,
            action=action.SerializeToString(deterministic=True),
        )
        key, data = self._entry_key(first, log, kind), encode_entry(entry)
        # What is read back decides: an answer may be lost.
        failure: StorageError | None = None
        for number in range(_ATTEMPTS):
            if number:
                time.sleep(_PAUSE_SECONDS * number)
            try:
                self._store.put(key, data)
                if self._store.get(key) == data:
                    return
            except (StorageError, NotFoundError) as error:
                failure = error if isinstance(error, StorageError) else failure
        raise failure or StorageError(f"{self._store.locate(key)}: was put {_ATTEMPTS} times and is not there.")

    def entry(self, first: int, log: StagedLog, kind: str) -> Action:
        """Return what the catalog is to list of a log or its shard.

        Raises:
            NotFoundError: its step has to run first.
            CorruptionError, FormatVersionError: it cannot be read.
        """
        key = self._entry_key(first, log, kind)
        entry = decode_entry(self._store.get(key), self._store.locate(key))
        if (entry.writer, entry.database, entry.first_event_id) != (self._writer, self._database, log.first_event_id):
            raise CorruptionError(
                f"{self._store.locate(key)}: expected an entry of the log {log.first_event_id}, got that of another. "
                "Remove it: the step that wrote it writes it again."
            )
        return Action.FromString(entry.action)

    def remove(self, first: int) -> None:
        """Remove a unit; the manifest goes first: without it the rest is a leftover. May be repeated."""
        self._store.delete(self._key(first, UNIT_MANIFEST))
        for key in list(self._store.keys(f"{self._prefix}{first:0{ID_DIGITS}d}/")):
            self._store.delete(key)
        self._fs.remove_tree(self._copies / f"{first:0{ID_DIGITS}d}")

    def drop_stale_copies(self) -> None:
        """Remove this machine's copies of units that are not in the store any more."""
        names = {f"{first:0{ID_DIGITS}d}" for first in self.folders()}
        for name in self._fs.list(self._copies):
            if name not in names:
                self._fs.remove_tree(self._copies / name)

    def _put_events(self, first: int, path: Path) -> str:
        data = self._fs.view(path)
        digest = hashlib.sha256(data).hexdigest()
        if not put_object(self._store, self._key(first, digest), data, is_key_of_content=True):
            raise CorruptionError(
                f"{self._store.locate(self._key(first, digest))} @0: expected the bytes of the digest in its name, got "
                "others. Move it away."
            )
        return digest

    def _is_whole(self, path: Path, digest: str) -> bool:
        return hashlib.sha256(self._fs.view(path)).hexdigest() == digest

    def _fetch(self, key: str, path: Path, digest: str) -> None:
        self._fs.make_directory(path.parent)
        whole, start = hashlib.sha256(), 0
        partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}.fetching")
        with self._fs.create(partial) as file:
            while True:
                part = self._store.get_range(key, start, _PART_BYTES)
                whole.update(part)
                start += file.write(part)
                if len(part) < _PART_BYTES:
                    break
        if whole.hexdigest() != digest:
            self._fs.remove(partial)
            raise CorruptionError(
                f"{self._store.locate(key)} @0: expected bytes with the SHA-256 {digest}, got {start} others. Remove "
                f"{self._store.locate(key.rpartition('/')[0])}/{UNIT_MANIFEST}: the next rollover merges the journals "
                "again."
            )
        self._fs.rename(partial, path)

    def _entry_key(self, first: int, log: StagedLog, kind: str) -> str:
        return self._key(first, f"{log.first_event_id:0{ID_DIGITS}d}.{kind}")

    def _key(self, first: int, name: str) -> str:
        return f"{self._prefix}{first:0{ID_DIGITS}d}/{name}"
