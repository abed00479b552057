"""`restore`: a backup becomes a repository that goes on, in places that are empty.

`RESTORING` in the folder names the backup while the restore goes on, and `custody.toml` is written last: what was
interrupted is no repository, and the next restore of the same backup goes on with it. The restored repository claims
the name of each writer anew, from an event id on that lies far above all that the backup knows, because the original
may have given out more ids since.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from custody.backup.manifest import BackupFile, BackupManifest, WriterEnd
from custody.backup.repository_files import ROOT, STORE, WORK, area_stores, end_of
from custody.backup.settings_document import toml_text
from custody.backup.target import BackupTarget, Progress
from custody.catalog import Action, AddShard, CatalogState, Note, RemoveShard
from custody.clock import Clock, SystemClock
from custody.config import SETTINGS_FILE, Settings
from custody.config.parsing import is_local
from custody.config.settings import root_of
from custody.errors import ConfigurationError, CorruptionError, NotFoundError
from custody.format.checked_json import has_right_checksum, with_checksum
from custody.format.names import FAILED_SUFFIX, LEASES, RESTORING, WITNESS, ContainerPaths
from custody.journal import WriterContainers, lock_path, purpose_of
from custody.lease import lease_status
from custody.maintenance.findings import Finding, Level
from custody.maintenance.verification import verify_repository
from custody.store import LocalStore, ObjectStore, StoredFiles, check_key
from custody.vfs import TEMPORARY_SUFFIX, FileSystem, PosixFileSystem
from custody.workspace import Workspace

RESTORED_IDS = 1 << 30
"""So many ids above those that the backup knows are left to the original."""


class _Restoring(msgspec.Struct, frozen=True):
    """The content of RESTORING: what is being restored here."""

    format_version: int
    target: str
    number: int
    table_sha256: str


_RESTORING_DECODER = msgspec.json.Decoder(_Restoring)


class RestoredWriter(msgspec.Struct, frozen=True, kw_only=True):
    """A writer of a restored repository: the end of its history, and where its ids go on."""

    end: WriterEnd
    first_event_id: int
    """No smaller id is given out; ids from the end of the backup up to it may be those of events of the original."""


class RestoreReport(msgspec.Struct, frozen=True, kw_only=True):
    """A restored repository."""

    number: int
    moment_ms: int
    folder: str
    writers: list[RestoredWriter]
    flowfiles: int
    files: int
    bytes: int
    secrets_left_out: list[str]
    findings: list[Finding]
    """What the verification found."""


def restore(
    location: str,
    folder: Path,
    *,
    number: int | None = None,
    store: str | None = None,
    as_configured: bool = False,
    ids_from: int | None = None,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
    base: Path | None = None,
    progress: Progress = lambda what, done, total: None,
) -> RestoreReport:
    """Restore a backup, the newest by default, into a folder that is absent or empty.

    Args:
        location: of the target; a relative folder lies in `base`, by default the working directory.
        folder: of the restored repository.
        number: of the backup.
        store: where the store goes, an empty folder or the URL of an empty bucket; by default a folder in `folder`.
        as_configured: containers, stripes and disks of contents go where the settings of the backup have them, and not
            into `folder`.
        ids_from: the first event id that the restored writers give out; by default far above those of the backup.

    Durability: on return the repository survives power loss.

    Raises:
        NotFoundError: there is no such target or backup.
        ConfigurationError: a place is not empty, or the store is of another kind than that of the backup.
        CorruptionError: the backup is damaged, or what was restored is not what its manifest states.
    """
    fs, clock = fs or PosixFileSystem(), clock or SystemClock()
    target = BackupTarget(location, fs, base or Path.cwd())
    target.open()
    newest = target.newest() if number is None else target.manifest(number)
    if newest is None:
        raise NotFoundError(f"{target}: there is no whole backup.")
    return _Restore(target, newest, root_of(folder), fs, clock, progress).run(
        store=store, as_configured=as_configured, ids_from=ids_from
    )


class _Restore:
    """One restore on its way."""

    def __init__(
        self,
        target: BackupTarget,
        manifest: BackupManifest,
        folder: Path,
        fs: FileSystem,
        clock: Clock,
        progress: Progress,
    ) -> None:
        self._target = target
        self._manifest = manifest
        self._folder = folder
        self._fs = fs
        self._clock = clock
        self._progress = progress
        self._marker = folder / RESTORING

    def run(self, *, store: str | None, as_configured: bool, ids_from: int | None) -> RestoreReport:
        """Restore."""
        manifest = self._manifest
        files = self._target.files(manifest)
        document, is_changed = self._settings_document(files, store, as_configured=as_configured)
        settings = Settings(**{**document, "root": self._folder})
        stores = area_stores(settings, self._fs)
        self._begin(settings, stores)
        self._copy(files, stores)
        # As copied, before anything is changed: this is what the manifest states.
        self._require_end(settings)
        writers = [self._go_on(workspace, ids_from) for workspace in Workspace.all(settings, self._fs, self._clock)]
        self._end_leases(settings, stores)
        self._publish(files, document, settings, is_changed=is_changed)
        report = verify_repository(
            Workspace.all(settings, self._fs, self._clock),
            settings,
            self._fs,
            Level.DEFAULT,
            lambda what, done, total: self._progress(f"verified {what}".strip(), done, total),
        )
        return RestoreReport(
            number=manifest.number,
            moment_ms=manifest.moment_ms,
            folder=str(self._folder),
            writers=writers,
            flowfiles=manifest.flowfiles,
            files=manifest.files,
            bytes=manifest.bytes,
            secrets_left_out=manifest.secrets_left_out,
            findings=report.findings,
        )

    def _settings_document(
        self, files: Sequence[BackupFile], store: str | None, *, as_configured: bool
    ) -> tuple[dict[str, Any], bool]:
        """Return the settings of the restored repository, and whether they differ from those of the backup."""
        manifest = self._manifest
        row = next((file for file in files if file.path == f"{ROOT}/{SETTINGS_FILE}"), None)
        text = b"" if row is None else b"".join(self._target.read(row))
        former: dict[str, Any] = tomllib.loads(text.decode())
        if manifest.is_store_remote != (store is not None and not is_local(store)):
            kind = "object store" if manifest.is_store_remote else "folder"
            raise ConfigurationError(
                f"backup {manifest.number} of {self._target}: its store is an {kind}".replace("an folder", "a folder")
                + f", got {store or 'a folder'!r} for the restored one. Name an empty "
                + ("bucket or prefix: --store s3://…" if manifest.is_store_remote else "folder with --store, or none.")
            )
        repository = dict(former.get("repository", {}))
        content = dict(former.get("content", {}))
        repository |= {"writer": manifest.writer, "database": manifest.database}
        repository["store"] = store or "store"
        if manifest.area(WORK):
            repository["work_folder"] = self._place(WORK, "work", as_configured=as_configured)
        repository["containers"] = [
            self._place(area.name, f"containers/{area.name.removeprefix('container-')}", as_configured=as_configured)
            for area in manifest.areas
            if area.name.startswith("container-")
        ]
        for kind, section, key in (("stripe-", repository, "stripes"), ("content-", content, "containers")):
            moved = {
                (name := area.name.removeprefix(kind)): self._place(
                    area.name, f"{kind.rstrip('-')}s/{name}", as_configured=as_configured
                )
                for area in manifest.areas
                if area.name.startswith(kind)
            }
            if moved:
                plain = [item for item in section.get(key, []) if "=" not in item]
                section[key] = [*plain, *(f"{name}={place}" for name, place in moved.items())]
        document = {**former, "repository": repository, **({"content": content} if content else {})}
        # Not where only defaults became explicit: the file stays as its author wrote it.
        return document, _effective(document) != _effective(former)

    def _place(self, area: str, inside: str, *, as_configured: bool) -> str:
        place = self._manifest.area(area)
        # A relative place lies in the folder anyway, unless it leads out of it.
        is_inside = not Path(place).is_absolute() and ".." not in Path(place).parts
        return place if as_configured or is_inside else inside

    def _begin(self, settings: Settings, stores: dict[str, ObjectStore]) -> None:
        """Mark the folder, which must be empty or hold a restore of this backup that was interrupted."""
        fs, manifest = self._fs, self._manifest
        mark = _Restoring(1, self._target.location, manifest.number, manifest.table_sha256)
        if fs.exists(self._marker):
            data = fs.read(self._marker)
            found = _RESTORING_DECODER.decode(data) if has_right_checksum(data) else None
            if found is None or found.table_sha256 != manifest.table_sha256:
                what = "another one" if found is None else f"backup {found.number} of {found.target}"
                raise ConfigurationError(
                    f"{self._folder}: expected an empty folder or an interrupted restore of backup {manifest.number} "
                    f"of {self._target}, got one of {what}. Finish that one, or remove the folder."
                )
            self._remove_later(stores)
            return
        # A crash may have left a marker that never got its name.
        unnamed = [
            name for name in fs.list(self._folder) if name.startswith(RESTORING) and name.endswith(TEMPORARY_SUFFIX)
        ]
        for name, store in stores.items():
            place = settings.root if name == ROOT else None
            taken = (
                next(iter(store.keys("")), None)
                if place is None
                else next(iter(sorted({*fs.list(place)} - {*unnamed})), None)
            )
            if taken is not None:
                raise ConfigurationError(
                    f"{store.locate('') if place is None else place}: expected nothing in the place of {name}, found "
                    f"{taken}. A backup is restored into empty places: name another folder, or move away what is there."
                )
        for name in unnamed:
            fs.remove(self._folder / name)
        fs.make_directory(self._folder)
        fs.write_durably(self._marker, with_checksum(msgspec.json.encode(mark)))

    def _remove_later(self, stores: dict[str, ObjectStore]) -> None:
        """Remove what an interrupted restore wrote behind the backup: claims, notes, ends of leases, witnesses."""
        known = {file.path for file in self._target.files(self._manifest)}
        for area, store in stores.items():
            for key in list(store.keys("")):
                is_ours = area == STORE or key.startswith("witness/") or f"/{WITNESS}." in key
                if is_ours and f"{area}/{key}" not in known:
                    store.delete(key)

    def _copy(self, files: Iterable[BackupFile], stores: dict[str, ObjectStore]) -> None:
        """Write all files but the settings, and make them durable."""
        # By object: small files share one, which is then read once.
        ordered = sorted(files, key=lambda file: (file.objects[:1], file.offset))
        total, done = self._manifest.bytes, 0
        roots = {Path(store.locate("")) for store in stores.values() if isinstance(store, LocalStore)}
        folders = set(roots)
        for root in sorted(roots):
            self._fs.make_directory(root)
        for file in ordered:
            area, _, key = file.path.partition("/")
            self._progress("restored", done, total)
            done += file.size
            store = stores.get(area)
            if store is None:
                raise CorruptionError(f"{self._target}: {file.path}: expected a path in an area of the manifest.")
            if file.path == f"{ROOT}/{SETTINGS_FILE}":
                continue
            if isinstance(store, LocalStore):
                self._write(Path(store.locate(check_key(key))), file, folders)
            else:
                self._put(store, key, file)
        self._progress("restored", total, total)
        self._settle(roots, folders)

    def _write(self, path: Path, file: BackupFile, folders: set[Path]) -> None:
        """Write a file of a folder; one that an interrupted restore left is kept if it is whole."""
        fs = self._fs
        for folder in _up_to(path.parent, folders):
            fs.add_directory(folder)
            folders.add(folder)
        if fs.exists(path):
            if self._is_whole(path, file):
                return
            fs.remove(path)
        # Under its own name at once: until the end the folder is no repository, and the next restore reads it again.
        with fs.create(path) as out:
            for part in self._target.read(file):
                out.write(part)

    def _is_whole(self, path: Path, file: BackupFile) -> bool:
        if self._fs.size(path) != file.size:
            return False
        digest = hashlib.sha256()
        for start in range(0, file.size, 16 << 20):
            digest.update(self._fs.read_part(path, start, 16 << 20))
        return digest.digest() == file.sha256

    def _put(self, store: ObjectStore, key: str, file: BackupFile) -> None:
        info = store.head(key)
        if info is None or info.size_bytes != file.size:
            store.put(key, b"".join(self._target.read(file)))

    def _settle(self, roots: set[Path], folders: set[Path]) -> None:
        """Make all that was written durable."""
        fs = self._fs
        if all(fs.sync_disk(root) for root in sorted(roots)):
            return
        for folder in sorted(folders):
            for name in fs.list(folder):
                if not fs.is_directory(folder / name):
                    fs.sync_file(folder / name)
            fs.sync_directory(folder)

    def _require_end(self, settings: Settings) -> None:
        """Raise CorruptionError unless the restored files end where the manifest states."""
        ends, flowfiles = end_of(settings, self._fs, self._clock)
        found = {end.writer: end for end in ends}
        for end in self._manifest.ends:
            if found.get(end.writer) != end:
                raise CorruptionError(
                    f"{self._folder}: writer {end.writer!r}: expected the end that backup {self._manifest.number} "
                    f"states, {_end_text(end)}, got {_end_text(found.get(end.writer))}. The folder is no repository; "
                    "restore another backup, elsewhere, and report this."
                )
        if flowfiles != self._manifest.flowfiles:
            raise CorruptionError(
                f"{self._folder}: expected {self._manifest.flowfiles} FlowFiles in queues, as backup "
                f"{self._manifest.number} states, got {flowfiles}."
            )

    def _go_on(self, workspace: Workspace, ids_from: int | None) -> RestoredWriter:
        """Claim a writer's name for the restored containers, from an id on that the original did not give out."""
        fs, writer, settings = self._fs, workspace.writer, workspace.settings
        end = next(end for end in self._manifest.ends if end.writer == writer)
        state = workspace.newest_state()
        first = 0
        # Nobody appends under the name of a writer that was retired, nor of the archive.
        if not purpose_of(workspace.incarnations.readable_claims()):
            least = max(end.reserved, end.newest_event_id + 1, state.next_event_id)
            first = least + RESTORED_IDS if ids_from is None else max(ids_from, least)
            roots = settings.containers
            fs.make_directory(lock_path(roots, writer).parent)
            with fs.lock(lock_path(roots, writer)):
                for root in roots:
                    fs.make_directory(ContainerPaths(root, writer).journals)
                members = WriterContainers(fs, roots, writer)
                # The floor in the containers before the claim: after a crash in between no smaller id is given out.
                members.raise_floor(first)
                workspace.incarnations.claim_anew(
                    members,
                    first,
                    self._clock,
                    restored_from=f"backup {self._manifest.number} of {self._target}",
                    left_from=end.newest_event_id + 1,
                )
        # This process may have seen what an interrupted restore wrote here.
        workspace.catalog.may_go_back = True
        if state.revision >= 0 and state.seal is None:
            state = workspace.catalog.commit([self._note(end, first), *self._moved_shards(state, settings)])
        if state.revision >= 0:
            workspace.catalog.accept(state)
        return RestoredWriter(end=end, first_event_id=first)

    def _note(self, end: WriterEnd, first: int) -> Action:
        text = (
            f"restored from backup {self._manifest.number} of {self._target}, which ends at event id "
            f"{end.newest_event_id}; ids from {end.newest_event_id + 1} on may be those of other events in the original"
        )
        return Action(note=Note(text=f"{text}; here they go on at {first}" if first else text))

    def _moved_shards(self, state: CatalogState, settings: Settings) -> list[Action]:
        """Return what the catalog has to know of shards whose container is in another place now."""
        manifest = self._manifest
        moved = {
            manifest.area(f"container-{number}"): str(place)
            for number, place in enumerate(settings.repository.containers, 1)
            if manifest.area(f"container-{number}") != str(place)
        }
        actions = []
        for shard in state.shards.values():
            if shard.container in moved:
                here = AddShard()
                here.CopyFrom(shard)
                here.container = moved[shard.container]
                actions += [Action(remove_shard=RemoveShard(name=shard.name)), Action(add_shard=here)]
        return actions

    def _end_leases(self, settings: Settings, stores: dict[str, ObjectStore]) -> None:
        """End the leases that were held in the moment of the backup: their holders are not here."""
        places = [(ROOT, f"exports/{name}/lease") for name in stores[ROOT].folders("exports/")]
        for end in self._manifest.ends:
            home = f"{end.writer}/{settings.repository.database}/{LEASES}"
            places += [(STORE, f"{home}/{name}") for name in stores[STORE].folders(f"{home}/")]
        for area, key in places:
            files = StoredFiles(stores[area])
            lease = lease_status(files, files.path(key))
            if lease is not None and lease.is_open:
                files.publish_if_absent(lease.path.with_name(lease.path.name + FAILED_SUFFIX), b"")

    def _publish(
        self, files: Sequence[BackupFile], document: dict[str, Any], settings: Settings, *, is_changed: bool
    ) -> None:
        """Write the settings last: from now on the folder is a repository."""
        row = next((file for file in files if file.path == f"{ROOT}/{SETTINGS_FILE}"), None)
        data = b"" if row is None else b"".join(self._target.read(row))
        if is_changed:
            head = f"# Restored from backup {self._manifest.number} of {self._target}, with the places of the restore."
            data = f"{head}\n{toml_text(document)}".encode()
        self._fs.write_durably(self._folder / SETTINGS_FILE, data)
        self._fs.remove(self._marker)
        self._fs.sync_directory(self._folder)


def _effective(document: dict[str, Any]) -> dict[str, Any]:
    """Return all settings that a document gives, as values."""
    return Settings(**{**document, "root": Path("/")}).model_dump(mode="json")


def _up_to(folder: Path, known: set[Path]) -> list[Path]:
    """Return a folder and its parents that were not made yet, the uppermost first."""
    missing = []
    while folder not in known and folder != folder.parent:
        missing.append(folder)
        folder = folder.parent
    return missing[::-1]


def _end_text(end: WriterEnd | None) -> str:
    if end is None:
        return "no such writer"
    return (
        f"revision {end.revision}, {end.live_events} live and {end.waiting_events} waiting events, newest event id "
        f"{end.newest_event_id}"
    )
