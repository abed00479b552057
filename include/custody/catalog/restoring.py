"""Tombstones and marks that only their second copies still know, brought back into a state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from custody.catalog.conflict import NotApplicableError
from custody.catalog.forgotten import Copy, known_to
from custody.catalog.state import CatalogState, Draft
from custody.catalog.transaction_pb2 import EXPIRED, Action, AddMark, RemoveFile, RemoveShard


@dataclass
class Restored:
    """What brings copies back."""

    actions: list[Action] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)
    expired: set[str] = field(default_factory=set)
    """The files that the marks name, which are not to be listed again."""
    more: list[str] = field(default_factory=list)
    """What cannot be brought back: events that would be given out again, and why."""

    @property
    def names(self) -> tuple[str, ...]:
        """The ids of the tombstones and marks that are brought back."""
        return tuple(self.restored)


def restored_to(draft: Draft, copies: Iterable[Copy]) -> Restored:
    """Apply copies to a draft that lacks what they say.

    What expired is not let go again while a hold stands: nobody knows whether it was made before.
    """
    found = Restored()
    for copy in copies:
        state = draft.state()
        name = next(iter(_names(copy)))
        if name in known_to(state):
            continue
        actions = [copy.action]
        if copy.action.HasField("add_mark"):
            again = _removals(state, copy.action.add_mark)
            if again and state.holds:
                found.more.append(_held(state, copy.action.add_mark))
                continue
            found.expired.update(copy.action.add_mark.paths)
            actions = [*again, *actions]
        try:
            draft.apply(actions)
        except NotApplicableError as error:
            found.more.append(f"the copy {copy.key} does not apply: {error}")
            continue
        found.actions += actions
        found.restored.append(name)
    return found


def _names(copy: Copy) -> list[str]:
    action = copy.action
    return [(action.add_tombstone.id if action.HasField("add_tombstone") else action.add_mark.id).hex()]


def _removals(state: CatalogState, mark: AddMark) -> list[Action]:
    """Return what takes off the list what a mark says expired: its logs, and shards none of whose logs are left."""
    gone = {path for path in mark.paths if path in state.files}
    shards = [shard.name for shard in state.shards.values() if shard.log_paths and gone.issuperset(shard.log_paths)]
    removed = [Action(remove_file=RemoveFile(path=path, reason=EXPIRED)) for path in sorted(gone)]
    return [*removed, *(Action(remove_shard=RemoveShard(name=name, reason=EXPIRED)) for name in sorted(shards))]


def _held(state: CatalogState, mark: AddMark) -> str:
    files = [state.files[path] for path in mark.paths if path in state.files]
    ids = ", ".join(f"{file.first_event_id} to {file.last_event_id}" for file in files)
    holds = ", ".join(sorted(state.holds))
    return f"the events {ids} had expired and would be given out again, because the hold {holds} may mean them"
