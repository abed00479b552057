"""What a catalog says besides its files, as far as its objects can still be read: for a catalog that is made anew.

What was forgotten, what is held, what expired and what is known to be lost stands in the catalog and nowhere else; data
files know nothing of it. So the objects that are left are read one by one, each trusted for its own checksum, in the
order of their revisions. What one that cannot be read did is unknown: a later checkpoint makes up for it, as it says
everything anew. Objects that earlier rebuilds moved aside are read first, so that a rebuild that was interrupted can be
done again.

Tombstones and marks are kept a second time (`forgotten`): what objects of the catalog do not tell is taken from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from custody.catalog.codec import decode
from custody.catalog.forgotten import Copies, Forgotten
from custody.catalog.objects import Objects
from custody.catalog.transaction_pb2 import Action, Transaction
from custody.catalog.wellformed import check_action
from custody.errors import CorruptionError, InvalidInputError, NotFoundError, StorageError
from custody.format.names import parse_revision, parse_transaction

REPLACED_PREFIX = "transactions-replaced-"
KINDS = ("tombstones", "holds", "marks", "losses")


@dataclass
class Surviving:
    """What could be read, by kind and name, as the actions that say it again."""

    actions: dict[str, dict[str, Action]] = field(default_factory=lambda: {kind: {} for kind in KINDS})
    read: int = 0
    """Objects that could be read."""
    unread: list[str] = field(default_factory=list)
    """Objects that could not be read and that no later checkpoint makes up for."""
    _of: dict[tuple[str, str], bytes] = field(default_factory=dict)
    """Which catalog said it last, by kind and name."""
    copies: Copies = field(default_factory=Copies)
    """The second copies of tombstones and marks."""

    def all(self) -> list[Action]:
        """Return the actions, in a fixed order."""
        return [kept[name] for kind in KINDS for kept in [self.actions[kind]] for name in sorted(kept)]

    def counts(self) -> dict[str, int]:
        """Return how many there are of each kind."""
        return {kind: len(self.actions[kind]) for kind in KINDS}

    @property
    def marked(self) -> set[str]:
        """The data files that marks name: they expired and are not to be live again."""
        return {path for action in self.actions["marks"].values() for path in action.add_mark.paths}

    @property
    def more(self) -> list[str]:
        """Why an answer may give out more than before; nothing when all is known that was forgotten or expired."""
        if self.read and not self.unread:
            return []
        if self.copies.since is None:
            return ["what was forgotten or expired cannot be known: objects of the catalog are lost, and so are copies"]
        return self.copies.unknown([self.copies.since])

    @property
    def lost(self) -> str | None:
        """What cannot be known, None when every object could be read."""
        kinds = "tombstones, holds, marks and losses" if self.more else "holds and losses"
        if not self.read:
            return f"{kinds}: no object of the old catalog can be read, and nothing else knows of them"
        if self.unread:
            return f"{kinds} of {len(self.unread)} objects that cannot be read: {', '.join(self.unread)}"
        return None

    def follow(self, message: Transaction, key: str) -> None:
        """Take over what a transaction or a checkpoint says.

        A checkpoint says all of its own catalog anew. Of another catalog's, such as one that was rebuilt or one that
        does not belong here, it says nothing: that stays, as nobody may see again what was forgotten there.
        """
        self.read += 1
        of = message.catalog_id
        if message.encoding == Transaction.FULL:
            for kind in KINDS:
                for name in [name for name in self.actions[kind] if self._of.get((kind, name)) == of]:
                    del self.actions[kind][name]
            self.unread.clear()
        for action in message.actions:
            said = _said(action)
            if said is None:
                continue
            kind, name, stands = said
            try:
                check_action(action)
            except InvalidInputError:
                self.unread.append(key)
                continue
            if stands:
                self.actions[kind][name], self._of[kind, name] = action, of
            else:
                self.actions[kind].pop(name, None)


def surviving(objects: Objects) -> Surviving:
    """Read what is left of a catalog; nothing is changed.

    Raises:
        FormatVersionError: a newer custody wrote here: that is no damage.
    """
    found = Surviving()
    asides = [name for name in objects.store.folders(objects.home) if name.startswith(REPLACED_PREFIX)]
    for prefix in (*(f"{objects.home}{name}/" for name in sorted(asides)), objects.prefix):
        for key in _keys(objects, prefix):
            try:
                found.follow(decode(objects.store.get(key), key), key)
            except (CorruptionError, StorageError, NotFoundError):
                found.unread.append(key)
    found.copies = Forgotten(objects).read()
    for name, copy in found.copies.found.items():
        kind = "tombstones" if copy.action.HasField("add_tombstone") else "marks"
        found.actions[kind].setdefault(name, copy.action)
    return found


def _keys(objects: Objects, prefix: str) -> Iterator[str]:
    """Yield the objects below a prefix, oldest revision first, a checkpoint behind its transaction."""
    found = []
    for key in objects.store.keys(prefix):
        folder, _, name = key.removeprefix(prefix).partition("/")
        revision, parsed = parse_revision(folder), parse_transaction(name)
        if revision is not None and parsed is not None:
            found.append((revision, parsed[1], key))
    yield from (key for _, _, key in sorted(found))


def _said(action: Action) -> tuple[str, str, bool] | None:
    """Return of what kind an action is, whom it names, and whether that stands from then on; None for another one."""
    kind = action.WhichOneof("kind")
    if kind == "add_hold":
        return "holds", action.add_hold.name, True
    if kind == "remove_hold":
        return "holds", action.remove_hold.name, False
    by_id = {
        "add_tombstone": ("tombstones", action.add_tombstone.id, True),
        "remove_tombstone": ("tombstones", action.remove_tombstone.id, False),
        "add_mark": ("marks", action.add_mark.id, True),
        "remove_mark": ("marks", action.remove_mark.id, False),
        "add_loss": ("losses", action.add_loss.id, True),
    }.get(kind or "")
    return None if by_id is None else (by_id[0], by_id[1].hex(), by_id[2])
