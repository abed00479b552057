"""The verifier: walks over all check units and collects findings and counts.

Files may be sealed, swept, compacted or expired while they are checked. So a unit with damage is checked a second
time, with the catalog of that moment, and only what is wrong then is reported.
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
from custody.maintenance.findings import STORE_REFUSED, Finding, Level, damages
from custody.maintenance.verification.check_catalog import (
    check_absorbed,
    check_catalog,
    check_forgotten,
    check_sink,
    check_software,
)
from custody.maintenance.verification.check_contents import check_claims, check_content_containers, check_section
from custody.maintenance.verification.check_handed_contents import check_handed_section
from custody.maintenance.verification.check_handoff import check_handoff
from custody.maintenance.verification.check_ids import check_ids
from custody.maintenance.verification.check_journals import (
    check_group,
    check_incarnations,
    check_missing_containers,
    check_staged_unit,
    check_states,
    check_witnesses,
)
from custody.maintenance.verification.check_logs import (
    check_filters,
    check_log,
    check_shard,
    check_stripes,
    check_versions,
)
from custody.maintenance.verification.check_losses import check_losses
from custody.maintenance.verification.check_orphans import orphans
from custody.maintenance.verification.check_records import check_builds, check_leases, check_quarantine, check_records
from custody.maintenance.verification.check_units import (
    QUARANTINE,
    RECORDS,
    CheckUnit,
    shared_check_units,
    writer_check_units,
)
from custody.store import counted as counted_requests
from custody.vfs import FileSystem
from custody.workspace import Workspace

VerifyProgress = Callable[[str, int, int], None]
"""Called with (writer, bytes done, bytes in all)."""


class VerificationReport(msgspec.Struct, kw_only=True):
    """The result of a walk; `pieces` counts the check units that were checked, `bytes` their size."""

    level: Level
    findings: list[Finding] = msgspec.field(default_factory=list)
    pieces: int = 0
    bytes: int = 0
    catalogs: dict[str, Any] = msgspec.field(default_factory=dict)
    """By writer, the counts of the walk along its catalog."""

    def of(self, writer: str | None) -> list[Finding]:
        """Return the findings of one writer, or with None those of the repository itself."""
        return [finding for finding in self.findings if finding.writer == writer]


def verify_repository(
    workspaces: list[Workspace],
    settings: Settings,
    fs: FileSystem,
    level: Level = Level.DEFAULT,
    progress: VerifyProgress = lambda writer, done, total: None,
) -> VerificationReport:
    """Check everything and change nothing; damage neither ends the walk nor raises."""
    result = VerificationReport(level=level)
    units: list[tuple[Workspace | None, CheckUnit]] = [(None, unit) for unit in shared_check_units(settings, fs)]
    units += [(workspace, unit) for workspace in workspaces for unit in writer_check_units(workspace)]
    total = sum(unit.bytes for _, unit in units)
    for workspace, unit in units:
        progress(unit.writer, result.bytes, total)
        counted = partial(result.catalogs.__setitem__, unit.writer)
        result.findings += run_check(workspace, unit, settings, fs, level, counted)
        result.pieces += 1
        result.bytes += unit.bytes
    if not settings.is_store_remote:
        # The work folder of an object store has copies, which nothing lists.
        result.findings += orphans(workspaces, settings, fs)
    progress("", total, total)
    return result


def run_check(
    workspace: Workspace | None,
    unit: CheckUnit,
    settings: Settings,
    fs: FileSystem,
    level: Level,
    counted: Callable[[Verification], None] = lambda counts: None,
) -> list[Finding]:
    """Return what is wrong with one unit; damage is confirmed by a second check.

    A unit of which an object store refuses something is not checked: what could not be read is no damage.
    """
    with counted_requests() as requests:
        if workspace is None:
            return list(_shared(unit, settings, fs, level))
        findings = _try(workspace, unit, level, counted)
        if damages(findings) and unit.kind != "catalog" and not requests.refusal:
            # Another process may have changed the files during the check; the walk of a catalog allows for that itself.
            findings = _try(workspace, unit, level, counted)
    if requests.refusal:
        return [Finding.of(STORE_REFUSED, unit.name, requests.refusal, writer=workspace.writer)]
    return findings


def _shared(unit: CheckUnit, settings: Settings, fs: FileSystem, level: Level) -> Iterator[Finding]:
    if unit.kind == QUARANTINE:
        yield from check_quarantine(fs, settings.quarantine, level)
    elif unit.kind == RECORDS:
        yield from check_records(settings, fs)
    else:
        yield from check_sink(settings, fs, SystemClock(), level)


def _try(workspace: Workspace, unit: CheckUnit, level: Level, counted: Callable[[Verification], None]) -> list[Finding]:
    try:
        return list(_check(workspace, unit, level, counted))
    except (CustodyError, OSError) as error:
        # One unit that cannot be read does not end the walk: it becomes a finding like the others.
        return [Finding.of("unreadable", unit.name, error, writer=workspace.writer)]


def _check(
    workspace: Workspace, unit: CheckUnit, level: Level, counted: Callable[[Verification], None]
) -> Iterator[Finding]:
    if unit.kind == "catalog":
        findings, counts = check_catalog(workspace)
        counted(counts)
        yield from findings
        if counts.state is not None:
            yield from check_forgotten(workspace, counts.state)
            yield from check_absorbed(workspace, counts.state)
    elif unit.kind in _OF_WRITER:
        yield from _OF_WRITER[unit.kind](workspace, unit.name, level)
    else:
        yield from _of_state(workspace, _state(workspace), unit, level)


_OF_WRITER: Mapping[str, Callable[[Workspace, str, Level], Iterator[Finding]]] = {
    "states": lambda at, name, level: _states(at),
    "journals": lambda at, name, level: check_group(at, int(name), level),
    "content": check_section,
    "handed-contents": check_handed_section,
    "claims": lambda at, name, level: check_claims(at, level),
    "unit": lambda at, name, level: check_staged_unit(at, int(name), level),
    "leases": lambda at, name, level: check_leases(at),
    "software": lambda at, name, level: _software(at, level),
    "filters": lambda at, name, level: check_filters(at, level),
    "handoff": lambda at, name, level: check_handoff(at, _state(at), level),
}
"""The units of a writer that need not be looked up in its catalog."""


def _states(workspace: Workspace) -> Iterator[Finding]:
    yield from check_states(workspace)
    yield from check_missing_containers(workspace)
    yield from check_witnesses(workspace)
    yield from check_stripes(workspace, _state(workspace))
    yield from check_incarnations(workspace, _state(workspace))
    yield from check_content_containers(workspace)


def _software(workspace: Workspace, level: Level) -> Iterator[Finding]:
    yield from check_builds(workspace)
    yield from check_software(workspace.settings, workspace.writer, workspace.fs, workspace.clock, level)


def _of_state(workspace: Workspace, state: CatalogState | None, unit: CheckUnit, level: Level) -> Iterator[Finding]:
    """Check a unit that the catalog lists; one that it lists no longer was removed meanwhile."""
    if state is None:
        return
    if unit.kind == "log" and unit.name in state.files:
        yield from check_log(workspace, state, unit.name, level)
    elif unit.kind == "shard" and unit.name in state.shards:
        yield from check_shard(workspace, state, unit.name, level)
    elif unit.kind == "ids":
        yield from check_ids(workspace, state, level)
        yield from check_losses(workspace, state, level)
        yield from check_versions(workspace, state)


def _state(workspace: Workspace) -> CatalogState | None:
    try:
        return workspace.catalog.load()
    except CustodyError:
        return None  # the check of the catalog reports it
