"""One staged unit: its manifest, and each batch of events against its checksum."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from custody.errors import CorruptionError, CustodyError, StorageError
from custody.eventlog import StagedLog, check_rest, read_staged
from custody.format.framing import misplaced_parts
from custody.format.names import UNIT_MANIFEST
from custody.maintenance.findings import Finding, Level
from custody.rollover import UnitManifest, Workspace, staged_path
from custody.rollover.manifest import PREAMBLE


def check_unit(workspace: Workspace, first_group: int, level: Level) -> Iterator[Finding]:
    """Yield what is wrong with a staged unit; one that was swept meanwhile has nothing."""
    folder = workspace.paths.staged_unit(first_group)
    path = folder / UNIT_MANIFEST
    try:
        data = workspace.fs.read(path)
        manifest = UnitManifest.decode(data, path)
        for offset in misplaced_parts(data, len(PREAMBLE)):
            raise CorruptionError(f"{path} @{offset}: expected the mark of a record, got that of a part.")
        if (manifest.writer, manifest.database, manifest.first_group) != (
            workspace.writer,
            workspace.database,
            first_group,
        ):
            raise CorruptionError(f"{path}: expected the unit of group {first_group}, got that of another one.")
    except (CustodyError, msgspec.MsgspecError) as error:
        if workspace.fs.exists(folder):
            yield _finding(workspace, first_group, path, str(error))
        return
    for log in manifest.logs:
        staged = staged_path(folder, log)
        try:
            _check(workspace, staged, log, level, manifest.schema_version)
        except (CustodyError, OSError, pa.ArrowException, ValueError) as error:
            if workspace.fs.exists(folder):
                yield _finding(workspace, first_group, staged, str(error), log)


def _check(workspace: Workspace, path: Path, log: StagedLog, level: Level, version: int) -> None:
    if not workspace.fs.exists(path):
        raise StorageError(f"{path}: expected the events of a staged unit, found no file.")
    if level is Level.QUICK:
        if workspace.fs.size(path) != log.file_bytes:
            raise CorruptionError(f"{path}: expected {log.file_bytes} bytes, got {workspace.fs.size(path)}.")
        return
    check_rest(workspace.fs, path, log)
    last, rows = log.first_event_id - 1, 0
    for table in read_staged(workspace.fs, path, log, ["event_id"], version):
        ids = table.column("event_id").to_numpy()
        if len(ids) and (ids[0] <= last or (np.diff(ids) <= 0).any()):
            raise CorruptionError(f"{path}: expected event ids that go up, got {int(ids[0])} behind {last}.")
        last, rows = int(ids[-1]), rows + len(ids)
    if (rows, last) != (log.rows, log.last_event_id):
        raise CorruptionError(f"{path}: expected {log.rows} events up to {log.last_event_id}, got {rows} up to {last}.")


def _finding(workspace: Workspace, first_group: int, path: Path, text: str, log: StagedLog | None = None) -> Finding:
    return Finding(
        kind="unit-damaged",
        writer=workspace.writer,
        path=str(path),
        message=text,
        events=0,  # its journals are there until it is live
        first_event_id=log.first_event_id if log else None,
        last_event_id=log.last_event_id if log else None,
        name=str(first_group),
    )
