"""Second copies of tombstones and marks, kept beside the catalog: one object each, in a folder of their own.

A tombstone, or the mark of what expired, is in one transaction only. Were that lost, a repair would bring back what
somebody wanted gone. So its copy is written before the transaction is, and no damage to one file takes both. The
object `since` names the first revision that has copies: a lost transaction from then on that has no copy hid nothing.

A copy of what a user asked to be forgotten stays after the events are erased, for as long as a kept revision knows the
tombstone: an old log may still lie about. Other copies go with what they are copies of.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from custody.catalog.codec import decode, encode
from custody.catalog.keys import CatalogObjects
from custody.catalog.state import CatalogState
from custody.catalog.tombstones import is_remnant
from custody.catalog.transaction_pb2 import Action, AddMark, AddTombstone, Transaction
from custody.errors import CustodyError, NotFoundError
from custody.format.names import FORGOTTEN

# Part of the format: the name in the folder of copies; copies themselves end in `.kept`.
SINCE = "since"
_COPY = re.compile(r"([0-9a-f]{32})\.kept")


@dataclass(frozen=True, slots=True)
class SecondCopy:
    """One copy: an action of the transaction of a revision, which may have failed to be committed."""

    key: str
    revision: int
    action: Action


@dataclass
class SecondCopies:
    """All copies of one catalog that can be read, by the id of tombstone or mark, hexadecimal."""

    by_id: dict[str, SecondCopy] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    """By key, what is wrong with a copy that cannot be read."""
    since: int | None = None
    """The first revision of which copies were written; None when that is not known."""

    def unknown(self, lost: Iterable[int]) -> list[str]:
        """Return why it cannot be known what lost transactions hid; nothing when it is known."""
        older = [revision for revision in sorted(lost) if self.since is None or revision < self.since]
        reasons = []
        if older:
            named = ", ".join(map(str, older))
            reasons.append(f"what the revisions {named} forgot or let expire cannot be known: no copies were kept then")
        if self.unreadable and lost:
            named = ", ".join(sorted(self.unreadable))
            reasons.append(f"what was forgotten or expired cannot be known, because copies cannot be read: {named}")
        return reasons

    def behind(self, revision: int, known_ids: Iterable[str]) -> list[SecondCopy]:
        """Return the copies from later revisions whose ids are not among `known_ids`."""
        known = set(known_ids)
        return [copy for name, copy in sorted(self.by_id.items()) if copy.revision > revision and name not in known]


class SecondCopyStore:
    """The folder of copies of one catalog."""

    def __init__(self, objects: CatalogObjects) -> None:
        self._objects = objects
        self._store = objects.store
        self.prefix = f"{objects.home}{FORGOTTEN}/"
        self._is_kept = False
        """Whether it is known that all of the state has copies."""

    def keep(self, state: CatalogState, actions: Sequence[Action]) -> None:
        """Write copies of the tombstones and marks that a transaction will add; the first time, of all in the state.

        Durability: on return the copies survive power loss.
        """
        # The first time in the life of this object only: afterwards every commit has written its own copies.
        if not self._is_kept:
            if self._store.head(self.prefix + SINCE) is None:
                # Copies before `since`: a crash in between leaves them complete but unclaimed, never claimed and
                # missing.
                self.complete(state)
                self._store.put_if_absent(self.prefix + SINCE, _encoded(state, state.revision + 1, []))
            self._is_kept = True
        for name, action in _narrowing(actions):
            self._put(name, _encoded(state, state.revision + 1, [action]))

    def complete(self, state: CatalogState) -> int:
        """Write the copies that a state lacks, or that cannot be read; return how many.

        Durability: on return they survive power loss.
        """
        entries = dict(_narrowing(state.other_actions()))
        if not entries:
            return 0
        # Unreadable copies are not in `by_id`, so they are written anew.
        copies = self.read().by_id
        missing = [name for name in sorted(entries) if name not in copies]
        for name in missing:
            self._put(name, _encoded(state, state.revision, [entries[name]]))
        return len(missing)

    def settle_since(self, state: CatalogState) -> None:
        """Write anew from which revision on there are copies; all copies of the state itself are there.

        Durability: on return it survives power loss.
        """
        self._store.put(self.prefix + SINCE, _encoded(state, state.revision + 1, []))

    def undo(self, actions: Sequence[Action]) -> None:
        """Remove the copies of actions that were not committed and will not be."""
        for name, _ in _narrowing(actions):
            self._store.delete(self._key(name))

    def let_go(self, before: CatalogState, actions: Sequence[Action]) -> None:
        """Remove the copies of what a transaction removed, except of what a user asked to be forgotten."""
        stays = {name for name, _ in _narrowing(actions)}
        for action in actions:
            if action.HasField("remove_mark") and action.remove_mark.id.hex() not in stays:
                self._store.delete(self._key(action.remove_mark.id.hex()))
            if action.HasField("remove_tombstone"):
                name = action.remove_tombstone.id.hex()
                stone = before.tombstones.get(name)
                if stone is not None and name not in stays and (stone.by_retention or is_remnant(stone)):
                    self._store.delete(self._key(name))

    def present(self, ids: Iterable[str]) -> list[str]:
        """Return the keys of the copies of some tombstones and marks that are there."""
        return [key for key in map(self._key, ids) if self._store.head(key) is not None]

    def remove(self, keys: Iterable[str]) -> None:
        """Remove copies that no kept revision knows."""
        for key in keys:
            self._store.delete(key)

    def tidy(self, kept_ids: Iterable[str], before_ms: int) -> list[str]:
        """Remove the copies that were made before a time and that no kept revision knows; return their keys.

        `kept_ids` are the ids of all tombstones and marks that a kept revision has.
        """
        ids, removed = set(kept_ids), []
        for name, copy in self.read().by_id.items():
            created_ms = copy.action.add_tombstone.created_ms or copy.action.add_mark.created_ms
            # A young copy may belong to a commit that is under way: its transaction is written after it.
            if name not in ids and created_ms < before_ms:
                self._store.delete(copy.key)
                removed.append(copy.key)
        return removed

    def read(self) -> SecondCopies:
        """Read all copies; what cannot be read is named."""
        copies = SecondCopies()
        for key in self._store.keys(self.prefix):
            name = key.removeprefix(self.prefix)
            match = _COPY.fullmatch(name)
            if name != SINCE and match is None:
                continue
            try:
                message = decode(self._store.get(key), self._store.locate(key))
                if match is None:
                    copies.since = message.revision
                    continue
                [(entry_id, action)] = _narrowing(message.actions)
            except NotFoundError:
                continue  # it was removed in this moment
            except (CustodyError, ValueError) as error:
                copies.unreadable[key] = str(error)
                continue
            if match is not None and entry_id == match[1]:
                copies.by_id[entry_id] = SecondCopy(key, message.revision, action)
            else:
                copies.unreadable[key] = (
                    f"{self._store.locate(key)}: expected the copy of its name, got that of {entry_id}."
                )
        return copies

    def set_aside(self, keys: Iterable[str], target: str) -> None:
        """Move copies that cannot be read below another prefix."""
        for key in keys:
            self._store.move(key, target + key.removeprefix(self._objects.home))

    def _key(self, name: str) -> str:
        return f"{self.prefix}{name}.kept"

    def _put(self, name: str, data: bytes) -> None:
        # A copy of an earlier try names another revision: this one replaces it.
        if not self._store.put_if_absent(self._key(name), data):
            self._store.put(self._key(name), data)


def copied_ids(state: CatalogState) -> set[str]:
    """Return the ids of all tombstones and marks of a state, hexadecimal."""
    return {*state.tombstones, *state.marks}


def copied_entry(action: Action) -> AddTombstone | AddMark:
    """Return the tombstone or mark of an action."""
    return action.add_tombstone if action.HasField("add_tombstone") else action.add_mark


def copied_entries(state: CatalogState) -> Mapping[str, AddTombstone | AddMark]:
    """Return the tombstones and marks of a state by id."""
    return {**state.tombstones, **state.marks}


def ids_added_by(actions: Iterable[Action]) -> Iterator[str]:
    """Yield the ids of the tombstones and marks that actions add."""
    return (name for name, _ in _narrowing(actions))


def _narrowing(actions: Iterable[Action]) -> Iterator[tuple[str, Action]]:
    """Yield the actions that add a tombstone or a mark, by id."""
    for action in actions:
        if action.HasField("add_tombstone"):
            yield action.add_tombstone.id.hex(), action
        elif action.HasField("add_mark"):
            yield action.add_mark.id.hex(), action


def _encoded(state: CatalogState, revision: int, actions: Sequence[Action]) -> bytes:
    identity = state.catalog_id.bytes if state.revision >= 0 else b""
    return encode(Transaction(revision=revision, catalog_id=identity, actions=actions))
