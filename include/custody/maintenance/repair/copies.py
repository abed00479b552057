"""Copies of damaged files in a folder that a user names: a restored backup, or an older copy of the repository.

A copy counts only if something that is whole vouches for it: the digest in the catalog, the digests in events, the
digests by which transactions are chained, or its own checksums where nothing else is left. It is found by its name, or
by its digest under any name.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from pathlib import Path, PurePath

import msgspec
import pyarrow as pa

from custody.catalog import AddFile, Transaction
from custody.catalog.codec import decode, digest
from custody.catalog.log_check import check_log_itself
from custody.errors import CustodyError, NotFoundError
from custody.flow.content import ResourceClaim
from custody.flow.content.claim_file import ClaimFile, ContentRecord, read_header, scan
from custody.format.framing import Gap
from custody.format.names import (
    ContainerPaths,
    JournalName,
    claim_key,
    parse_event_log,
    parse_revision,
    parse_transaction,
)
from custody.journal import JournalFile
from custody.maintenance.findings import Finding
from custody.maintenance.repair.actions import quarantine_bytes
from custody.maintenance.repair.repair_contents import vouchers_of, whole_content
from custody.vfs import FileSystem
from custody.workspace import Workspace

_READ_BYTES = 8 << 20


class CopyFolder:
    """The files below a folder, by name; each is read when it is asked for."""

    def __init__(self, fs: FileSystem, folder: Path) -> None:
        if not fs.is_directory(folder):
            raise NotFoundError(f"{folder}: expected a folder with copies of files, found none.")
        self._fs = fs
        self._by_name: dict[str, list[Path]] = defaultdict(list)
        self._by_size: dict[int, list[Path]] | None = None
        self._digests: dict[Path, bytes] = {}
        waiting = [folder]
        while waiting:
            at = waiting.pop()
            for name in fs.list(at):
                path = at / name
                if fs.is_directory(path):
                    waiting.append(path)
                else:
                    self._by_name[name].append(path)

    def log_of(self, file: AddFile) -> Path | None:
        """Return a copy of a log that the catalog lists, under whatever name."""
        if self._by_size is None:
            self._by_size = defaultdict(list)
            for paths in self._by_name.values():
                for path in paths:
                    self._by_size[self._fs.size(path)].append(path)
        candidates = self._by_size.get(file.size_bytes, ()) if file.sha256 else ()
        return next((path for path in candidates if self._digest(path) == file.sha256), None)

    def copy_for(self, finding: Finding, workspace: Workspace) -> tuple[Path, Path] | None:
        """Return the place of the damaged or missing file of a finding, and an intact copy of it."""
        where = Path(finding.path)
        if finding.kind in ("content-damaged", "content-missing"):
            return next(((where, path) for path in self._like(where) if restored(workspace, where, path)), None)
        if finding.kind == "journal-damaged":
            return next(((where, path) for path in self._like(where) if restored(workspace, where, path)), None)
        if finding.kind in ("catalog-history", "catalog-damaged"):
            return self._transaction(finding, workspace)
        if finding.kind == "ids-missing":
            return self._journal(finding, workspace)
        if finding.kind == "known-loss" and parse_event_log(finding.name) is not None:
            place = workspace.log_path(finding.name)
            # One that lies there already is taken back as it is.
            if workspace.fs.exists(place) and restored(workspace, place, place) is not None:
                return None
            return next(((place, path) for path in self._like(place) if restored(workspace, place, path)), None)
        return None

    def _transaction(self, finding: Finding, workspace: Workspace) -> tuple[Path, Path] | None:
        objects = workspace.catalog.objects
        revision = parse_revision(Path(finding.path).name) if not finding.name else int(finding.name)
        if revision is None:
            return None
        folder = Path(objects.store.locate(objects.folder(revision).rstrip("/")))
        for name, paths in self._by_name.items():
            if name.endswith(".txn") and parse_transaction(name) is not None:
                for path in paths:
                    if path.parent.name == folder.name and restored(workspace, folder / name, path):
                        return folder / name, path
        return None

    def _journal(self, finding: Finding, workspace: Workspace) -> tuple[Path, Path] | None:
        """Return a whole sealed journal of a group that is gone from the disks and was never live."""
        first, last = finding.first_event_id, finding.last_event_id
        if first is None or last is None:
            return None
        state = workspace.catalog.load()
        there = {group.first_event_id for group in workspace.groups()}
        for name, paths in self._by_name.items():
            parsed = JournalName.parse(name)
            if parsed is None or not parsed.sealed or not first <= parsed.first_event_id <= last:
                continue
            if parsed.first_event_id in there or workspace.is_committed(state, parsed.first_event_id):
                continue
            # The disk that a journal lay on tells nothing: a group's journals may lie on any.
            where = ContainerPaths(workspace.settings.containers[0], workspace.writer).journals / name
            for path in paths:
                if restored(workspace, where, path) is not None:
                    return where, path
        return None

    def _like(self, where: Path) -> list[Path]:
        """Return the copies of a name, those first whose folders are like the ones of the place."""
        return sorted(self._by_name.get(where.name, ()), key=lambda path: (-_common_end(where, path), str(path)))

    def _digest(self, path: Path) -> bytes:
        if path not in self._digests:
            whole, view = hashlib.sha256(), self._fs.view(path)
            for start in range(0, len(view), _READ_BYTES):
                whole.update(view[start : start + _READ_BYTES])
            self._digests[path] = whole.digest()
        return self._digests[path]


def restore_copy(workspace: Workspace, where: Path, copy: Path) -> str:
    """Put an intact copy in the place of a damaged or missing file, whose bytes go to the quarantine first.

    Durability: on return the file survives power loss.

    Raises:
        NotFoundError: nothing vouches for the copy, or nothing is left to do.
    """
    fs = workspace.fs
    data = restored(workspace, where, copy)
    if data is None:
        raise NotFoundError(f"{copy}: is no intact copy of {where} any more.")
    if fs.exists(where):
        before = fs.read(where)
        if before == data:
            raise NotFoundError(f"{where}: has these bytes. Nothing is left to do.")
        text = f"{where}: what was here before an intact copy took its place."
        quarantine_bytes(workspace, before, code="replaced", message=text, path=str(where), offset=0)
    fs.make_directory(where.parent)
    fs.write_durably(where, data)
    return f"restored from {copy}"


def restored(workspace: Workspace, where: Path, copy: Path) -> bytes | None:
    """Return the bytes that a file is to have by a copy of it; None when nothing vouches for the copy."""
    data = workspace.fs.read(copy)
    try:
        if parse_transaction(where.name) is not None:
            return data if _is_chained(workspace, where, data) else None
        if JournalName.parse(where.name) is not None:
            return data if _is_whole_journal(workspace, where, data) else None
        if where.name.endswith(".parquet"):
            return data if _is_whole_log(workspace, where, data) else None
        return _whole_content(workspace, where, data)
    except (CustodyError, msgspec.MsgspecError, pa.ArrowException, OSError, ValueError):
        return None


def _is_whole_log(workspace: Workspace, where: Path, data: bytes) -> bool:
    log = check_log_itself(data, str(where))
    home = (log.metadata.writer, log.metadata.database, log.metadata.first_event_id)
    return log.is_whole and home == (workspace.writer, workspace.database, int(where.name.partition(".")[0]))


def _is_whole_journal(workspace: Workspace, where: Path, data: bytes) -> bool:
    """Whether a copy is a whole sealed journal of the same group, with all records that the damaged one still has."""
    journal, name = JournalFile(where, data), JournalName.parse(where.name)
    if journal.header is None or journal.end is None or journal.damage or name is None:
        return False
    header = journal.header
    group = header.writer, header.database, header.first_event_id
    if group != (workspace.writer, workspace.database, name.first_event_id):
        return False
    if journal.end.events != sum(record.count for record in journal.records):
        return False
    try:
        damaged = JournalFile.read(workspace.fs, where)
    except CustodyError:
        return True  # it is gone, or not even its head can be read
    held = {(record.first_event_id, record.count) for record in journal.records}
    return {(record.first_event_id, record.count) for record in damaged.records} <= held


def _is_chained(workspace: Workspace, where: Path, data: bytes) -> bool:
    """Whether a transaction is the one that stood here: its neighbours carry its digest, or it theirs."""
    objects = workspace.catalog.objects
    message = decode(data, str(where))
    revision = parse_revision(where.parent.name)
    if (
        revision is None
        or message.revision != revision
        or where.name != PurePath(objects.key(revision, message.uuid)).name
    ):
        return False
    after = _neighbour(workspace, revision + 1)
    if after is not None:
        return bool(after[1].previous_digest == digest(data))
    before = _neighbour(workspace, revision - 1)
    return before is not None and message.previous_digest == digest(before[0])


def _neighbour(workspace: Workspace, revision: int) -> tuple[bytes, Transaction] | None:
    """Return the transaction of a revision, with its bytes; None if none can be read."""
    objects = workspace.catalog.objects
    for item in objects.at(revision) if revision >= 0 else ():
        if not item.is_checkpoint:
            try:
                data = objects.store.get(item.key)
                return data, decode(data, item.key)
            except CustodyError:
                continue
    return None


def _whole_content(workspace: Workspace, where: Path, data: bytes) -> bytes | None:
    """Return the contents of a claim: those of the copy, and those that were appended since it was made."""
    writer, _, container, section, identifier = PurePath(claim_key(where)).parts
    resource = ResourceClaim(writer, container, section, identifier)
    if workspace.fs.exists(where):
        data += workspace.fs.read(where)[len(data) :]
    header, start = read_header(memoryview(data), where)
    if (header.writer, header.container, header.section, header.identifier) != (
        writer,
        container,
        section,
        identifier,
    ):
        return None
    found = list(scan(memoryview(data), header.key, start))
    contents = tuple(item for item in found if isinstance(item, ContentRecord))
    gaps = tuple(item for item in found if isinstance(item, Gap))
    damage = list(ClaimFile(where, header, contents, gaps, memoryview(data)).damage())
    is_whole = not damage and all(whole_content(data, each) for each in vouchers_of(workspace, resource))
    return data if is_whole else None


def _common_end(one: Path, other: Path) -> int:
    count = 0
    for left, right in zip(reversed(one.parts), reversed(other.parts), strict=False):
        if left != right:
            break
        count += 1
    return count
