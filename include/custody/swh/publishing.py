"""Publishing: one transaction makes a build the live database, in a catalog of its own beside that of the events.

A build takes the place of the one before. The former files stay where they are, so that the database of an earlier
revision can still be queried.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from custody.catalog import Action, AddFile, Catalog, CatalogState, Note, RemoveFile, read_by_copies, store_of
from custody.clock import Clock
from custody.config import Settings
from custody.errors import NotFoundError
from custody.swh.build import DATABASE, Build
from custody.swh.index_file import INDEX_SUFFIX
from custody.swh.table_file import WrittenFile
from custody.vfs import FileSystem


@dataclass(frozen=True, slots=True)
class Published:
    """A published build: revision of the catalog, files, rows of all tables, bytes with the indexes."""

    revision: int
    files: int
    rows: int
    bytes: int


def database_folder(settings: Settings) -> Path:
    """Return where the database of a repository lies; of an object store, where it is built and its copies lie."""
    return settings.store / settings.repository.writer / DATABASE


def database_catalog(settings: Settings, fs: FileSystem, clock: Clock) -> Catalog:
    """Return the catalog that says which files the database consists of."""
    return catalog_of(settings, settings.repository.writer, fs, clock)


def catalog_of(settings: Settings, writer: str, fs: FileSystem, clock: Clock) -> Catalog:
    """Return the catalog of the database that lies beside the events of a writer."""
    catalog = Catalog(store_of(settings, fs), writer, DATABASE, clock)
    catalog.objects.files.beside_suffix = INDEX_SUFFIX
    read_by_copies(catalog, settings, fs)
    return catalog


def publish(catalog: Catalog, build: Build) -> Published:
    """Make a build live in one transaction, unless it is, and remove what only its steps needed.

    Durability: on return the build is live, also after power loss. The files are in an object store before they are
    listed.

    Raises:
        NotFoundError: a step of the build did not finish.
        ConflictError: another build was published at the same time, or the object store has other bytes under the
            name of a file. Try again, or build under another name.
        StorageError: the store refuses.
    """
    files = build.files()
    # A process that died may have published this build already.
    state = catalog.settle()
    # Published already: another transaction would only add a revision.
    if set(state.files) != set(files):
        stored = catalog.objects.files
        for path, file in files.items():
            if path not in state.files:
                stored.publish(path, bytes.fromhex(file.sha256))
                stored.publish(stored.beside(path), bytes.fromhex(file.index_sha256))
        actions = [Action(remove_file=RemoveFile(path=path)) for path in state.files if path not in files]
        actions += [
            Action(add_file=_live(build.name, path, file)) for path, file in files.items() if path not in state.files
        ]
        described = build.description
        text = f"build {build.name} of {described.graph}, filter {described.node_filter}"
        text += f", graph version {described.graph_version}" if described.graph_version else ""
        state = catalog.commit([*actions, Action(note=Note(text=text))])
    # After the commit: until then steps may need what others kept. A crash in between leaves it to the next call.
    build.clear()
    return Published(
        state.revision,
        len(files),
        sum(file.rows for file in files.values()),
        sum(file.bytes + file.index_bytes for file in files.values()),
    )


def published_state(catalog: Catalog, revision: int | None = None, at_ms: int | None = None) -> CatalogState:
    """Return which files are live: now, at a revision, or at a time (ms since the epoch).

    Raises:
        NotFoundError: nothing was published by then.
    """
    if at_ms is not None:
        revision = catalog.revision_at(at_ms)
    state = catalog.load() if revision is None else catalog.at(revision)
    if state.revision < 0 or not state.files:
        raise NotFoundError(f"{catalog.objects}: no database of software is published. Run: custody swh build")
    return state


def _live(build: str, path: str, file: WrittenFile) -> AddFile:
    return AddFile(
        path=path,
        size_bytes=file.bytes,
        rows=file.rows,
        sha256=bytes.fromhex(file.sha256),
        table=file.table,
        partition=build,
        schema_version=1,
        # The catalog's field for the file beside a log: so a check of the catalog's files covers the indexes.
        toc_path=path.removesuffix(".parquet") + INDEX_SUFFIX,
        toc_sha256=bytes.fromhex(file.index_sha256),
    )
