"""The commit feed: which events became live between two revisions of a writer, each once, whatever was compacted since.

A position names the last revision that was read and its digest, so that a catalog that was repaired or rebuilt behind a
reader's back is noticed. All events of a journal group become live in one transaction: what is new between two
positions are the groups that are live at the second and not at the first. They are read from the logs that hold them
today, so logs may be compacted meanwhile, and what is forgotten meanwhile is not given out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from custody.catalog import CatalogState, PrunedError, live_groups
from custody.catalog.pruning import PrunedReads
from custody.errors import ConflictError, InvalidInputError, NotFoundError
from custody.made_types import made_at_import
from custody.read.event_scan import EventFilter, ScanPart, parts_of_logs
from custody.workspace import Workspace

_AGAIN = "Begin again from the start, with a new checkpoint folder of the stream."


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """How far a reader has come in a writer's catalog: the last revision, and the digest of its transaction."""

    revision: int = -1
    digest: str = ""


made_at_import(Position)


START = Position()
Positions = Mapping[str, Position]
"""By writer; of one that is absent nothing was read."""


def newest_positions(workspaces: Sequence[Workspace]) -> dict[str, Position]:
    """Return the newest positions, all of them durable: what a power loss could take back is not passed."""
    return {item.writer: _position(state) for item in workspaces if (state := item.catalog.settle()).revision >= 0}


def limited_positions(workspaces: Sequence[Workspace], start: Positions, stop: Positions, logs: int) -> Positions:
    """Return positions from `start` on, not behind `stop`, with about `logs` new event logs between, at least one.

    Raises:
        PrunedError, ConflictError: as `new_parts`.
    """
    end, left = dict(start), logs
    for workspace in workspaces:
        goal, at = stop.get(workspace.writer), start.get(workspace.writer, START)
        if goal is None or goal.revision <= at.revision or left <= 0:
            continue
        revision = at.revision
        # Before the floor there is nothing to count: what is live there comes as a whole.
        first = max(revision + 1, workspace.state().floor if revision < 0 else 0)
        for transaction in workspace.catalog.timeline(first, goal.revision):
            revision = transaction.revision
            left -= sum(action.HasField("add_file") for action in transaction.actions)
            if left <= 0:
                break
        end[workspace.writer] = _position(workspace.catalog.at(revision))
    return end


def new_parts(workspaces: Sequence[Workspace], start: Positions, end: Positions, asked: EventFilter) -> list[ScanPart]:
    """Return the parts of the events that became live after the positions `start` up to those of `end`.

    Asked again, they hold the same events, but for those that were forgotten or expired in between.

    Raises:
        PrunedError: a position is of a revision that is not kept any more.
        ConflictError: a catalog was repaired or rebuilt since: its revisions are others now.
        CorruptionError: a catalog, or a log that holds forgotten events, is damaged.
    """
    return [part for workspace in workspaces for part in _new_of(workspace, start, end, asked)]


def _new_of(workspace: Workspace, start: Positions, end: Positions, asked: EventFilter) -> Iterator[ScanPart]:
    stop, begin = end.get(workspace.writer, START), start.get(workspace.writer, START)
    if stop == begin:
        return
    if stop.revision < begin.revision:
        raise InvalidInputError(f"writer {workspace.writer!r}: revision {stop.revision} lies before {begin.revision}.")
    before = frozenset() if begin.revision < 0 else live_groups(_state_at(workspace, begin))
    groups = live_groups(_state_at(workspace, stop)) - before
    yield from parts_of_logs(workspace, workspace.state(), asked, PrunedReads(), groups)


def _state_at(workspace: Workspace, position: Position) -> CatalogState:
    try:
        state = workspace.catalog.at(position.revision)
    except PrunedError as error:
        raise PrunedError(
            f"{error} Nobody can tell which events came behind it: keep more of the history (catalog.history_*). "
            f"{_AGAIN}",
            error.earliest,
        ) from error
    except NotFoundError as error:
        raise ConflictError(f"{error} It was there before: the catalog was repaired or rebuilt. {_AGAIN}") from error
    if state.digest.hex() != position.digest:
        raise ConflictError(
            f"{workspace.catalog.objects}: revision {position.revision} is another one than was read before: "
            f"the catalog was repaired or rebuilt. {_AGAIN}"
        )
    return state


def _position(state: CatalogState) -> Position:
    return Position(revision=state.revision, digest=state.digest.hex())
