"""Files of destinations against what the sink told of them: is there a file, and as long as its rows were told?

Of the folder of backend `file` alone, for nobody else's disks are asked. Told are SEND events that are still here: of
a file whose events expired nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from custody.config import Settings
from custody.errors import CustodyError, StorageError
from custody.maintenance.findings import Finding
from custody.ngsi_sink.local import LocalFiles
from custody.ngsi_sink.persist import sink_folder
from custody.ngsi_sink.send_events import SOURCE_FORMAT, WRITER
from custody.ngsi_sink.sink_state import pending
from custody.read.reader import tables_from
from custody.vfs import FileSystem
from custody.workspace import Workspace


def check_destinations(settings: Settings, fs: FileSystem) -> Iterator[Finding]:
    """Yield what is wrong with files of destinations, seen from their names and lengths; nothing is raised."""
    if settings.ngsi.backend != "file" or not fs.exists(sink_folder(settings)):
        return
    files = LocalFiles(fs, (settings.root / settings.ngsi.backend_folder).absolute())
    workspace = next((item for item in Workspace.all(settings) if item.writer == WRITER), None)
    try:
        ends = {} if workspace is None else _told(workspace, files.uri("/"))
        waiting = pending(fs, sink_folder(settings))
    except CustodyError:
        return  # what cannot be read is found by the check of what holds it
    for path in sorted({*ends, *waiting}):
        finding = _compared(files, path, ends.get(path, 0), max(ends.get(path, 0), waiting.get(path, 0)))
        if finding is not None:
            yield finding


def _told(workspace: Workspace, root: str) -> dict[str, int]:
    """Return by path how long files are, in bytes, as far as their rows were told of, below the target of today."""
    ends: list[pa.Table] = []
    for events in tables_from(workspace):
        is_ours = pc.and_kleene(
            pc.equal(events.column("source_format"), SOURCE_FORMAT),
            pc.starts_with(events.column("transit_uri"), root),
        )
        attributes = events.filter(is_ours).column("updated_attributes")
        said = {name: pc.map_lookup(attributes, name, "first") for name in ("path", "filename")}
        numbers = [pc.map_lookup(attributes, f"ngsi.{name}", "first").cast(pa.int64()) for name in ("offset", "length")]
        paths = pc.binary_join_element_wise(said["path"], said["filename"], "/")
        ends.append(pa.table({"path": paths.cast(pa.string()), "end": pc.add(*numbers)}))
    if not ends:
        return {}
    found = pa.concat_tables(ends).drop_null().group_by("path").aggregate([("end", "max")])
    return dict(zip(found.column("path").to_pylist(), found.column("end_max").to_pylist(), strict=True))


def _compared(files: LocalFiles, path: str, least: int, most: int) -> Finding | None:
    """Compare a file with the bytes that were told of, and with those that a committed batch may have added."""
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
