"""How much of the history of a catalog is kept: `catalog.history_*` choose the earliest revision that stays readable.

The limits are an age, a number of revisions and a size of the catalog's own objects; the one that asks for most
decides. Two things stop all of them:

- A hold. Events that it covers and that no live log has any more (they were erased before the hold was made) lie in
  logs that only earlier revisions list, and garbage collection takes such logs when these revisions are gone.
- An attestation. It proves nothing more once its revision is pruned, so the revision of the earliest attestation in the
  folder `catalog.attestations` stays. Who keeps fewer attestations there lets more of the history go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import msgspec
import numpy as np
import numpy.typing as npt

from custody.catalog import (
    EXPIRED,
    AddFile,
    CatalogState,
    Condition,
    Transaction,
    columns_needed,
    drop_revisions,
    left_below_floor,
    matching_rows,
    may_match,
    plan_prune,
    raise_floor,
)
from custody.catalog.attest import Attestation, read_attestation
from custody.catalog.prune import PrunePlan
from custody.errors import NotFoundError, StripeMissingError
from custody.eventlog.blocks import numbers, one_chunk
from custody.format.names import parse_revision
from custody.format.number_sets import is_among
from custody.maintenance import hold_conditions, open_event_log
from custody.workspace import Workspace

# Besides the one at the floor, as when retention deletes files: damage to one of the two costs nothing.
_LATER_CHECKPOINTS = 1


class HistoryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What the limits on the history do to one writer's catalog; sizes in bytes."""

    writer: str
    newest: int
    floor_before: int
    floor: int
    """The earliest revision that can be read afterwards."""
    why: str | None = None
    """The limit that asks for most (`age`, `revisions`, `bytes`), None when none asks for anything."""
    limited_by: tuple[str, ...] = ()
    """Why less goes than the limits ask for."""
    bytes_before: int = 0
    bytes_after: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether no revision goes."""
        return self.floor <= self.floor_before


def is_history_limited(workspace: Workspace) -> bool:
    """Whether a setting limits the history."""
    limits = workspace.settings.catalog
    chosen = (limits.history_age_max, limits.history_revisions_max, limits.history_bytes_max)
    return any(limit is not None for limit in chosen)


def plan_history(workspace: Workspace) -> HistoryPlan:
    """Return which revisions of a writer's catalog the limits let go; nothing is changed.

    Raises:
        NotFoundError, InvalidInputError, CorruptionError: the folder of attestations is not there, or one of them
            cannot be read: nobody knows what it needs.
    """
    state = workspace.catalog.load()
    sizes = _sizes(workspace)
    nothing = HistoryPlan(
        writer=workspace.writer,
        newest=state.revision,
        floor_before=state.floor,
        floor=state.floor,
        bytes_before=sum(sizes.values()),
        bytes_after=sum(sizes.values()),
    )
    wanted, why = _wanted(workspace, state, sizes)
    if wanted <= state.floor:
        return nothing
    before, limited_by = wanted, []
    for revision, reason in (_attested(workspace, state), _held(workspace, state, wanted)):
        if revision is not None and revision < wanted:
            before = min(before, revision)
            limited_by.append(reason)
    floor = state.floor
    if before > state.floor:
        cut = plan_prune(workspace.catalog, before, _LATER_CHECKPOINTS)
        floor = cut.floor
        limited_by += [cut.reason] if cut.reason else []
    after = sum(size for revision, size in sizes.items() if revision >= floor)
    return msgspec.structs.replace(nothing, floor=floor, why=why, limited_by=tuple(limited_by), bytes_after=after)


def limit_history(workspace: Workspace) -> HistoryPlan:
    """Raise the earliest revision as far as the plan says; the objects below it are deleted by `delete_revisions`.

    Durability: on return the floor survives power loss.
    """
    plan = plan_history(workspace)
    if not plan.is_empty:
        raise_floor(workspace.catalog, plan_prune(workspace.catalog, plan.floor, _LATER_CHECKPOINTS))
    return plan


def plan_by_limits(workspace: Workspace) -> PrunePlan:
    """Return which objects of a catalog the limits let go; nothing is changed."""
    plan = plan_history(workspace)
    cut = left_below_floor(workspace.catalog)
    if not plan.is_empty:
        cut = plan_prune(workspace.catalog, plan.floor, _LATER_CHECKPOINTS)
    return replace(cut, reason="; ".join(plan.limited_by))


def prune_by_limits(workspace: Workspace) -> PrunePlan:
    """Do in one go what the steps `retention_history` and `retention_prune` do; return what was done."""
    plan = plan_by_limits(workspace)
    raise_floor(workspace.catalog, plan)
    drop_revisions(workspace.catalog, plan)
    return plan


def _sizes(workspace: Workspace) -> dict[int, int]:
    """Return the bytes of the catalog's objects by revision."""
    objects = workspace.catalog.objects
    sizes: dict[int, int] = {}
    for info in objects.store.list(objects.prefix):
        revision = parse_revision(info.key.removeprefix(objects.prefix).partition("/")[0])
        if revision is not None:
            sizes[revision] = sizes.get(revision, 0) + info.size_bytes
    return sizes


def _wanted(workspace: Workspace, state: CatalogState, sizes: Mapping[int, int]) -> tuple[int, str | None]:
    """Return the earliest revision that the limits want to keep, and the limit that asks for most."""
    limits = workspace.settings.catalog
    asked = {"none": state.floor}
    if limits.history_revisions_max is not None:
        asked["revisions"] = state.revision - limits.history_revisions_max + 1
    if limits.history_age_max_ms is not None:
        with suppress(NotFoundError):  # all that is kept is younger
            # The revision of that moment stays: it is what time travel to any later moment begins with.
            asked["age"] = workspace.catalog.revision_at(workspace.clock.now_ms() - limits.history_age_max_ms)
    if limits.history_bytes_max is not None:
        left = limits.history_bytes_max
        earliest = state.revision
        for revision in sorted(sizes, reverse=True):
            left -= sizes[revision]
            if left < 0:
                break
            earliest = min(earliest, revision)
        asked["bytes"] = earliest
    why = max(asked, key=lambda name: asked[name])
    return asked[why], None if why == "none" else why


def _attested(workspace: Workspace, state: CatalogState) -> tuple[int | None, str]:
    """Return the revision of the earliest attestation that is still of use, None without any, and a reason."""
    folder = workspace.settings.attestations
    if folder is None:
        return None, ""
    if not workspace.fs.is_directory(folder):
        raise NotFoundError(
            f"catalog.attestations: {folder}: expected a folder of attestations, found none. Mount it, or unset it."
        )
    earliest: Attestation | None = None
    for name in sorted(workspace.fs.list(folder)):
        if not name.endswith(".json"):
            continue
        attestation = read_attestation(workspace.fs.read(folder / name), folder / name)
        is_of_this = (attestation.writer, attestation.database, attestation.catalog_id) == (
            workspace.writer,
            workspace.database,
            state.catalog_id.hex,
        )
        # One whose revision was pruned proves nothing more, whatever is kept.
        if is_of_this and attestation.revision >= state.floor:
            earliest = min(earliest or attestation, attestation, key=lambda each: each.revision)
    if earliest is None:
        return None, ""
    return earliest.revision, f"an attestation in {folder} is of revision {earliest.revision}"


def _held(workspace: Workspace, state: CatalogState, wanted: int) -> tuple[int | None, str]:
    """Return the last revision before `wanted` that alone lists a held event, None without any, and a reason."""
    for revision, name, _ in held_by_history(workspace, state, wanted):
        return revision - 1, f"hold {name!r} covers events that revision {revision} erased"
    return None, ""


def held_by_history(workspace: Workspace, state: CatalogState, wanted: int) -> Iterator[tuple[int, str, int]]:
    """Yield each revision up to `wanted` that erased held events, the hold, and how many; 0 where nobody knows."""
    holds = hold_conditions(workspace)
    if not holds:
        return
    for transaction in workspace.catalog.timeline(state.floor, wanted):
        removed = {
            action.remove_file.path
            for action in transaction.actions
            # What expired is deleted whatever revision lists it: holds come too late for it.
            if action.HasField("remove_file") and action.remove_file.reason != EXPIRED
        }
        if not removed or transaction.revision <= state.floor:
            continue
        former = workspace.catalog.at(transaction.revision - 1)
        files = [former.files[path] for path in sorted(removed)]
        for name, count in _holds_of_lost_events(workspace, holds, files, transaction):
            yield transaction.revision, name, count


def _holds_of_lost_events(
    workspace: Workspace, holds: Mapping[str, Condition], removed: Sequence[AddFile], transaction: Transaction
) -> Iterator[tuple[str, int]]:
    """Yield the holds on events of removed logs that the logs added in their place lack, and on how many."""
    successors = [action.add_file for action in transaction.actions if action.HasField("add_file")]
    for name, condition in holds.items():
        try:
            held = [_held_ids(workspace, condition, file) for file in removed]
            lost = np.concatenate([np.empty(0, np.int64), *held])
            for file in successors if len(lost) else ():
                lost = lost[~is_among(lost, _held_ids(workspace, condition, file))]
        except StripeMissingError:
            yield name, 0  # nobody knows what the stripe holds: the revision stays until it is back
            continue
        if len(lost):
            yield name, len(lost)


def _held_ids(workspace: Workspace, condition: Condition, file: AddFile) -> npt.NDArray[np.int64]:
    """Return the ids of the events of a log that a hold covers; those of a log that is gone are none."""
    bounds = (file.first_event_id, file.last_event_id, file.first_event_time_ms, file.last_event_time_ms)
    if not may_match(condition, *bounds) or not workspace.catalog.objects.files.exists(file.path):
        return np.empty(0, np.int64)
    log = open_event_log(workspace, file)
    columns = sorted({"event_id", *columns_needed([condition])})
    parts = [np.empty(0, np.int64)]
    for table in log.tables(range(len(log.toc.blocks)), columns):
        rows = table.filter(matching_rows([condition], table))
        parts.append(numbers(one_chunk(rows.column("event_id")), np.int64))
    return np.concatenate(parts)
