"""Checks of contents: every byte against its checksum, and what events refer to against what is there.

A deep check also compares the digests that events state with the contents. Where they differ and other events state
the same digest for another content, the event inherited it from its parent, as sessions of older releases let children
do: the statement is wrong, and the content is whole. Otherwise the content was exchanged together with its record.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from custody.errors import CorruptionError, CustodyError
from custody.flow.content import (
    CLAIM_SCHEME,
    DIGEST_ATTRIBUTE,
    ClaimFile,
    ClaimPlaces,
    Content,
    ContentContainers,
    ContentReader,
    claims_in,
)
from custody.flow.content.claim_file import read_header
from custody.format.names import claim_key
from custody.maintenance.claim_refs import (
    ClaimReference,
    readable_tables,
    references_in_journals,
    references_in_kept_logs,
)
from custody.maintenance.findings import Finding, Level
from custody.model import ContentClaim
from custody.workspace import Workspace

_SIDES = (("content_claim", "updated_attributes"), ("previous_content_claim", "previous_attributes"))
_CLAIM = ("container", "section", "identifier", "offset", "size")
_KEY = [*_CLAIM, "sha256", "source_format"]
_COLUMNS = ["event_id", "source_format", *(name for side in _SIDES for name in side)]


class _Statement(NamedTuple):
    """The digest of a content, as events state it."""

    claim: ContentClaim
    sha256: str
    is_captured: bool
    """Whether the events were captured, and not made by a producer."""


class _Events(NamedTuple):
    """The events that make a statement: their number, and the least id of them."""

    events: int
    first_event_id: int


def check_digests(workspace: Workspace) -> Iterator[Finding]:
    """Yield wrong statements of a writer's events; missing and damaged contents are reported by other checks."""
    contents = ContentReader(workspace.fs, workspace.settings.content_store)
    statements = _statements(workspace)
    wrong = []
    for statement in sorted(statements, key=_place):
        try:
            content = contents.find(statement.claim)
            sha256 = _digest(content)
        except CustodyError:
            continue
        # Kept until all are known: whether a digest was inherited is a question to all events.
        if sha256 != statement.sha256:
            wrong.append((statement, content, sha256))
    if wrong:
        # Only when something is wrong, as this reads the events of all writers.
        others = _digests_of_others(workspace, statements, {statement.sha256 for statement, _, _ in wrong})
        for statement, content, sha256 in wrong:
            is_inherited = not statement.is_captured and others[statement.sha256] - {statement.claim}
            kind = "content-inherited" if is_inherited else "content-exchanged"
            yield _digest_finding(workspace, kind, statement, statements[statement], content, sha256)


def _statements(workspace: Workspace) -> dict[_Statement, _Events]:
    statements: dict[_Statement, _Events] = {}
    for table in readable_tables(workspace, _COLUMNS):
        for statement, events in _in_table(table):
            former = statements.get(statement, _Events(0, events.first_event_id))
            first = min(former.first_event_id, events.first_event_id)
            statements[statement] = _Events(former.events + events.events, first)
    return statements


def _in_table(table: pa.Table) -> Iterator[tuple[_Statement, _Events]]:
    for claims, attributes in _SIDES:
        column = table.column(claims)
        sha256 = pc.map_lookup(table.column(attributes), DIGEST_ATTRIBUTE, "last")
        fields = {name: pc.struct_field(column, name) for name in _CLAIM}
        ids, formats = table.column("event_id"), table.column("source_format")
        rows = pa.table({**fields, "sha256": sha256, "source_format": formats, "event_id": ids})
        ours = pc.fill_null(pc.starts_with(rows.column("container"), CLAIM_SCHEME), False)
        rows = rows.filter(pc.and_(ours, pc.is_valid(rows.column("sha256"))))
        if rows.num_rows:
            grouped = rows.group_by(_KEY, use_threads=False).aggregate([("event_id", "count"), ("event_id", "min")])
            for row in grouped.to_pylist():
                claim = ContentClaim(**{name: row[name] for name in _CLAIM})
                statement = _Statement(claim, row["sha256"], row["source_format"] is not None)
                yield statement, _Events(row["event_id_count"], row["event_id_min"])


def _digests_of_others(
    workspace: Workspace, said: Iterable[_Statement], digests: set[str]
) -> dict[str, set[ContentClaim]]:
    """Return, by digest, the contents for which events of any writer state it."""
    claims: dict[str, set[ContentClaim]] = {sha256: set() for sha256 in digests}
    others = [other for other in Workspace.all(workspace.settings, workspace.fs) if other.writer != workspace.writer]
    for statements in (said, *map(_statements, others)):
        for statement in statements:
            if statement.sha256 in digests:
                claims[statement.sha256].add(statement.claim)
    return claims


def _digest(content: Content) -> str:
    if content.sha256 is not None:
        return content.sha256
    digest = hashlib.sha256()
    for chunk in content.chunks():
        digest.update(chunk)
    return digest.hexdigest()


def _place(statement: _Statement) -> tuple[object, ...]:
    claim = statement.claim
    return (claim.container, claim.section, claim.identifier, claim.offset or 0, claim.size or 0, statement.sha256)


def _digest_finding(
    workspace: Workspace, kind: str, statement: _Statement, events: _Events, content: Content, sha256: str
) -> Finding:
    offset, more = statement.claim.offset or 0, events.events - 1
    who = f"event {events.first_event_id}" + (f" and {more} more" if more else "")
    why = (
        "It took over its parent's digest"
        if kind == "content-inherited"
        else "The content was exchanged together with its record, or its producer stated another one"
    )
    return Finding(
        kind=kind,
        writer=workspace.writer,
        path=str(content.path),
        message=(
            f"{content.path} @{offset}: {who} of writer {workspace.writer!r} states a content with the SHA-256 "
            f"{statement.sha256}, the {content.size} bytes there have {sha256}. {why}."
        ),
        offset=offset,
        first_event_id=events.first_event_id,
        name=claim_key(content.path),
    )


def check_section(workspace: Workspace, name: str, level: Level) -> Iterator[Finding]:
    """Yield what is wrong with the resource claims of a section, `<container>/<section>`; quick reads heads only."""
    container, _, section = name.partition("/")
    fs, store = workspace.fs, workspace.settings.content_store
    for resource in claims_in(fs, store, workspace.writer, container, section):
        path = resource.path(store)
        try:
            if level is Level.QUICK:
                read_header(fs.view(path), path)
                continue
            for offset, error in ClaimFile.read(fs, path).damage():
                yield _claim_finding("content-damaged", workspace, path, str(error), offset)
        except CustodyError as error:
            if fs.exists(path):
                yield _claim_finding("content-damaged", workspace, path, str(error))


def check_content_containers(workspace: Workspace) -> Iterator[Finding]:
    """Yield the content containers of a writer that are not there, and records of their marks that are damaged."""
    containers = ContentContainers(workspace.fs, workspace.settings.content_store, workspace.writer)
    for where, text in containers.damage():
        yield Finding.of("content-container-damaged", where, text, writer=workspace.writer, offset=0)
    for name, error in containers.missing():
        folder = containers.get(name).folder
        yield Finding.of("content-container-missing", folder, error, writer=workspace.writer, name=name)


def check_claims(workspace: Workspace, level: Level) -> Iterator[Finding]:
    """Yield the contents that events of a writer refer to and that are missing or cut off; a quick check reads none.

    A deep check also compares the digests that events state. Unreadable logs and journals, damage inside of a file, and
    containers that are missing with all their contents are reported by other checks.
    """
    if level is Level.QUICK:
        return
    if level is Level.DEEP:
        yield from check_digests(workspace)
    fs, store = workspace.fs, workspace.settings.content_store
    places = ClaimPlaces(fs, store)
    containers: dict[str, ContentContainers] = {}
    for read in (references_in_journals, references_in_kept_logs):
        try:
            references = read(workspace)
        except CustodyError:
            continue
        for resource, reference in sorted(references.items()):
            path = resource.path(store)
            if not fs.exists(path):
                stored = places.stored(resource)
                if stored is not None and stored.bytes is not None and stored.bytes >= reference.end:
                    continue  # in the store, whose pieces have a check of their own
                at = containers.setdefault(resource.writer, ContentContainers(fs, store, resource.writer))
                if at.why_missing(resource.container):
                    continue  # out of reach, not gone: one finding names the whole container
                text = f"{path}: expected contents that {reference.events} events speak of, found no file."
                yield _claim_finding("content-missing", workspace, path, text, events=reference.events)
                continue
            yield from _short(workspace, path, reference)


def _short(workspace: Workspace, path: Path, reference: ClaimReference) -> Iterator[Finding]:
    try:
        file = ClaimFile.read(workspace.fs, path)
    except CustodyError:
        return
    # Bytes behind the last whole content are damage only if an event refers to them.
    whole = len(file.data) if file.torn is None else file.torn.offset
    if whole < reference.end:
        error = CorruptionError(
            f"{path} @{whole}: expected contents with their records up to {reference.end}, which events speak of, "
            f"got {len(file.data) - whole} other bytes."
        )
        yield _claim_finding("content-damaged", workspace, path, str(error), whole)


def _claim_finding(
    kind: str, workspace: Workspace, path: Path, text: str, offset: int | None = None, events: int = 0
) -> Finding:
    return Finding(
        kind=kind,
        writer=workspace.writer,
        path=str(path),
        message=text,
        offset=offset,
        events=events,
        name=claim_key(path),
    )
