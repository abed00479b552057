"""Time travel: one writer's events as its catalog listed them at an earlier revision.

An answer names the revisions that it is made of, and asked for by them it stays the same for good, but for what was
forgotten.

Events that waited in journals then are not part of it: a revision lists what was live. What was forgotten since stays
forgotten, also where a compaction has erased it and the old log is still there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import filterfalse

from custody.catalog import AddFile, AddTombstone, CatalogState, is_remnant
from custody.catalog.persistent_map import REMOVED, PersistentMap
from custody.clock import SystemClock
from custody.errors import InvalidInputError, NotFoundError, StripeMissingError
from custody.eventlog import Damage, OnDamage
from custody.query.times import time_span
from custody.read.reader import Snapshot
from custody.read.results import UncertainRevisions, report_earlier
from custody.workspace import Workspace

Revisions = Mapping[str, int]
"""Revisions of catalogs by writer; of a writer that is not named nothing is meant."""
AsOf = int | datetime | Revisions
"""A revision of a writer's catalog, a revision of each, or a time: the last revision until then; without a zone UTC."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# As the names of writers are.
_REVISIONS = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}:\d{1,18}(?:,[a-z0-9][a-z0-9_-]{0,62}:\d{1,18})*")
_OF_A_DAY = re.compile(r"\d{1,2}:\d{2}")
_REVISION_DIGITS_MAX = 7  # eight are a day, more are milliseconds


def parse_revisions(text: str) -> Revisions | None:
    """Return the revisions that `writer:revision,…` names; None for a text of another form.

    Raises:
        InvalidInputError: it names a writer twice.
    """
    # A writer may be named 12, and who writes 12:30 means a time.
    if not _REVISIONS.fullmatch(text) or _OF_A_DAY.fullmatch(text):
        return None
    pairs = [part.split(":") for part in text.split(",")]
    named = {writer: int(revision) for writer, revision in pairs}
    if len(named) != len(pairs):
        raise InvalidInputError(f"as of: expected a revision of each writer, got a writer twice: {text[:200]}.")
    return named


def as_of_text(as_of: AsOf) -> str:
    """Return a text that means the same to `parse_as_of`."""
    if isinstance(as_of, Mapping):
        return ",".join(f"{writer}:{revision}" for writer, revision in as_of.items())
    return str(as_of)


def parse_as_of(text: str) -> AsOf:
    """Return a revision, the revisions of writers as `writer:revision,…`, or the end of the time that a text means.

    Raises:
        InvalidInputError: it is none of these.
    """
    if text.isdigit() and len(text) <= _REVISION_DIGITS_MAX:
        return int(text)
    revisions = parse_revisions(text)
    if revisions is not None:
        return revisions
    last = time_span(text, SystemClock().now_ms())[1]
    try:
        return _EPOCH + timedelta(milliseconds=last)
    except OverflowError as error:
        raise InvalidInputError(f"as of: expected a time in the years 1 to 9999, got {text!r}.") from error


def snapshot_at(workspace: Workspace, as_of: AsOf, on_damage: OnDamage) -> Snapshot | None:
    """Return the events that were live at an earlier revision; None when nothing was committed until that time.

    Of revisions of writers that of this one counts; None, too, where it is not among them.

    Raises:
        NotFoundError: there is no such revision.
        PrunedError: it is not kept any more.
        CorruptionError: the catalog is damaged.
    """
    report_earlier(workspace, on_damage)
    newest = workspace.state()
    if isinstance(as_of, Mapping):
        revision = as_of.get(workspace.writer)
    else:
        revision = as_of if isinstance(as_of, int) else _revision_at(workspace, newest, as_of, on_damage)
    if revision is None:
        return None
    state = workspace.catalog.at(revision)
    # The tombstones of today, also for the events of then: what was forgotten is never given out again.
    tombstones = {**state.tombstones, **_later_tombstones(workspace, revision, newest.revision)}
    state = replace(state, tombstones=PersistentMap(tombstones))
    return Snapshot(_without_lost_logs(workspace, state, on_damage))


def tombstones_since(workspace: Workspace, state: CatalogState) -> dict[str, AddTombstone]:
    """Return a writer's tombstones, and those that were taken back, as far as history is kept."""
    return {**state.tombstones, **_later_tombstones(workspace, state.floor - 1, state.revision)}


def _revision_at(workspace: Workspace, newest: CatalogState, moment: datetime, on_damage: OnDamage) -> int | None:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    time_ms = (aware - _EPOCH) // timedelta(milliseconds=1)
    if newest.revision < 0:
        return None
    uncertain = workspace.catalog.uncertain_times(time_ms)
    if uncertain is not None:
        on_damage(UncertainRevisions.of(workspace, uncertain))
    try:
        return workspace.catalog.revision_at(time_ms)
    except NotFoundError:
        # Revisions before the floor were pruned: there may have been events, and nobody knows which.
        if newest.floor:
            raise  # what was live then is not kept
        return None


def _later_tombstones(workspace: Workspace, revision: int, newest: int) -> dict[str, AddTombstone]:
    if revision == newest:
        return {}
    actions = (action for each in workspace.catalog.timeline(revision + 1, newest) for action in each.actions)
    # Remnants stay out: they only say what was erased already, and hide nothing.
    stones = (action.add_tombstone for action in actions if action.HasField("add_tombstone"))
    return {stone.id.hex(): stone for stone in filterfalse(is_remnant, stones)}


def _without_lost_logs(workspace: Workspace, state: CatalogState, on_damage: OnDamage) -> CatalogState:
    """Leave out the logs that are gone since, and report them: they expired, or were compacted and collected."""
    files = workspace.catalog.objects.files
    # Retention and compaction delete files that only earlier revisions list.
    lost: list[AddFile] = []
    for path, file in state.files.items():
        try:
            if files.exists(path):
                continue
        except StripeMissingError:
            continue  # not gone: whoever reads it reports its stripe
        lost.append(file)
        problem = f"expected a log of revision {state.revision}, found no file: it expired since, or was compacted"
        on_damage(Damage(workspace.log_place(file.path), None, file.first_event_id, file.last_event_id, problem))
    return replace(state, files=state.files.changed({file.path: REMOVED for file in lost}))
