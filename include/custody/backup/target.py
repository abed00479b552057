"""A target of backups: a folder or a bucket with objects by digest, and the manifests of the backups that use them.

Objects never change, so that an increment adds those that are new. A backup holds the target's lease while it writes;
its number is the epoch of the lease. Files:

    custody-backups                          the mark of a target
    objects/<2 digits>/<SHA-256>             bytes of files
    backups/<number>/files.parquet           table of a backup's files
    backups/<number>/manifest.json           manifest, written last
    unfinished/<number>/<n>.parquet          rows of a backup that goes on, or that was killed
    lease/<epoch>                            who writes
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from custody.backup.manifest import (
    BackupFile,
    BackupManifest,
    decode_manifest,
    decode_table,
    digest_text,
    encode_manifest,
    encode_table,
)
from custody.clock import Clock
from custody.config.parsing import is_local, local_folder
from custody.errors import (
    ConfigurationError,
    CorruptionError,
    FormatVersionError,
    NotFoundError,
)
from custody.format.checked_json import has_right_checksum, with_checksum
from custody.format.names import epoch_file, parse_epoch
from custody.lease import Attempt, Lease, LeasePlace, take
from custody.store import (
    ObjectStore,
    StoredFiles,
    open_store,
    put_object,
    require_bucket,
    require_conditional_puts,
)
from custody.vfs import TEMPORARY_SUFFIX, FileSystem

Progress = Callable[[str, int, int], None]
"""Called with (what is done, bytes done, bytes in all)."""
# Part of the format.
MARK = "custody-backups"
OBJECTS, BACKUPS, UNFINISHED, LEASE = "objects", "backups", "unfinished", "lease"
MANIFEST, TABLE = "manifest.json", "files.parquet"
_MARK_VERSION = 1
_DEAD_SECONDS = 300.0
"""A holder of the lease without a sign of life for this long is dead."""
YOUNG_MS = 24 * 3_600_000
"""Younger objects are not pruned: a backup that was stopped may still name them."""


class _Mark(msgspec.Struct, frozen=True):
    version: int
    created_ms: int


_MARK_DECODER = msgspec.json.Decoder(_Mark)


@dataclass(frozen=True, slots=True)
class UnreadableBackup:
    """A backup whose manifest cannot be read, and why."""

    number: int
    problem: str


class BackupTarget:
    """The objects and manifests of one target.

    Args:
        location: a folder, or the URL of a bucket.
        fs: the file system of a folder.
        base: what a relative path is relative to.
    """

    def __init__(self, location: str, fs: FileSystem, base: Path) -> None:
        self.location = location
        self._fs = fs
        self.folder: Path | None = (base / local_folder(location)).absolute() if is_local(location) else None
        """The folder; None of a bucket."""
        self.store: ObjectStore = open_store(location, fs, base)
        self._last_object: tuple[bytes, bytes] = b"", b""

    def __str__(self) -> str:
        return self.location

    def open(self) -> None:
        """Raise unless this is a target.

        Raises:
            NotFoundError: there is no target at this place.
            FormatVersionError: a newer custody made it.
        """
        self._require_there()
        data = self._get(MARK)
        if data is None:
            raise NotFoundError(f"{self}: expected a target of backups with the file {MARK}, found none.")
        if not has_right_checksum(data):
            raise CorruptionError(f"{self.store.locate(MARK)}: expected the mark of a target, got other bytes.")
        version = _MARK_DECODER.decode(data).version
        if version != _MARK_VERSION:
            raise FormatVersionError(
                f"{self.store.locate(MARK)}: expected version {_MARK_VERSION}, got {version}. Use a newer custody."
            )

    def make(self, clock: Clock) -> None:
        """Make the target unless it is there.

        Raises:
            ConfigurationError: something else lies there.
        """
        if self.store.is_remote:
            require_bucket(self.store, self.location)
        if self._get(MARK) is None:
            names = self._names()
            if names:
                raise ConfigurationError(
                    f"{self}: expected a target of backups or nothing, found {', '.join(sorted(names)[:5])}. "
                    "Choose an empty folder or prefix."
                )
            if self.store.is_remote:
                require_conditional_puts(self.store, self.location)
            put_object(self.store, MARK, with_checksum(msgspec.json.encode(_Mark(_MARK_VERSION, clock.now_ms()))))
        self.open()

    def take_lease(self, clock: Clock, dead_seconds: float = _DEAD_SECONDS) -> Lease:
        """Take the lease of who writes here; its epoch is the number of the backup.

        Raises:
            LockedError: another backup is being written.
        """
        place = self._lease_place()
        numbers = [*self.numbers(), *self._numbered(UNFINISHED)]
        return take(
            place.files,
            place.folder,
            "backup",
            Attempt.new("backup"),
            clock,
            wait_seconds=0,
            dead_seconds=dead_seconds,
            floor=max(numbers, default=0),
        )

    def numbers(self) -> list[int]:
        """Return the numbers of the whole backups, oldest first."""
        return [number for number in self._numbered(BACKUPS) if self.store.head(_manifest_key(number)) is not None]

    def manifest(self, number: int) -> BackupManifest:
        """Return a backup's manifest.

        Raises:
            NotFoundError: there is no such backup.
            CorruptionError, FormatVersionError: it cannot be read.
        """
        key = _manifest_key(number)
        data = self._get(key)
        if data is None:
            known = ", ".join(map(str, self.numbers())) or "none"
            raise NotFoundError(f"{self}: there is no backup {number}. There are: {known}.")
        manifest = decode_manifest(data, self.store.locate(key))
        if manifest.number != number:
            raise CorruptionError(f"{self.store.locate(key)}: expected backup {number}, got {manifest.number}.")
        return manifest

    def manifests(self) -> list[BackupManifest | UnreadableBackup]:
        """Return all backups, oldest first."""
        found: list[BackupManifest | UnreadableBackup] = []
        for number in self.numbers():
            try:
                found.append(self.manifest(number))
            except (CorruptionError, FormatVersionError) as error:
                found.append(UnreadableBackup(number, str(error)))
        return found

    def newest(self) -> BackupManifest | None:
        """Return the newest backup whose manifest can be read, None for none."""
        found = [item for item in self.manifests() if isinstance(item, BackupManifest)]
        return found[-1] if found else None

    def files(self, manifest: BackupManifest) -> list[BackupFile]:
        """Return the files of a backup, by path.

        Raises:
            CorruptionError: the table is gone, or not the one that the manifest names.
        """
        key = _table_key(manifest.number)
        data = self._get(key)
        where = self.store.locate(key)
        if data is None or digest_text(data) != manifest.table_sha256:
            found = "no such object" if data is None else "other bytes"
            raise CorruptionError(f"{where}: expected the table of backup {manifest.number}, got {found}.")
        return decode_table(data, where)

    def publish(self, manifest: BackupManifest, files: Collection[BackupFile], lease: Lease) -> BackupManifest:
        """Write the table and then the manifest of a backup; return the manifest.

        Durability: on return the backup counts, also after power loss.

        Raises:
            SupersededError: another backup took the lease over.
        """
        table = encode_table(files)
        whole = msgspec.structs.replace(manifest, table_bytes=len(table), table_sha256=digest_text(table))
        lease.check()
        self.store.put(_table_key(manifest.number), table)
        lease.check()
        self.store.put(_manifest_key(manifest.number), encode_manifest(whole))
        # A prune of whoever took over in between does not know this backup: it must not count.
        if not lease.is_current():
            self.store.delete(_manifest_key(manifest.number))
            lease.check()
        return whole

    def save_progress(self, number: int, part: int, files: Collection[BackupFile]) -> None:
        """Keep rows of a backup that goes on, for the next one should this one be killed."""
        self.store.put(f"{UNFINISHED}/{epoch_file(number)}/{part}.parquet", encode_table(files))

    def progress(self) -> Iterator[BackupFile]:
        """Yield the rows of backups that were killed."""
        for key in self.store.keys(f"{UNFINISHED}/"):
            try:
                yield from decode_table(self.store.get(key), self.store.locate(key))
            except (CorruptionError, NotFoundError):
                continue  # what it names is copied anew

    def forget_progress(self) -> None:
        """Remove the rows of unfinished backups."""
        for key in list(self.store.keys(f"{UNFINISHED}/")):
            self.store.delete(key)
            self.store.drop_folder(f"{key.rpartition('/')[0]}/")

    def objects(self) -> set[bytes]:
        """Return the digests of all objects."""
        names = (key.rpartition("/")[2] for key in self.store.keys(f"{OBJECTS}/"))
        return {bytes.fromhex(name) for name in names if _is_digest(name)}

    def put_object(self, data: bytes) -> bytes:
        """Write an object, if it is not there; return its digest. Durability: on return it survives power loss."""
        digest = hashlib.sha256(data).digest()
        self.store.put_if_absent(_object_key(digest), data)
        return digest

    def read(self, file: BackupFile) -> Iterator[bytes]:
        """Yield the bytes of a file in parts of at most CHUNK_BYTES, each checked before it is yielded.

        Raises:
            CorruptionError: an object is gone or damaged, or they do not give the file.
        """
        whole, left, start = hashlib.sha256(), file.size, file.offset
        for digest in file.objects:
            part = self._object(digest, file.path)[start : start + left]
            whole.update(part)
            left, start = left - len(part), 0
            yield part
        if left or whole.digest() != file.sha256:
            raise CorruptionError(
                f"{self}: {file.path}: expected {file.size} bytes with the SHA-256 {file.sha256.hex()}, got "
                f"{file.size - left} with {whole.hexdigest()}."
            )

    def prune(self, keep: int, now_ms: int, young_ms: int = YOUNG_MS) -> tuple[list[int], int]:
        """Remove all but the newest backups, then the objects that none of them names; the caller holds the lease.

        Returns the numbers that were removed, and the bytes of the objects. Can be repeated after any crash: a
        manifest goes before what it names.

        Raises:
            CorruptionError: a backup that stays cannot be read, so that nobody knows what it needs.
        """
        numbers = self.numbers()
        # A table without a manifest is what a crash left.
        gone = [number for number in self._numbered(BACKUPS) if number not in numbers[-keep:]]
        used: set[bytes] = set()
        for number in numbers[-keep:]:
            for file in self.files(self.manifest(number)):
                used.update(file.objects)
        for number in gone:
            self.store.delete(_manifest_key(number))
            self.store.delete(_table_key(number))
            self.store.drop_folder(f"{BACKUPS}/{epoch_file(number)}/")
        freed = 0
        for info in list(self.store.list(f"{OBJECTS}/")):
            name = info.key.rpartition("/")[2]
            if _is_digest(name) and bytes.fromhex(name) not in used and info.modified_ms <= now_ms - young_ms:
                self.store.delete(info.key)
                freed += info.size_bytes
        return [number for number in gone if number in numbers], freed

    def _object(self, digest: bytes, path: str) -> bytes:
        # Small files share an object, and are read one after the other.
        if self._last_object[0] == digest:
            return self._last_object[1]
        key = _object_key(digest)
        data = self._get(key)
        if data is None or hashlib.sha256(data).digest() != digest:
            found = "no such object" if data is None else "other bytes"
            raise CorruptionError(
                f"{self.store.locate(key)}: expected the bytes of {path}, got {found}. Use another backup, or bring "
                "the object back from a copy of the target."
            )
        self._last_object = digest, data
        return data

    def _lease_place(self) -> LeasePlace:
        if self.folder is not None:
            return LeasePlace(self._fs, self.folder / LEASE)
        files = StoredFiles(self.store)
        return LeasePlace(files, files.path(LEASE))

    def _names(self) -> list[str]:
        if self.folder is not None:
            # A crash may have left a mark that never got its name.
            return [name for name in self._fs.list(self.folder) if not name.endswith(TEMPORARY_SUFFIX)]
        first = next(iter(self.store.keys("")), None)
        return [] if first is None else [first]

    def _numbered(self, folder: str) -> list[int]:
        names = self.store.folders(f"{folder}/")
        return [number for name in names if (number := parse_epoch(name)) is not None]

    def _require_there(self) -> None:
        if self.folder is not None and not self._fs.is_directory(self.folder):
            raise NotFoundError(f"{self}: expected a folder with backups, found none.")
        if self.store.is_remote:
            require_bucket(self.store, self.location)

    def _get(self, key: str) -> bytes | None:
        try:
            return self.store.get(key)
        except NotFoundError:
            return None


def verify_backup(
    target: BackupTarget, manifest: BackupManifest, progress: Progress = lambda what, done, total: None
) -> list[str]:
    """Read every byte of a backup; return what is wrong, nothing where all is as its manifest states.

    Raises:
        CorruptionError: the table of its files cannot be read.
    """
    problems, done = [], 0
    # By object: small files share one, which is then read once.
    for file in sorted(target.files(manifest), key=lambda file: (file.objects[:1], file.offset)):
        progress("verified", done, manifest.bytes)
        done += file.size
        try:
            for _ in target.read(file):
                pass
        except CorruptionError as error:
            problems.append(str(error))
    if done != manifest.bytes:
        problems.append(f"{target}: expected {manifest.bytes} bytes in backup {manifest.number}, got {done}.")
    return problems


def _manifest_key(number: int) -> str:
    return f"{BACKUPS}/{epoch_file(number)}/{MANIFEST}"


def _table_key(number: int) -> str:
    return f"{BACKUPS}/{epoch_file(number)}/{TABLE}"


def _object_key(digest: bytes) -> str:
    text = digest.hex()
    return f"{OBJECTS}/{text[:2]}/{text}"


def _is_digest(name: str) -> bool:
    return len(name) == 64 and all(character in "0123456789abcdef" for character in name)
