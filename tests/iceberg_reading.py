"""A published table, read by its own files alone: which event ids each snapshot shows, whatever disk it lies on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntryStatus, read_manifest_list

from custody import iceberg
from custody.eventlog import EventLog, refuse
from custody.iceberg.store_io import StoreIO
from custody.iceberg.table_folder import TableFolder
from custody.read.time_travel import snapshot_at
from custody.read.tombstone_filter import visible_events
from custody.repository import EventSelection, Repository
from custody.workspace import Workspace
from tests.support import append, run_steps, sample

EVENTS = sample(600)
COLUMNS = "writer, event_id, event_type, epoch_ms(event_time), flowfile_uuid, file_size, parent_uuids"


def with_history(found: Repository) -> Repository:
    """Give a new repository ten revisions and more: commits, forgotten events, compacted logs."""
    for number in range(8):
        append(found, EVENTS[number * 50 : number * 50 + 50])
        run_steps(found.settings)
        if number == 3:
            iceberg.publish(found.workspace())
            found.forget(EventSelection(event_ids=(7, 120)), "asked for")
        if number == 5:
            found.compact()
    found.forget(EventSelection(event_ids=(333,)), "asked for")
    return found


def rows_in_sql(repository: Repository) -> list[list[Any]]:
    """Some columns of all events that are live, as `custody sql` gives them."""
    with repository.sql(f"select {COLUMNS} from events order by event_id") as result:  # noqa: S608 - the tests' own
        return [list(row.values()) for batch in result.batches() for row in batch.to_pylist()]


def newest(workspace: Workspace) -> dict[str, Any]:
    """The newest version of the metadata."""
    folder = TableFolder(workspace.catalog.objects)
    return folder.read(folder.versions()[-1])


def shown(workspace: Workspace, metadata: dict[str, Any]) -> dict[int, list[int]]:
    """The ids of the events of each snapshot, by the revision that it is of."""
    return {
        int(snapshot["summary"]["custody.revision"]): ids_of(workspace, snapshot["manifest-list"])
        for snapshot in metadata["snapshots"]
    }


def ids_of(workspace: Workspace, manifest_list: str) -> list[int]:
    folder = TableFolder(workspace.catalog.objects)
    reader = StoreIO(folder)
    logs: dict[str, Any] = {}
    hidden: dict[str, set[int]] = {}
    for manifest in read_manifest_list(reader.new_input(manifest_list)):
        assert manifest.manifest_length == len(reader.new_input(manifest.manifest_path))
        for entry in manifest.fetch_manifest_entry(reader):
            data_file = entry.data_file
            assert entry.status != ManifestEntryStatus.DELETED
            if manifest.content == ManifestContent.DATA:
                assert data_file.file_path not in logs, "a log is listed twice"
                logs[data_file.file_path] = data_file
                continue
            assert data_file.content == DataFileContent.POSITION_DELETES
            deletes = pq.read_table(pa.BufferReader(folder.store.get(folder.key_of(data_file.file_path))))
            assert deletes.num_rows == data_file.record_count
            for path, place in zip(*deletes.to_pydict().values(), strict=True):
                hidden.setdefault(path, set()).add(place)
    assert set(hidden) <= set(logs)
    ids: list[int] = []
    for path, data_file in logs.items():
        log = _path_of(workspace, path)
        held = EventLog(workspace.fs, log).read(["event_id"]).column("event_id").to_pylist()
        assert len(held) == data_file.record_count
        assert len(workspace.fs.read(log)) == data_file.file_size_in_bytes
        ids += [each for place, each in enumerate(held) if place not in hidden.get(path, ())]
    return sorted(ids)


def _path_of(workspace: Workspace, location: str) -> Path:
    """Return the file of this machine that holds a log, by where a manifest says that it lies."""
    objects = workspace.catalog.objects
    home = objects.store.locate(objects.home.rstrip("/"))
    is_of_home = objects.store.is_remote and location.startswith(f"{home}/")
    return workspace.log_path(location.removeprefix(f"{home}/")) if is_of_home else Path(location)


def expected(workspace: Workspace) -> dict[int, list[int]]:
    """The ids that custody itself gives out of each kept revision, as far back as the table may go."""
    state = workspace.catalog.load()
    first = max(state.floor, state.revision - workspace.settings.iceberg.snapshots_max + 1)
    return {revision: live_ids(workspace, revision) for revision in range(first, state.revision + 1)}


def live_ids(workspace: Workspace, revision: int) -> list[int]:
    view = snapshot_at(workspace, revision, refuse)
    assert view is not None
    ids: list[int] = []
    for file in view.state.files.values():
        table = EventLog(workspace.fs, workspace.log_path(file.path)).read()
        ids += np.asarray(visible_events(workspace, view.state, table).column("event_id")).tolist()
    return sorted(ids)
