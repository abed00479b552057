"""The walk: each piece checked by what knows its kind, at a level, with findings and counts as the result.

Something may be sealed, swept, compacted or expired while it is looked at. What was found wrong is therefore looked at
a second time, with the catalog of that moment, and only what is still wrong is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from custody.catalog import CatalogState, Verification
from custody.clock import SystemClock
from custody.config import Settings
from custody.errors import CustodyError
from custody.maintenance.findings import Finding, Level, damages
from custody.maintenance.verification.check_catalog import check_catalog, check_forgotten, check_sink, check_software
from custody.maintenance.verification.check_contents import check_claims, check_section
from custody.maintenance.verification.check_ids import check_ids
from custody.maintenance.verification.check_journals import (
    check_group,
    check_incarnations,
    check_missing_containers,
    check_staged_unit,
    check_states,
)
from custody.maintenance.verification.check_logs import check_log, check_shard, check_versions
from custody.maintenance.verification.check_records import check_builds, check_leases, check_quarantine, check_records
from custody.maintenance.verification.check_units import (
    QUARANTINE,
    RECORDS,
    CheckUnit,
    shared_check_units,
    writer_check_units,
)
from custody.maintenance.verification.orphans import orphans
from custody.vfs import FileSystem
from custody.workspace import Workspace

VerifyProgress = Callable[[str, int, int], None]
"""Is told (writer, bytes done, bytes in all)."""


class VerificationReport(msgspec.Struct, kw_only=True):
    """What a walk found; `writer_check_units` and `bytes` are what was looked at."""

    level: Level
    findings: list[Finding] = msgspec.field(default_factory=list)
    pieces: int = 0
    bytes: int = 0
    catalogs: dict[str, Any] = msgspec.field(default_factory=dict)
    """By writer, what was counted on the walk along its catalog."""

    def of(self, writer: str | None) -> list[Finding]:
        """Return the findings of one writer, or with None those of the repository itself."""
        return [found for found in self.findings if found.writer == writer]


def verify_repository(
    workspaces: list[Workspace],
    settings: Settings,
    fs: FileSystem,
    level: Level = Level.DEFAULT,
    progress: VerifyProgress = lambda writer, done, total: None,
) -> VerificationReport:
    """Look at everything and change nothing; damage ends nothing and raises nothing."""
    result = VerificationReport(level=level)
    found: list[tuple[Workspace | None, CheckUnit]] = [(None, piece) for piece in shared_check_units(settings, fs)]
    found += [(workspace, piece) for workspace in workspaces for piece in writer_check_units(workspace)]
    total = sum(piece.bytes for _, piece in found)
    for workspace, piece in found:
        progress(piece.writer, result.bytes, total)
        counted = partial(result.catalogs.__setitem__, piece.writer)
        result.findings += run_check(workspace, piece, settings, fs, level, counted)
        result.pieces += 1
        result.bytes += piece.bytes
    result.findings += orphans(workspaces, settings, fs)
    progress("", total, total)
    return result


def run_check(
    workspace: Workspace | None,
    piece: CheckUnit,
    settings: Settings,
    fs: FileSystem,
    level: Level,
    counted: Callable[[Verification], None] = lambda found: None,
) -> list[Finding]:
    """Return what is wrong with one piece, seen twice if it is damage."""
    if workspace is None:
        return list(_shared(piece, settings, fs, level))
    found = _tried(workspace, piece, level, counted)
    if damages(found) and piece.kind != "catalog":
        found = _tried(workspace, piece, level, counted)
    return found


def _shared(piece: CheckUnit, settings: Settings, fs: FileSystem, level: Level) -> Iterator[Finding]:
    if piece.kind == QUARANTINE:
        yield from check_quarantine(fs, settings.quarantine, level)
    elif piece.kind == RECORDS:
        yield from check_records(settings, fs)
    else:
        yield from check_sink(settings, fs, SystemClock(), level)


def _tried(
    workspace: Workspace, piece: CheckUnit, level: Level, counted: Callable[[Verification], None]
) -> list[Finding]:
    try:
        return list(_found(workspace, piece, level, counted))
    except (CustodyError, OSError) as error:
        return [Finding(kind="unreadable", writer=workspace.writer, path=piece.name, message=str(error))]


def _found(
    workspace: Workspace, piece: CheckUnit, level: Level, counted: Callable[[Verification], None]
) -> Iterator[Finding]:
    if piece.kind == "catalog":
        findings, counts = check_catalog(workspace)
        counted(counts)
        yield from findings
        if counts.state is not None:
            yield from check_forgotten(workspace, counts.state)
    elif piece.kind in _OF_WRITER:
        yield from _OF_WRITER[piece.kind](workspace, piece.name, level)
    else:
        yield from _of_state(workspace, _state(workspace), piece, level)


_OF_WRITER: Mapping[str, Callable[[Workspace, str, Level], Iterator[Finding]]] = {
    "states": lambda at, name, level: _states(at),
    "journals": lambda at, name, level: check_group(at, int(name), level),
    "content": check_section,
    "claims": lambda at, name, level: check_claims(at, level),
    "unit": lambda at, name, level: check_staged_unit(at, int(name), level),
    "leases": lambda at, name, level: check_leases(at),
    "software": lambda at, name, level: _software(at, level),
}
"""The pieces of a writer that need not be looked up in its catalog."""


def _states(workspace: Workspace) -> Iterator[Finding]:
    yield from check_states(workspace)
    yield from check_missing_containers(workspace)
    yield from check_incarnations(workspace, _state(workspace))


def _software(workspace: Workspace, level: Level) -> Iterator[Finding]:
    yield from check_builds(workspace)
    yield from check_software(workspace.settings, workspace.writer, workspace.fs, workspace.clock, level)


def _of_state(workspace: Workspace, state: CatalogState | None, piece: CheckUnit, level: Level) -> Iterator[Finding]:
    """Check what the catalog lists; what it does not list any more was removed meanwhile."""
    if state is None:
        return
    if piece.kind == "log" and piece.name in state.files:
        yield from check_log(workspace, state, piece.name, level)
    elif piece.kind == "shard" and piece.name in state.shards:
        yield from check_shard(workspace, state, piece.name, level)
    elif piece.kind == "ids":
        yield from check_ids(workspace, state, level)
        yield from check_versions(workspace, state)


def _state(workspace: Workspace) -> CatalogState | None:
    try:
        return workspace.catalog.load()
    except CustodyError:
        return None  # found by the check of the catalog
