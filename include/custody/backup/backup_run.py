"""`back_up`: the files of a repository at one moment become a backup, while events are appended and passes run.

First everything is copied that is not in the target yet, in any order, so that little is left to copy. Then the files
are listed at one moment (`custody.backup.repository_files`), and what is new since is copied. A file that went away
before it was copied ends that moment, and the next one begins. So nothing has to be held back from retention, garbage
collection or compaction, and a backup needs no room in the repository.
"""

from __future__ import annotations

import socket
import tomllib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import msgspec

from custody.backup.copying import SHARED_BYTES_MAX, Copier, ShrunkError, Throttle
from custody.backup.manifest import BackupFile, BackupManifest
from custody.backup.repository_files import ROOT, Moment, RepositoryFiles, SourceFile
from custody.backup.settings_document import toml_text, without_secrets
from custody.backup.target import BackupTarget, Progress
from custody.clock import Clock, SystemClock
from custody.config import SETTINGS_FILE, Settings
from custody.config.parsing import is_local
from custody.errors import ConfigurationError, ConflictError, NotFoundError
from custody.lease import Heartbeat, Lease
from custody.vfs import FileSystem, PosixFileSystem

_MOMENTS_MAX = 10
_PROGRESS_BYTES = 256 << 20
"""After so many bytes the rows of what was copied are kept, for the next backup should this one be killed."""
_SETTLED_MS = 2_000
"""A file that was written this long before a backup began has another time if it was written since."""
_DEAD_SECONDS = 300.0


class BackupReport(msgspec.Struct, frozen=True, kw_only=True):
    """A backup that was made: its manifest, and how much was read for it."""

    manifest: BackupManifest
    bytes_read: int
    moments: int
    """Looks that it took until everything that was listed could be copied."""
    pruned: list[int]
    """Numbers of older backups that were removed."""
    bytes_freed: int

    @property
    def is_whole(self) -> bool:
        """Whether all that the catalogs list was there, as they state it."""
        return not (self.manifest.missing or self.manifest.damaged)


def back_up(
    settings: Settings,
    location: str,
    *,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
    base: Path | None = None,
    bytes_per_second: int | None = None,
    with_secrets: bool = False,
    accept_older: bool = False,
    keep: int | None = None,
    progress: Progress = lambda what, done, total: None,
) -> BackupReport:
    """Make a backup of a repository in a target, a folder or the URL of a bucket.

    Args:
        settings: of the repository.
        location: of the target; a relative folder lies in `base`, by default the working directory.
        bytes_per_second: reads no more than that.
        with_secrets: takes secrets of `custody.toml` along, too.
        accept_older: goes on where the target, or the repository itself, has seen a later state than there is.
        keep: how many backups of the target are kept, None for all.

    Durability: on return the backup counts, also after power loss.

    Raises:
        ConfigurationError: the target lies in the repository, or something else lies there, or it is another's.
        ConflictError: the target has a later state of the repository; or it changes too fast.
        EarlierStateError: a part of the repository is of an earlier moment than one that was seen, or away.
        LockedError: another backup is being written to the target.
        CorruptionError: a catalog is damaged.
        StorageError: a disk is not there, or refuses.
    """
    fs, clock = fs or PosixFileSystem(), clock or SystemClock()
    target = BackupTarget(location, fs, base or Path.cwd())
    _require_apart(settings, target)
    target.make(clock)
    lease = target.take_lease(clock, _DEAD_SECONDS)
    with Heartbeat([lease], clock, _DEAD_SECONDS):
        try:
            source = RepositoryFiles(settings, fs, clock, accept_older=accept_older)
            report = _Backup(source, target, lease, clock, Throttle(bytes_per_second), progress).run(
                with_secrets=with_secrets, accept_older=accept_older
            )
            pruned, freed = target.prune(keep, clock.now_ms()) if keep is not None else ([], 0)
        except BaseException:
            lease.release(failed=True)
            raise
    lease.release(recovered=True)
    return msgspec.structs.replace(report, pruned=pruned, bytes_freed=freed)


class _Backup:
    """One backup on its way."""

    def __init__(
        self,
        source: RepositoryFiles,
        target: BackupTarget,
        lease: Lease,
        clock: Clock,
        throttle: Throttle,
        progress: Progress,
    ) -> None:
        self._settings = source.settings
        self._source = source
        self._target = target
        self._lease = lease
        self._clock = clock
        self._progress = progress
        self._began_ms = clock.now_ms()
        self._copier = Copier(source, target, throttle)
        self._known: dict[str, tuple[BackupFile, int]] = {}
        """Rows of earlier backups, and when each of those began."""
        self._parts = 0
        self._saved: set[str] = set()

    def run(self, *, with_secrets: bool, accept_older: bool) -> BackupReport:
        """Copy, and write the manifest."""
        newest = self._target.newest()
        self._remember(newest)
        first = self._source.moment()
        if newest is not None:
            _require_continuation(self._target, newest, first, accept_older=accept_older)
        self._copy(first, with_secrets=with_secrets)
        for number in range(1, _MOMENTS_MAX + 1):
            moment = self._source.moment()
            if not self._copy(moment, with_secrets=with_secrets):
                # One more look tells what is missing from what went away in this moment.
                missing = sorted({*moment.missing} & {*first.missing})
                if missing == sorted(moment.missing):
                    return self._publish(moment, missing, number, with_secrets=with_secrets)
            first = moment
        raise ConflictError(
            f"{self._settings.root}: files went away at each of {_MOMENTS_MAX} moments before they could be copied. "
            "Make the backup with a higher --bytes-per-second, or when no retention, compaction or flow runs."
        )

    def _remember(self, newest: BackupManifest | None) -> None:
        if newest is not None:
            self._known = {file.path: (file, newest.began_ms) for file in self._target.files(newest)}
        # What a killed backup kept was settled when that began.
        self._known.update((file.path, (file, self._began_ms)) for file in self._target.progress())

    def _copy(self, moment: Moment, *, with_secrets: bool) -> list[str]:
        """Copy what the target does not have; return what went away before."""
        files = [self._public(file, with_secrets=with_secrets) for file in moment.files.values()]
        total = sum(file.size for file in files)
        done, unsaved, gone = 0, 0, []
        # By path: after a backup that was killed the same small files share an object again.
        for file in sorted(files, key=lambda file: file.path):
            self._progress("copied", done, total)
            done += file.size
            if self._is_copied(file):
                continue
            try:
                self._copier.copy(file, None if file.is_passing else self._known.get(file.path, (None, 0))[0])
            except (NotFoundError, ShrunkError):
                if file.is_optional:
                    del moment.files[file.path]
                else:
                    gone.append(file.path)
                continue
            unsaved += file.size
            if unsaved >= _PROGRESS_BYTES:
                self._save_progress()
                unsaved = 0
        self._copier.flush()
        self._progress("copied", total, total)
        return gone

    def _public(self, file: SourceFile, *, with_secrets: bool) -> SourceFile:
        """Return a file as the backup has it: the settings without secrets."""
        if file.path != f"{ROOT}/{SETTINGS_FILE}" or with_secrets or file.data is None:
            return file
        left = without_secrets(tomllib.loads(file.data.decode()))
        if not left.removed:
            return file
        data = toml_text(left.document).encode()
        return replace(file, data=data, size=len(data))

    def _is_copied(self, file: SourceFile) -> bool:
        """Whether the target has the bytes of a file already; what was read for the list is compared by them."""
        row = self._copier.rows.get(file.path)
        # In this run: what changes under its name is read with the list, or grows.
        if (
            row is not None
            and file.data is None
            and (row.size, row.modified_ms) == (file.size, file.modified_ms)
            and file.sha256 in (b"", row.sha256)
        ):
            return True
        former = self._known.get(file.path)
        # What passes is read again: together it is one small object, which is not kept for a part of it.
        if former is None or (file.is_passing and file.size <= SHARED_BYTES_MAX):
            return False
        known, began_ms = former
        is_same = known.size == file.size and (
            known.sha256 == file.sha256
            if file.sha256
            else known.modified_ms == file.modified_ms and file.modified_ms < began_ms - _SETTLED_MS
        )
        if is_same and self._copier.has(known):
            self._copier.rows[file.path] = replace(known, modified_ms=file.modified_ms)
            return True
        return False

    def _save_progress(self) -> None:
        self._copier.flush()
        settled_ms = self._began_ms - _SETTLED_MS
        rows = [
            row for path, row in self._copier.rows.items() if path not in self._saved and row.modified_ms < settled_ms
        ]
        self._target.save_progress(self._lease.epoch, self._parts, rows)
        self._saved.update(row.path for row in rows)
        self._parts += 1
        self._lease.check()

    def _publish(self, moment: Moment, missing: list[str], moments: int, *, with_secrets: bool) -> BackupReport:
        rows = [self._copier.rows[path] for path in moment.files]
        settings = moment.files.get(f"{ROOT}/{SETTINGS_FILE}")
        removed: Iterable[str] = ()
        if settings is not None and settings.data is not None and not with_secrets:
            removed = without_secrets(tomllib.loads(settings.data.decode())).removed
        manifest = BackupManifest(
            number=self._lease.epoch,
            began_ms=self._began_ms,
            moment_ms=moment.from_ms,
            moment_end_ms=moment.until_ms,
            ended_ms=self._clock.now_ms(),
            host=socket.gethostname(),
            database=self._settings.repository.database,
            writer=self._settings.repository.writer,
            is_store_remote=self._settings.is_store_remote,
            areas=self._source.areas(),
            ends=moment.ends,
            flowfiles=moment.flowfiles,
            files=len(rows),
            bytes=sum(row.size for row in rows),
            bytes_new=self._copier.bytes_new,
            table_bytes=0,
            table_sha256="",
            missing=missing,
            damaged=sorted(
                path
                for path, file in moment.files.items()
                if file.sha256 and self._copier.rows[path].sha256 != file.sha256
            ),
            secrets_left_out=sorted(removed),
        )
        manifest = self._target.publish(manifest, rows, self._lease)
        self._target.forget_progress()
        return BackupReport(
            manifest=manifest, bytes_read=self._copier.bytes_read, moments=moments, pruned=[], bytes_freed=0
        )


def _require_apart(settings: Settings, target: BackupTarget) -> None:
    """Raise ConfigurationError where the target lies in the repository, or one of its folders in the target."""
    places = [settings.root, *settings.containers, *settings.stripes.values()]
    places += settings.content_store.elsewhere.values()
    if is_local(settings.repository.store):
        places.append(settings.store)
    elif settings.repository.store.rstrip("/") + "/" == target.location.rstrip("/") + "/" or target.location.startswith(
        settings.repository.store.rstrip("/") + "/"
    ):
        raise ConfigurationError(f"{target}: expected a target beside the store of the repository, not in it.")
    if target.folder is None:
        return
    folder = target.folder.resolve()
    for place in places:
        resolved = place.resolve()
        if folder.is_relative_to(resolved) or resolved.is_relative_to(folder):
            raise ConfigurationError(
                f"{target}: expected a folder apart from the repository, got one that shares {resolved}. Choose "
                "another folder, on another disk if you can."
            )


def _require_continuation(target: BackupTarget, newest: BackupManifest, moment: Moment, *, accept_older: bool) -> None:
    """Raise unless the repository goes on from the newest backup of the target."""
    former = {end.writer: end for end in newest.ends if end.catalog_id}
    now = {end.writer: end for end in moment.ends if end.catalog_id}
    both = former.keys() & now.keys()
    if former and now and not any(former[writer].catalog_id == now[writer].catalog_id for writer in both):
        raise ConfigurationError(
            f"{target}: expected backups of this repository, got those of another one, on {newest.host!r}. Choose a "
            "target of its own for each repository."
        )
    for writer, end in sorted(former.items()):
        found = now.get(writer)
        if accept_older or (found is not None and found.catalog_id != end.catalog_id):
            continue
        revision, reserved = (-1, 0) if found is None else (found.revision, found.reserved)
        if revision < end.revision or (revision == end.revision and found is not None and found.digest != end.digest):
            raise ConflictError(
                f"{target}: backup {newest.number} has revision {end.revision} of writer {writer!r}, up to event id "
                f"{end.newest_event_id}; this repository has revision {revision}, ids up to {reserved}. It went back "
                "in time, or is a copy. If it is right, for example after a restore, add --accept-older."
            )
