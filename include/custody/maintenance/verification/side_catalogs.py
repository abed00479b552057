"""Catalogs beside that of the event logs: of what the sink of NGSI keeps, and of the provenance tables of software."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from custody.catalog import AddFile, Catalog, store_of, verify
from custody.clock import Clock
from custody.config import Settings
from custody.errors import CustodyError
from custody.format.names import SINK, SINK_DATABASE, SINK_FOLDER, SOFTWARE
from custody.maintenance.findings import Finding, Level
from custody.store import LocalStore
from custody.vfs import FileSystem


def check_sink(settings: Settings, fs: FileSystem, clock: Clock, level: Level) -> Iterator[Finding]:
    """Yield what is wrong with the catalog of the sink and with the objects that it lists."""
    folder = settings.root / SINK_FOLDER
    if fs.exists(folder / SINK / SINK_DATABASE):
        yield from _check(Catalog(LocalStore(fs, folder), SINK, SINK_DATABASE, clock), "sink-damaged", level)


def check_software(settings: Settings, writer: str, fs: FileSystem, clock: Clock, level: Level) -> Iterator[Finding]:
    """Yield what is wrong with the catalog of the provenance tables of software, and with the tables."""
    if fs.exists(settings.store / writer / SOFTWARE):
        catalog = Catalog(store_of(settings, fs), writer, SOFTWARE, clock)
        yield from _check(catalog, "software-damaged", level, writer)


def _check(catalog: Catalog, kind: str, level: Level, writer: str | None = None) -> Iterator[Finding]:
    found = verify(catalog, files=False)
    for defect in found.defects:
        yield Finding(kind=kind, path=defect.file, offset=defect.offset, message=str(defect), writer=writer)
    for text in found.notices:
        yield Finding(kind="catalog-notice", path=str(catalog.objects), message=text, writer=writer)
    state = found.state
    for path in sorted(state.files) if state is not None and level is not Level.QUICK else ():
        for text in _wrong(catalog, state.files[path] if state is not None else AddFile()):
            where = catalog.objects.store.locate(catalog.objects.home + path)
            yield Finding(kind=kind, path=where, message=text, writer=writer)


def _wrong(catalog: Catalog, file: AddFile) -> Iterator[str]:
    objects = catalog.objects
    for path, sha256 in ((file.path, file.sha256), (file.toc_path, file.toc_sha256)):
        where = objects.store.locate(objects.home + path)
        try:
            if path and hashlib.sha256(objects.store.get(objects.home + path)).digest() != sha256:
                yield f"{where}: expected other bytes (SHA-256)."
        except CustodyError as error:
            yield str(error)
