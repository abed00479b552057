"""Checks of files that hold no live event: ledger, reports, marks, exports, transactions, scrub, leases, quarantine.

Each of the small files can go, at the cost of what it remembers. Of the quarantine, envelopes and pieces are checked
against their checksums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from custody.catalog import store_of
from custody.config import Settings
from custody.errors import CustodyError, NotFoundError
from custody.flowfile_repository import FlowFileLook
from custody.format.checked_json import has_right_checksum, is_changed
from custody.format.framing import misplaced_parts
from custody.format.names import ERASURES, LEASES, SOFTWARE, parse_epoch
from custody.landing import decode_ledger_entry
from custody.lease import Holder, LeaseFiles
from custody.maintenance.findings import Finding, Level
from custody.quarantine import Quarantine
from custody.rollover import read_mark
from custody.store import StoredFiles, place_text
from custody.vfs import FileSystem
from custody.workspace import Workspace
from custody.workspace.run_reports import decode_report, stored_reports

RecordCheck = Callable[[bytes, Path], object]
"""Decodes a file; raises CustodyError when it is not as it was written."""
_PREAMBLE_BYTES = 8


def check_records(settings: Settings, fs: FileSystem) -> Iterator[Finding]:
    """Yield what is wrong with the repository's own small files; each can go, at the cost of what it remembers."""
    from custody.maintenance.scrub import SCRUB_FILE, decode_scrub  # the scrub imports this room

    mark, scrub = settings.watch_mark, settings.maintenance_folder / SCRUB_FILE
    checks: list[tuple[Path, RecordCheck]] = [
        (path, decode_ledger_entry) for path in _below(fs, settings.landed, ".json")
    ]
    checks += [(path, decode_report) for path in _below(fs, settings.runs, ".json")]
    checks += [(mark, lambda _, path: read_mark(fs, path))] if fs.exists(mark) else []
    checks += [(scrub, decode_scrub)] if fs.exists(scrub) else []
    for folder in (settings.exports_home, settings.site_to_site_home, settings.jobs):
        checks += [(path, _has_checksum) for path in _below(fs, folder, ".json")]
    for path, check in checks:
        yield from _checked(fs, path, check, "record-damaged")
    for path in () if settings.is_store_remote else _below(fs, settings.store / ERASURES, ".json"):
        yield from _checked(fs, path, _has_checksum, "erasure-damaged")
    if settings.is_store_remote:
        store = store_of(settings, fs)
        files = StoredFiles(store)
        for path in stored_reports(settings, fs):
            yield from _checked(files, path, decode_report, "record-damaged")
        for key in store.keys(f"{ERASURES}/"):
            yield from _checked(files, files.path(key), _has_checksum, "erasure-damaged")
    if fs.exists(scrub):
        yield from _marks(fs, scrub, "record-damaged")
    yield from _flowfiles(settings, fs)


def _flowfiles(settings: Settings, fs: FileSystem) -> Iterator[Finding]:
    """Yield what keeps the queues of FlowFiles from being read: snapshot, logs, and each block of a swap file."""
    home = settings.flowfiles_home
    if fs.list(home):
        try:
            FlowFileLook(fs, home, 0).check()
        except CustodyError as error:
            yield Finding.of("flowfiles-damaged", home, error, name=str(home))


def check_leases(workspace: Workspace) -> Iterator[Finding]:
    """Yield the epochs of a writer's leases that cannot be read, on the disk and in an object store."""
    yield from _leases_of_disk(workspace)
    if workspace.settings.is_store_remote:
        store, prefix = workspace.catalog.objects.store, f"{workspace.catalog.objects.home}{LEASES}/"
        files = StoredFiles(store)
        for key in store.keys(prefix):
            if parse_epoch(key.rpartition("/")[2]) is not None:
                yield from _checked(files, files.path(key), Holder.decode, "lease-damaged", workspace.writer)


def _leases_of_disk(workspace: Workspace) -> Iterator[Finding]:
    fs, folder = workspace.fs, workspace.paths.home / LEASES
    for name in fs.list(folder):
        # Beside the leases lies the lock of those who repair a catalog.
        for file in fs.list(folder / name) if fs.is_directory(folder / name) else ():
            path = folder / name / file
            if parse_epoch(file) is not None:
                yield from _checked(fs, path, Holder.decode, "lease-damaged", workspace.writer)
                yield from _marks(fs, path, "lease-damaged", workspace.writer)


def check_builds(workspace: Workspace) -> Iterator[Finding]:
    """Yield the descriptions of builds of software's tables that are not as they were written."""
    fs = workspace.fs
    for path in _below(fs, workspace.settings.store / workspace.writer / SOFTWARE / "builds", ".json"):
        yield from _checked(fs, path, _unchanged, "build-damaged", workspace.writer)


def _unchanged(data: bytes, path: Path) -> None:
    if is_changed(data):
        raise CustodyError(f"{path}: expected a description with its checksum, got other bytes.")


def _has_checksum(data: bytes, path: Path) -> None:
    if not has_right_checksum(data):
        raise CustodyError(f"{path}: expected an object with its checksum, got other bytes.")


def _checked(fs: LeaseFiles, path: Path, check: RecordCheck, kind: str, writer: str | None = None) -> Iterator[Finding]:
    try:
        check(fs.read(path), path)
    except (CustodyError, ValueError) as error:
        if fs.exists(path):
            yield Finding.of(kind, path, error, writer=writer, name=place_text(path))


def _marks(fs: FileSystem, path: Path, kind: str, writer: str | None = None) -> Iterator[Finding]:
    # The checksum of a record does not cover its mark.
    for offset in misplaced_parts(fs.read(path), _PREAMBLE_BYTES):
        text = f"{path} @{offset}: expected the mark of a record, got that of a part."
        yield Finding.of(kind, path, text, writer=writer, offset=offset, name=str(path))


def _below(fs: FileSystem, folder: Path, suffix: str) -> Iterator[Path]:
    for name in fs.list(folder):
        path = folder / name
        if fs.is_directory(path):
            yield from _below(fs, path, suffix)
        elif path.suffix == suffix:
            yield path


def check_quarantine(fs: FileSystem, folder: Path, level: Level) -> Iterator[Finding]:
    """Yield what is wrong with the bodies of a quarantine, of each the first damage."""
    quarantine = Quarantine(fs, folder)
    for body in quarantine.bodies():
        path = quarantine.path(body)
        try:
            # Their number of bytes is in the envelope, and so are the digests of the pieces.
            quarantine.entries_of(body)
            if level is not Level.QUICK:
                for piece in quarantine.pieces(body):
                    quarantine.checked(piece, piece.entry.key)
        except NotFoundError:
            continue  # removed since the folder was listed
        except CustodyError as error:
            yield Finding.of("quarantine-damaged", path, error, name=body)
