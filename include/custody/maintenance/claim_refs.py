"""References of events to resource claims, from journals and from every log that a kept revision lists.

A content is kept as long as one event refers to it. Before a content is removed, its references are counted here; an
event that cannot be read is an error, because nobody knows what it refers to.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from custody.catalog import kept_files
from custody.errors import CorruptionError, CustodyError, NotFoundError, StorageError
from custody.eventlog import EventLog
from custody.flow.content import CLAIM_SCHEME, ResourceClaim
from custody.journal import JournalFile
from custody.workspace import Workspace

COLUMNS = ("content_claim", "previous_content_claim")
_KEY = ["container", "section", "identifier"]
# A journal may be sealed or swept between its listing and its reading; this often in a row is no accident any more.
_TRIES = 5


class ClaimReference(NamedTuple):
    """The references to a resource claim: how many events, and up to which byte of it."""

    events: int
    end: int


ClaimReferences = dict[ResourceClaim, ClaimReference]
ClaimSpans = dict[ResourceClaim, set[tuple[int, int]]]
WHOLE_FILE = 1 << 62
Found = TypeVar("Found")


def references_of(tables: Iterable[pa.Table]) -> ClaimReferences:
    """Return the references of the events in some tables; the columns of claims are enough."""
    references: ClaimReferences = {}
    for table in tables:
        for column in COLUMNS:
            for container, section, identifier, end, events in _grouped(table.column(column)):
                resource = ResourceClaim.parse(container, section, identifier)
                if resource is not None:
                    _add(references, resource, ClaimReference(events, end))
    return references


def all_references(workspaces: Iterable[Workspace]) -> ClaimReferences:
    """Return the references of all events that are acknowledged, live, or listed by a kept revision.

    Raises:
        CorruptionError, NotFoundError, FormatVersionError: an event cannot be read; or a container of a writer is not
            there, or on another machine, or its catalog is of an earlier moment: its events may speak of any content.
        StorageError: the disk refuses, or journals change all the time.
    """
    references: ClaimReferences = {}
    for workspace in workspaces:
        for missing in workspace.missing():
            raise NotFoundError(str(missing))
        earlier = workspace.earlier_state()
        if earlier is not None:
            raise NotFoundError(str(earlier))
        # Journals first: an event that is rolled over in between is then seen twice, never not at all.
        for part in (references_in_journals(workspace), references_in_kept_logs(workspace)):
            for resource, reference in part.items():
                _add(references, resource, reference)
    return references


def spans_of(tables: Iterable[pa.Table], among: Collection[ResourceClaim] | None = None) -> ClaimSpans:
    """Return what the events of some tables refer to: offset and end of contents, by resource claim, each once.

    A claim without offset or size refers to all of its file. `among` limits the resource claims.
    """
    spans: ClaimSpans = {}
    for table in tables:
        for name in COLUMNS:
            for container, section, identifier, offset, size in _distinct(table.column(name)):
                resource = ResourceClaim.parse(container, section, identifier)
                if resource is not None and (among is None or resource in among):
                    span = (0, WHOLE_FILE) if offset is None or size is None else (offset, offset + size)
                    spans.setdefault(resource, set()).add(span)
    return spans


def all_spans(workspaces: Iterable[Workspace], among: Collection[ResourceClaim]) -> ClaimSpans:
    """Return what all events that are acknowledged, live, or listed by a kept revision refer to of some claims.

    Raises as `all_references`.
    """
    spans: ClaimSpans = {}
    for workspace in workspaces:
        for missing in workspace.missing():
            raise NotFoundError(str(missing))
        # Journals first, as in `all_references`.
        waiting = _tried(partial(_spans_in_journals, workspace, among), workspace)
        for part in (waiting, spans_of(_kept_tables(workspace), among)):
            for resource, found in part.items():
                spans.setdefault(resource, set()).update(found)
    return spans


def _spans_in_journals(workspace: Workspace, among: Collection[ResourceClaim]) -> ClaimSpans:
    return spans_of(_journal_tables(workspace), among)


def references_in_journals(workspace: Workspace) -> ClaimReferences:
    """Return the references of events whose journals are on disk, those of other incarnations included.

    Raises as `all_references` does, except for missing containers.
    """
    return _tried(lambda: references_of(_journal_tables(workspace)), workspace)


def _tried(read: Callable[[], Found], workspace: Workspace) -> Found:
    for _ in range(_TRIES):
        try:
            return read()
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise  # a journal that is gone was just sealed or swept: list them again
    raise StorageError(f"writer {workspace.writer!r}: its journals change all the time. Try again.")


def references_in_kept_logs(workspace: Workspace) -> ClaimReferences:
    """Return the references of the events of all kept revisions; raises as `all_references` does."""
    return references_of(_kept_tables(workspace))


def _kept_tables(workspace: Workspace) -> Iterator[pa.Table]:
    # All kept revisions, not the newest alone: a query for an earlier one may still ask for the content.
    paths = sorted(path for path in kept_files(workspace.catalog) if path.endswith(".parquet"))
    return (table for path in paths for table in log_claims(EventLog(workspace.fs, workspace.log_path(path))))


def log_claims(log: EventLog) -> Iterator[pa.Table]:
    """Yield the claims of a log's events, some blocks at a time."""
    return log.tables(range(len(log.toc.blocks)), list(COLUMNS))


def readable_tables(workspace: Workspace, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield some columns of all readable journals and kept logs; the checks of logs and journals report the others."""
    for group in workspace.groups_of_all_incarnations():
        for path in (*group.sealed, *group.open):
            try:
                yield JournalFile.read(workspace.fs, path).table().select(columns)
            except (CustodyError, OSError):
                continue
    for relative in sorted(_listed(workspace)):
        if relative.endswith(".parquet"):
            try:
                log = EventLog(workspace.fs, workspace.log_path(relative))
                yield from log.tables(range(len(log.toc.blocks)), columns, lambda damage: None)
            except (CustodyError, OSError):
                continue


def _listed(workspace: Workspace) -> set[str]:
    """Return the files of all kept revisions; when one is unreadable, those of the newest, if it can be read."""
    try:
        return set(kept_files(workspace.catalog))
    except CustodyError:
        pass  # the check of the catalog reports it
    try:
        return set(workspace.catalog.load().files)
    except CustodyError:
        return set()


def _journal_tables(workspace: Workspace) -> Iterator[pa.Table]:
    for group in workspace.groups_of_all_incarnations():
        for path in (*group.sealed, *group.open):
            journal = JournalFile.read(workspace.fs, path)
            for damage in journal.damage:
                raise CorruptionError(str(damage))
            yield journal.table()


def _distinct(claims: pa.ChunkedArray) -> Iterator[tuple[str, str, str, int | None, int | None]]:
    """Yield (container, section, identifier, offset, size) of custody's own claims, each once."""
    if claims.null_count == len(claims):
        return
    parts = pa.chunked_array(claims.chunks).combine_chunks() if claims.num_chunks != 1 else claims.chunk(0)
    fields = {name: pc.struct_field(parts, name) for name in (*_KEY, "offset", "size")}
    table = pa.table(fields).filter(pc.starts_with(fields["container"], CLAIM_SCHEME))
    if table.num_rows:
        grouped = table.group_by([*fields], use_threads=False).aggregate([])
        yield from zip(*(grouped.column(name).to_pylist() for name in fields), strict=True)


def _grouped(claims: pa.ChunkedArray) -> Iterator[tuple[str, str, str, int, int]]:
    """Yield (container, section, identifier, greatest end, events) of custody's own claims."""
    # Most events have no content: their tables are passed over without grouping.
    if claims.null_count == len(claims):
        return
    parts = pa.chunked_array(claims.chunks).combine_chunks() if claims.num_chunks != 1 else claims.chunk(0)
    fields = {name: pc.struct_field(parts, name) for name in (*_KEY, "offset", "size")}
    # A claim without offset or size still refers to its file: it counts, with the end 0.
    end = pc.add(pc.coalesce(fields.pop("offset"), 0), pc.coalesce(fields.pop("size"), 0))
    table = pa.table({**fields, "end": end}).filter(pc.starts_with(fields["container"], CLAIM_SCHEME))
    if table.num_rows:
        grouped = table.group_by(_KEY, use_threads=False).aggregate([("end", "max"), ("end", "count")])
        columns = (grouped.column(name).to_pylist() for name in (*_KEY, "end_max", "end_count"))
        yield from zip(*columns, strict=True)


def _add(references: ClaimReferences, resource: ResourceClaim, reference: ClaimReference) -> None:
    former = references.get(resource, ClaimReference(0, 0))
    references[resource] = ClaimReference(former.events + reference.events, max(former.end, reference.end))
