"""Makes logs live without an index: what reading events by their ids needs, and nothing else."""

from __future__ import annotations

import hashlib
from pathlib import Path

from custody.catalog import Action, AddFile
from custody.eventlog import LogMetadata
from custody.rollover.publish import waiting_units
from custody.workspace import Workspace


def publish(workspace: Workspace) -> int:
    """List all logs of the staged units, which compress has written; return how many."""
    done = 0
    for manifest in list(waiting_units(workspace)):
        actions = [add_file(workspace, manifest.metadata(log)) for log in manifest.logs]
        next_event_id = manifest.logs[-1].last_event_id + 1
        workspace.catalog.commit(actions, next_event_id=next_event_id, attempt=manifest.transaction)
        done += len(actions)
    return done


def add_file(workspace: Workspace, metadata: LogMetadata) -> Action:
    """Describe a log by what lies on disk."""
    files = workspace.files(metadata)
    return Action(
        add_file=AddFile(
            path=files.relative_log,
            size_bytes=files.log.stat().st_size,
            rows=metadata.rows,
            sha256=_sha256(files.log),
            table=metadata.table,
            partition=metadata.partition,
            schema_version=metadata.schema_version,
            first_event_id=metadata.first_event_id,
            last_event_id=metadata.last_event_id,
            first_event_time_ms=metadata.first_event_time_ms,
            last_event_time_ms=metadata.last_event_time_ms,
            toc_path=files.relative_toc,
            toc_sha256=_sha256(files.toc),
            groups=metadata.groups,
        )
    )


def _sha256(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
