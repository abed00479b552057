"""The check of destinations for `custody verify`: does each file exist, and is it as long as its SEND events say?

Only backend `file` is checked, for verification asks no other machine. SEND events expire like all others: nothing is
known of a file without any.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from custody.config import Settings
from custody.errors import CustodyError, StorageError
from custody.maintenance.findings import Finding
from custody.ngsi_sink.batch_file import SOURCE_FORMAT, WRITER
from custody.ngsi_sink.local import LocalFiles
from custody.ngsi_sink.opening import sink_folder
from custody.ngsi_sink.sink_state import committed_lengths
from custody.read.reader import tables_from
from custody.vfs import FileSystem
from custody.workspace import Workspace


def check_destinations(settings: Settings, fs: FileSystem) -> Iterator[Finding]:
    """Yield what is wrong with the names and lengths of destinations' files; nothing is raised."""
    if settings.ngsi.backend != "file" or not fs.exists(sink_folder(settings)):
        return
    files = LocalFiles(fs, (settings.root / settings.ngsi.backend_folder).absolute())
    workspace = next((item for item in Workspace.all(settings) if item.writer == WRITER), None)
    try:
        ends = {} if workspace is None else _event_ends(workspace, files.uri("/"))
        committed = committed_lengths(fs, sink_folder(settings))
    except CustodyError:
        return  # the checks of logs and of the sink's objects report what cannot be read
    for path in sorted({*ends, *committed}):
        # At least what SEND events name; at most that and what a committed batch, perhaps unfinished, may have added.
        finding = _compared(files, path, ends.get(path, 0), max(ends.get(path, 0), committed.get(path, 0)))
        if finding is not None:
            yield finding


def _event_ends(workspace: Workspace, root: str) -> dict[str, int]:
    """Return by path up to which byte SEND events name rows of a file, for files below the folder of the settings."""
    ends: list[pa.Table] = []
    for events in tables_from(workspace):
        is_ours = pc.and_kleene(
            pc.equal(events.column("source_format"), SOURCE_FORMAT),
            pc.starts_with(events.column("transit_uri"), root),
        )
        attributes = events.filter(is_ours).column("updated_attributes")
        names = {name: pc.map_lookup(attributes, name, "last") for name in ("path", "filename")}
        numbers = [pc.map_lookup(attributes, f"ngsi.{name}", "last").cast(pa.int64()) for name in ("offset", "length")]
        paths = pc.binary_join_element_wise(names["path"], names["filename"], "/")
        ends.append(pa.table({"path": paths.cast(pa.string()), "end": pc.add(*numbers)}))
    if not ends:
        return {}
    longest = pa.concat_tables(ends).drop_null().group_by("path", use_threads=False).aggregate([("end", "max")])
    return dict(zip(longest.column("path").to_pylist(), longest.column("end_max").to_pylist(), strict=True))


def _compared(files: LocalFiles, path: str, least: int, most: int) -> Finding | None:
    """Compare a file with the bytes that SEND events name, and with those that a committed batch may have added."""
    uri = files.uri(path)
    try:
        size = files.size(path)
    except (CustodyError, StorageError) as error:
        return Finding(kind="destination-damaged", path=uri, message=str(error))
    if (size or 0) < least:
        got = "no file" if size is None else f"{size} bytes"
        text = f"{uri}: expected at least the {least} bytes that were committed, got {got}."
        return Finding(kind="destination-damaged", path=uri, message=text, offset=size)
    if size is not None and size > most:
        text = f"{uri}: expected the {most} bytes that were committed, got {size}: somebody else wrote the others."
        return Finding(kind="destination-longer", path=uri, message=text, offset=most, size_bytes=size)
    return None
