"""The state of a catalog at one revision, how transactions change it, and the errors that contradictions raise.

`CatalogState` is a frozen value. `Draft` follows any number of transactions, at the cost of their own size, and gives
the state after them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from uuid import UUID

from custody.catalog.persistent_map import REMOVED, FileMap, PersistentMap, Removed
from custody.catalog.transaction_pb2 import (
    Absorb,
    Action,
    AddFile,
    AddHold,
    AddLoss,
    AddMark,
    AddShard,
    AddTombstone,
    Prune,
    Seal,
    Transaction,
)
from custody.errors import ConflictError, CorruptionError, FormatVersionError, NotFoundError
from custody.format.names import split_stripe


@dataclass(frozen=True, slots=True)
class Conflict:
    """One action that cannot be done: what it does, to what, and why not."""

    action: str
    name: str
    reason: str

    def __str__(self) -> str:
        return f"cannot {self.action} {self.name}: it {self.reason}."


class NotApplicableError(ConflictError):
    """An action contradicts the state."""

    def __init__(self, conflict: Conflict) -> None:
        super().__init__(str(conflict))
        self.conflict = conflict


class CommitConflictError(ConflictError):
    """A commit was not written: `conflict` says what contradicts what was committed up to `revision`."""

    def __init__(self, message: str, revision: int, conflict: Conflict | None) -> None:
        super().__init__(message)
        self.revision = revision
        self.conflict = conflict


class SealedError(ConflictError):
    """The catalog's writer was retired: nothing more is committed to it."""


class FencedError(ConflictError):
    """A later process took over this writer: the one that reads this has to stop."""


class ForkError(CorruptionError):
    """Two transactions claim one revision; `uuids` are their names."""

    def __init__(self, message: str, revision: int, uuids: tuple[str, ...]) -> None:
        super().__init__(message)
        self.revision = revision
        self.uuids = uuids


class PrunedError(NotFoundError):
    """The revision is not kept any more; `earliest` is."""

    def __init__(self, message: str, earliest: int) -> None:
        super().__init__(message)
        self.earliest = earliest


STRIPES_FEATURE = "stripes"
"""Paths of files may begin with the name of a stripe. Without it a reader would look for them in the store."""
FEATURES_READ: frozenset[str] = frozenset({STRIPES_FEATURE})
"""Names of the features that this code can read; each one is added with the release that brings it."""


def features_of(actions: Iterable[Action]) -> frozenset[str]:
    """Return the features that a reader needs to make sense of some actions."""
    is_striped = any(split_stripe(action.add_file.path)[0] for action in actions if action.HasField("add_file"))
    return frozenset({STRIPES_FEATURE}) if is_striped else frozenset()


class ClocksBehind(NamedTuple):
    """A run of revisions that were committed by clocks which stood before the revisions' own times."""

    first: int
    """0 where there is no run: the first revision of all has none before it."""
    last: int
    clock_ms: int
    """The earliest time of those clocks."""


NO_CLOCK_BEHIND = ClocksBehind(0, 0, 0)


@dataclass(frozen=True, slots=True)
class CatalogState:
    """The state of a catalog at `revision`: what is live; times in ms since the epoch, UTC."""

    catalog_id: UUID
    revision: int
    uuid: UUID
    digest: bytes
    commit_time_ms: int
    next_event_id: int
    writer_features: frozenset[str] = frozenset()
    """Who writes has to know all of them; a feature never goes away."""
    reader_features: frozenset[str] = frozenset()
    files: FileMap = field(default_factory=FileMap)
    """Live Parquet files by path, relative to the database's folder."""
    shards: Mapping[str, AddShard] = field(default_factory=PersistentMap)
    """Live index shards by name."""
    tombstones: Mapping[str, AddTombstone] = field(default_factory=PersistentMap)
    """What readers no longer give out, by the tombstone's id in hexadecimal digits."""
    absorbed: Mapping[str, Absorb] = field(default_factory=PersistentMap)
    """Whose files these files stand for, by `<writer>/<database>`."""
    losses: Mapping[str, AddLoss] = field(default_factory=PersistentMap)
    """Which events are known to be lost, by the loss's id in hexadecimal digits."""
    holds: Mapping[str, AddHold] = field(default_factory=PersistentMap)
    """What is neither expired nor erased, by the hold's name."""
    marks: Mapping[str, AddMark] = field(default_factory=PersistentMap)
    """What expired and may still lie on disk, by the mark's id in hexadecimal digits."""
    naming: int = Transaction.DERIVED
    epoch: int = 0
    seal: Seal | None = None
    """Why nothing more is committed here; None while the writer lives."""
    prune: Prune | None = None
    """Which revisions may be gone on purpose."""
    behind: ClocksBehind = NO_CLOCK_BEHIND
    """The newest run of revisions that were committed by clocks which stood before the time of the revision before."""

    @property
    def floor(self) -> int:
        """The earliest revision that is kept."""
        return 0 if self.prune is None else self.prune.floor

    def file_of(self, event_id: int) -> AddFile | None:
        """Return the live file whose id range holds an event."""
        return self.files.file_of(event_id)

    def actions(self) -> list[Action]:
        """Return what gives this state from nothing, in a fixed order."""
        return [Action(add_file=self.files[path]) for path in sorted(self.files)] + self.other_actions()

    def other_actions(self) -> list[Action]:
        """Return what gives this state without its files."""
        # A fixed order: equal states have to give checkpoints of equal bytes.
        actions = [Action(add_shard=self.shards[name]) for name in sorted(self.shards)]
        actions += [Action(add_tombstone=self.tombstones[name]) for name in sorted(self.tombstones)]
        actions += [Action(absorb=self.absorbed[name]) for name in sorted(self.absorbed)]
        actions += [Action(add_loss=self.losses[name]) for name in sorted(self.losses)]
        actions += [Action(add_hold=self.holds[name]) for name in sorted(self.holds)]
        actions += [Action(add_mark=self.marks[name]) for name in sorted(self.marks)]
        actions += [] if self.prune is None else [Action(prune=self.prune)]
        return actions + ([] if self.seal is None else [Action(seal=self.seal)])

    def advanced(self, transaction: Transaction, digest: bytes, where: str = "") -> CatalogState:
        """Return the state after a transaction, or the state that a checkpoint spells out, which lies at `where`."""
        draft = Draft(self)
        draft.follow(transaction, digest, where)
        return draft.state()


EMPTY = CatalogState(UUID(int=0), -1, UUID(int=0), b"", 0, 0)
"""Before the first transaction."""

_Changes = dict[str, Any]


def clocks_behind(transaction: Transaction) -> ClocksBehind:
    """Return what a transaction says of them."""
    return ClocksBehind(transaction.behind_first, transaction.behind_last, transaction.behind_clock_ms)


class Draft:
    """A state that is being changed: many transactions are followed at the cost of their own size."""

    def __init__(self, base: CatalogState) -> None:
        self._base = base
        self._files: _Changes = {}
        self._shards: _Changes = {}
        self._tombstones: _Changes = {}
        self._absorbed: _Changes = {}
        self._losses: _Changes = {}
        self._holds: _Changes = {}
        self._marks: _Changes = {}
        self._seal = base.seal
        self._prune = base.prune
        self._reader = set(base.reader_features)
        self._writer = set(base.writer_features)
        self.catalog_id = base.catalog_id.bytes
        self.revision = base.revision
        self.uuid = base.uuid.bytes
        self.digest = base.digest
        self.commit_time_ms = base.commit_time_ms
        self.naming = base.naming
        self._behind = base.behind
        self._next_event_id = base.next_event_id
        self._epoch = base.epoch

    def follow(self, transaction: Transaction, digest: bytes, where: str = "") -> None:
        """Apply a transaction or a checkpoint, which lies at `where`, that was checked to be the next object.

        Raises:
            ConflictError: an action contradicts the state; the draft is of no use any more.
            FormatVersionError: an action is of a kind, or asks for a feature, that this code does not know.
        """
        first = self.revision < 0
        if transaction.encoding == Transaction.FULL:
            files = FileMap.undecoded(list(transaction.live_paths), list(transaction.live_files), where)
            # A checkpoint starts from nothing: its actions spell out the whole state. Files stay undecoded until they
            # are looked at.
            self._base = replace(EMPTY, files=files)
        if first or transaction.encoding == Transaction.FULL:
            self.naming = transaction.naming
        self.apply(transaction.actions)
        # The floor has to lie before the transaction that sets it: else nothing that is kept would say that it was
        # pruned.
        if self._prune is not None and self._prune.floor >= transaction.revision:
            reason = f"is not before revision {transaction.revision}, which says so"
            raise NotApplicableError(Conflict("prune up to", f"revision {self._prune.floor}", reason))
        self.catalog_id = transaction.catalog_id
        self.revision = transaction.revision
        self.uuid = transaction.uuid
        self.digest = digest
        self.commit_time_ms = transaction.commit_time_ms
        self._behind = clocks_behind(transaction)
        self._next_event_id = max(self._next_event_id, transaction.next_event_id)
        # Processes without an epoch write 0, which must not lift the fence for an older process.
        self._epoch = max(self._epoch, transaction.epoch)
        if transaction.writer_features or transaction.reader_features:
            self._upgrade(transaction.reader_features, transaction.writer_features)

    def apply(self, actions: Iterable[Action]) -> None:
        """Apply actions in their order; raises as `follow` does."""
        for action in actions:
            apply = _APPLY.get(action.WhichOneof("kind") or "")
            # Never skipped: an unknown action may hide events, and a reader that ignores it would give them out.
            if apply is None:
                raise FormatVersionError("the catalog holds an action of an unknown kind. Use a newer custody.")
            apply(self, action)

    def state(self) -> CatalogState:
        """Return the state so far as a value."""
        base = self._base
        return CatalogState(
            catalog_id=UUID(bytes=self.catalog_id),
            revision=self.revision,
            uuid=UUID(bytes=self.uuid),
            digest=self.digest,
            commit_time_ms=self.commit_time_ms,
            next_event_id=self._next_event_id,
            writer_features=frozenset(self._writer),
            reader_features=frozenset(self._reader),
            files=base.files.changed(self._files),
            shards=_changed(base.shards, self._shards),
            tombstones=_changed(base.tombstones, self._tombstones),
            absorbed=_changed(base.absorbed, self._absorbed),
            losses=_changed(base.losses, self._losses),
            holds=_changed(base.holds, self._holds),
            marks=_changed(base.marks, self._marks),
            naming=self.naming,
            epoch=self._epoch,
            seal=self._seal,
            prune=self._prune,
            behind=self._behind,
        )

    def _upgrade(self, reader: Iterable[str], writer: Iterable[str]) -> None:
        self._reader.update(reader)
        self._writer.update(writer)
        unknown = sorted(self._reader - FEATURES_READ)
        if unknown:
            names = ", ".join(unknown)
            raise FormatVersionError(f"needs the reader features {names}, which this custody does not know.")

    def _add(self, kind: str, changes: _Changes, base: Mapping[str, Any], name: str, value: object) -> None:
        if self._has(changes, base, name):
            raise NotApplicableError(Conflict(kind, name, "is live already"))
        changes[name] = value

    def _remove(self, kind: str, changes: _Changes, base: Mapping[str, Any], name: str) -> None:
        if not self._has(changes, base, name):
            raise NotApplicableError(Conflict(kind, name, "is not live"))
        changes[name] = REMOVED

    @staticmethod
    def _has(changes: _Changes, base: Mapping[str, Any], name: str) -> bool:
        value = changes.get(name)
        return name in base if value is None else not isinstance(value, Removed)

    def _add_file(self, action: Action) -> None:
        file = action.add_file
        # Also where a repair lists a file whose own transaction is lost: the checkpoint has to say it.
        if split_stripe(file.path)[0]:
            self._reader.add(STRIPES_FEATURE)
        self._add("add file", self._files, self._base.files, file.path, file)

    def _remove_file(self, action: Action) -> None:
        self._remove("remove file", self._files, self._base.files, action.remove_file.path)

    def _add_shard(self, action: Action) -> None:
        shard = action.add_shard
        self._add("add shard", self._shards, self._base.shards, shard.name, shard)

    def _remove_shard(self, action: Action) -> None:
        self._remove("remove shard", self._shards, self._base.shards, action.remove_shard.name)

    def _add_tombstone(self, action: Action) -> None:
        stone = action.add_tombstone
        self._add("add tombstone", self._tombstones, self._base.tombstones, stone.id.hex(), stone)

    def _remove_tombstone(self, action: Action) -> None:
        name = action.remove_tombstone.id.hex()
        self._remove("remove tombstone", self._tombstones, self._base.tombstones, name)

    def _add_hold(self, action: Action) -> None:
        self._add("add hold", self._holds, self._base.holds, action.add_hold.name, action.add_hold)

    def _remove_hold(self, action: Action) -> None:
        self._remove("release hold", self._holds, self._base.holds, action.remove_hold.name)

    def _respect_holds(self, action: Action) -> None:
        names = {*self._base.holds, *self._holds}
        standing = {name for name in names if self._has(self._holds, self._base.holds, name)}
        # Closes the race between planning and committing: a hold that was made in between stops the erasure.
        unknown = sorted(standing.difference(action.respect_holds.names))
        if unknown:
            raise NotApplicableError(Conflict("erase", f"what the hold {unknown[0]} may mean", "was not known"))

    def _add_mark(self, action: Action) -> None:
        self._add("add mark", self._marks, self._base.marks, action.add_mark.id.hex(), action.add_mark)

    def _remove_mark(self, action: Action) -> None:
        self._remove("remove mark", self._marks, self._base.marks, action.remove_mark.id.hex())

    def _do_upgrade(self, action: Action) -> None:
        self._upgrade(action.upgrade.reader_features, action.upgrade.writer_features)

    def _do_prune(self, action: Action) -> None:
        if self._prune is not None and action.prune.floor < self._prune.floor:
            raise NotApplicableError(Conflict("prune", str(action.prune.floor), f"lies before {self._prune.floor}"))
        self._prune = action.prune

    def _do_seal(self, action: Action) -> None:
        if self._seal is not None:
            raise NotApplicableError(Conflict("seal", "the catalog", "is sealed already"))
        self._seal = action.seal

    def _do_absorb(self, action: Action) -> None:
        name = f"{action.absorb.writer}/{action.absorb.database}"
        self._add("absorb", self._absorbed, self._base.absorbed, name, action.absorb)

    def _add_loss(self, action: Action) -> None:
        self._add("add loss", self._losses, self._base.losses, action.add_loss.id.hex(), action.add_loss)

    def _remove_loss(self, action: Action) -> None:
        self._remove("remove loss", self._losses, self._base.losses, action.remove_loss.id.hex())

    def _do_note(self, action: Action) -> None:
        """Change nothing."""


# The kinds are part of the format: add, never change what one means.
_APPLY: dict[str, Callable[[Draft, Action], None]] = {
    "add_file": Draft._add_file,
    "remove_file": Draft._remove_file,
    "add_shard": Draft._add_shard,
    "remove_shard": Draft._remove_shard,
    "add_tombstone": Draft._add_tombstone,
    "remove_tombstone": Draft._remove_tombstone,
    "upgrade": Draft._do_upgrade,
    "prune": Draft._do_prune,
    "seal": Draft._do_seal,
    "absorb": Draft._do_absorb,
    "note": Draft._do_note,
    "add_loss": Draft._add_loss,
    "remove_loss": Draft._remove_loss,
    "add_hold": Draft._add_hold,
    "remove_hold": Draft._remove_hold,
    "add_mark": Draft._add_mark,
    "remove_mark": Draft._remove_mark,
    "respect_holds": Draft._respect_holds,
}


def _changed(base: Mapping[str, Any], changes: _Changes) -> Mapping[str, Any]:
    return base.changed(changes) if isinstance(base, PersistentMap) else PersistentMap({**base}).changed(changes)
