"""Repair: a catalog with unreadable revisions becomes readable again, without hiding what was lost.

The last good state stays. Of the later transactions those that can be read are taken as far as they still apply; event
logs in the store that no readable transaction removed are taken from their footers; tombstones and marks come back
from their second copies. All objects from the first unreadable revision on are copied aside, one transaction with a
note takes the place of the first, then the others go: a crash in between loses nothing, and the next repair goes on.

An attestation of a later revision will then say, rightly, that the history is not the attested one.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field

from custody.catalog.catalog import Catalog
from custody.catalog.codec import decode
from custody.catalog.keys import CatalogObject, CatalogObjects
from custody.catalog.rebuild import aside_prefix, scan_logs, shard_of
from custody.catalog.second_copies import SecondCopy, SecondCopyStore, copied_entries, copied_entry
from custody.catalog.state import EMPTY, CatalogState, Draft, ForkError, NotApplicableError
from custody.catalog.transaction_pb2 import (
    EXPIRED,
    Action,
    AddFile,
    AddMark,
    Note,
    RemoveFile,
    RemoveShard,
    Transaction,
)
from custody.catalog.wellformed import check_delta, check_full, read_file_entry
from custody.clock import Clock
from custody.errors import ConflictError, CorruptionError, CustodyError, NotFoundError
from custody.format.names import LEASES, parse_revision

# On disk: repairs of all releases have to lock the same name.
_LOCK = "catalog-repair"
# A damaged number may claim a billion revisions; naming them would fill memory and the note.
_LOST_MAX = 10_000
"""So many revisions without any object are named one by one."""


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """The plan of a repair: the last good state, what is lost, and what is taken over."""

    good: CatalogState
    """The last state that can be read without a repair."""
    newest: int
    """The newest revision that has any object."""
    lost: tuple[int, ...]
    """Revisions whose transaction cannot be read."""
    actions: tuple[Action, ...]
    """What is taken over from readable transactions behind the first unreadable one, and from footers."""
    from_footers: tuple[str, ...]
    skipped: tuple[str, ...]
    next_event_id: int
    checkpoints: tuple[str, ...]
    """Checkpoints that cannot be read, while a transaction chain around them can."""
    restored: tuple[str, ...] = ()
    """Tombstones and marks, by id, that only their second copies still know."""
    more: tuple[str, ...] = ()
    """Why an answer may give out more afterwards than it would have before the damage; none when it cannot."""

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to do."""
        return self.newest > self.good.revision or bool(self.checkpoints)


def plan_repair(catalog: Catalog, leave_out: Container[str] = ()) -> RepairPlan:
    """Find out what can be read; changes nothing. Logs of `leave_out` are not taken from their footers.

    Raises:
        FormatVersionError: a newer custody wrote here: that is no damage.
    """
    items = [item for item in catalog.objects.list() if catalog.objects.store.head(item.key) is not None]
    folders = _folders(catalog)
    good, is_whole, foreign = _last_good(catalog)
    broken = (*_broken_checkpoints(catalog, [item.key for item in items if item.is_checkpoint]), *foreign)
    present = {item.revision for item in items}
    newest = good.revision if is_whole else max(present, default=-1)
    # Empty folders and the hint are traces of lost transactions: without them a lost tail would go unnoticed.
    newest = max(newest, _traced(newest, folders), -1 if is_whole else _hinted(catalog, good))
    if newest <= good.revision:
        return RepairPlan(good, newest, (), (), (), (), good.next_event_id, broken)
    # Event ids are never used twice: the next id rises past everything that is seen, also in what cannot be applied.
    draft, next_event_id = Draft(good), good.next_event_id
    lost: list[int] = []
    skipped: list[str] = []
    recovered: list[Action] = []
    removed: set[str] = set()
    names = _Names(catalog, good)
    for revision in range(good.revision + 1, newest + 1):
        transaction = names.readable(revision) if revision in present else None
        if transaction is None and revision not in present and len(lost) >= _LOST_MAX:
            break  # only a number in some object claims so many revisions, and it may be damaged
        if transaction is None:
            lost.append(revision)
            continue
        next_event_id = max(next_event_id, transaction.next_event_id)
        for action in transaction.actions:
            try:
                draft.apply([action])
            except NotApplicableError as error:
                skipped.append(f"revision {revision}: {error}")
            else:
                recovered.append(action)
            # Also when the removal does not apply: the file was meant to go, so its footer must not bring it back.
            if action.HasField("remove_file"):
                removed.add(action.remove_file.path)
    # After the readable transactions: these say what was taken back, and such copies are not restored.
    copies = SecondCopyStore(catalog.objects).read()
    again = restore_copies(draft, copies.behind(good.revision, _let_go_by(recovered)))
    unlisted = _from_footers(catalog, draft, good, removed | again.expired)
    from_footers = [file for file in unlisted if file.path not in leave_out]
    next_event_id = max([next_event_id, *(file.last_event_id + 1 for file in from_footers)])
    return RepairPlan(
        good,
        newest,
        tuple(lost),
        (*recovered, *again.actions, *(Action(add_file=file) for file in from_footers)),
        tuple(file.path for file in from_footers),
        tuple(skipped),
        next_event_id,
        broken,
        restored=tuple(again.restored),
        more=(*copies.unknown(lost), *again.more),
    )


def repair(
    catalog: Catalog, clock: Clock, containers: Sequence[str] = (), leave_out: Container[str] = ()
) -> tuple[RepairPlan, CatalogState]:
    """Do what `plan_repair` says; return the plan and the state after it.

    With the names of the containers, files that are taken from footers get their shards, as in `rebuild`. Of two
    repairs at once the second is refused, also while the first is stopped: on a disk by a lock, elsewhere it finds out.

    Durability: on return the repaired catalog survives power loss. A crash on the way leaves a catalog that the next
    repair mends; every object that is replaced was copied aside before.

    Raises:
        LockedError: another repair of this catalog is running.
        ConflictError: somebody wrote what was to be replaced.
        ForkError: a checkpoint contradicts what lies beside it, and nothing tells which of them is right.
        FormatVersionError: a newer custody wrote here.
    """
    # Held from plan to checkpoint: a second repair would plan on objects that the first one is replacing.
    with catalog.objects.store.exclusive(f"{catalog.objects.home}{LEASES}/{_LOCK}"):
        return _repaired(catalog, clock, containers, leave_out)


@dataclass
class RestoredCopies:
    """Second copies that a repair applies, and those that it cannot."""

    actions: list[Action] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)
    """The ids of the tombstones and marks that come back."""
    expired: set[str] = field(default_factory=set)
    """The files that the marks name, which are not to be listed again."""
    more: list[str] = field(default_factory=list)
    """Why events would be given out again: copies that cannot be applied."""


def restore_copies(draft: Draft, copies: Iterable[SecondCopy]) -> RestoredCopies:
    """Apply copies to a draft that lacks what they say.

    Nothing that expired is removed again while a hold exists: nobody knows whether the hold was made before.
    """
    restored = RestoredCopies()
    for copy in copies:
        state = draft.state()
        name = copied_entry(copy.action).id.hex()
        if name in copied_entries(state):
            continue
        actions = [copy.action]
        if copy.action.HasField("add_mark"):
            # Removals before the mark, as in the transaction that is lost: a mark alone would leave the files live.
            again = _removals(state, copy.action.add_mark)
            if again and state.holds:
                restored.more.append(_held(state, copy.action.add_mark))
                continue
            restored.expired.update(copy.action.add_mark.paths)
            actions = [*again, *actions]
        try:
            draft.apply(actions)
        except NotApplicableError as error:
            restored.more.append(f"the copy {copy.key} does not apply: {error}")
            continue
        restored.actions += actions
        restored.restored.append(name)
    return restored


def _repaired(
    catalog: Catalog, clock: Clock, containers: Sequence[str], leave_out: Container[str]
) -> tuple[RepairPlan, CatalogState]:
    plan = plan_repair(catalog, leave_out)
    objects = catalog.objects
    for key in plan.checkpoints:
        _set_aside(objects, key, aside_prefix(objects, clock, "damaged") + key.rpartition("/")[2])
    # A new object: the old one may hold a state that was read from what is replaced here.
    fresh = Catalog(objects.store, objects.writer, objects.database, clock, objects.files.stripes)
    fresh.copies = catalog.copies
    if plan.newest > plan.good.revision >= 0:
        # An earlier repair may have died before its transaction was durable; this one builds on it.
        objects.store.settle(objects.key(plan.good.revision, plan.good.uuid))
    if plan.newest > plan.good.revision:
        recovered = [action.add_file for action in plan.actions if action.add_file.path in plan.from_footers]
        shards = [Action(add_shard=shard_of(file, containers)) for file in recovered if containers]
        listed = {action.add_shard.name for action in plan.actions} | set(plan.good.shards)
        shards = [shard for shard in shards if shard.add_shard.name not in listed]
        first = plan.good.revision + 1
        text = f"revisions {first} to {plan.newest} were damaged; {len(plan.actions)} changes were kept"
        note = Action(note=Note(kind=Note.REPAIRED, text=text, lost_revisions=plan.lost))
        if fresh.copies is not None:
            # Before the transaction, as in a commit: the copies now belong to another revision.
            fresh.copies.keep(plan.good, plan.actions)
        key, data = fresh.continuation(plan.good, [note, *plan.actions, *shards], plan.next_event_id)
        _replace_from(objects, clock, first, key, data)
        for revision in _folders(catalog):
            if revision > first:
                objects.store.drop_folder(objects.folder(revision))
    state = fresh.settle()
    if plan.is_needed:
        fresh.write_checkpoint()
        # A crash before leaves a catalog that is of an earlier moment for whoever saw what was lost: repaired again.
        catalog.accept(state)
    return plan, state


def _replace_from(objects: CatalogObjects, clock: Clock, revision: int, key: str, data: bytes) -> None:
    """Let one object take the place of all from a revision on, after these were copied to a folder beside.

    Where names are derived the key is that of the revision's own transaction: one write decides.

    Raises:
        ConflictError: somebody wrote there meanwhile; nothing was replaced.
    """
    target = aside_prefix(objects, clock, "damaged")
    store, first = objects.store, objects.folder(revision)
    keys = [
        other_key
        for other_key in store.keys(objects.prefix)
        if other_key >= first and store.head(other_key) is not None
    ]
    old = {other_key: store.get(other_key) for other_key in keys}
    # Copies before changes: whatever happens from here on, no byte of the damaged catalog is lost.
    for other_key, content in old.items():
        store.put(target + other_key.removeprefix(objects.prefix), content)
    if key in old:
        # Whoever wrote the key since it was copied wins: overwriting would lose a transaction that was never copied.
        is_free = store.get(key) == old[key]
        if is_free:
            store.put(key, data)
    else:
        is_free = store.put_if_absent(key, data) or store.get(key) == data
    if not is_free:
        raise ConflictError(f"{store.locate(key)}: somebody wrote it while the catalog was repaired. Try again.")
    # The newest first: after a crash the rest is still a chain without gaps, and the next repair finds it.
    for other_key in sorted(old, reverse=True):
        if other_key != key:
            store.delete(other_key)
            store.drop_folder(other_key.rpartition("/")[0] + "/")


def _set_aside(objects: CatalogObjects, key: str, target: str) -> None:
    """Move a checkpoint out of the way; one that somebody wrote anew in this moment gets its place again."""
    seen = objects.store.get(key)
    objects.store.move(key, target)
    moved = objects.store.get(target)
    # The move takes whatever lies there now. A whole checkpoint that was written in between has to go back.
    if moved != seen:
        objects.store.put_if_absent(key, moved)


def _let_go_by(actions: Sequence[Action]) -> set[str]:
    """Return the tombstones and marks that actions take back, by id."""
    ids = {action.remove_tombstone.id.hex() for action in actions if action.HasField("remove_tombstone")}
    return ids | {action.remove_mark.id.hex() for action in actions if action.HasField("remove_mark")}


def _last_good(catalog: Catalog) -> tuple[CatalogState, bool, list[str]]:
    """Return the newest state that can be read, whether that is the catalog's end, and foreign checkpoints.

    Of a catalog that can be opened that is the end, whatever others commit meanwhile. Of any other it is the state that
    an intact checkpoint and transactions without a gap give.

    Raises:
        ForkError: a later checkpoint contradicts what lies beside it: it may be right, so nothing is given up for it.
    """
    start, forks = EMPTY, list[tuple[CatalogObject, ForkError]]()
    for item in catalog.objects.checkpoints():
        try:
            checkpoint = catalog.chain.checkpoint(item, [])
        except ForkError as error:
            forks.append((item, error))
            continue
        if checkpoint is not None:
            start = checkpoint.state
            break
    try:
        good, is_whole = catalog.chain.open().state, True
    except CorruptionError:
        good, is_whole = _followed(catalog, start), False
    foreign = []
    for item, fork in forks:
        if item.revision > good.revision:
            raise fork
        on_chain, _ = catalog.chain.follow(start, item.revision)
        message = decode(catalog.objects.store.get(item.key), item.key)
        if (on_chain.uuid.bytes, on_chain.digest) != (message.uuid, message.previous_digest):
            foreign.append(item.key)
    return good, is_whole, foreign


def _followed(catalog: Catalog, state: CatalogState) -> CatalogState:
    while True:
        try:
            return catalog.chain.follow(state)[0]
        except CorruptionError:
            # One step at a time, up to the transaction that cannot be followed.
            try:
                state, _ = catalog.chain.follow(state, state.revision + 1)
            except CorruptionError:
                return state


def _traced(newest: int, folders: Sequence[int]) -> int:
    """Return the revision up to which empty folders show a lost tail; a single one is left by any crashed commit."""
    behind = [number for number in folders if number > newest]
    return behind[-1] if len(behind) > 1 else -1


def _hinted(catalog: Catalog, good: CatalogState) -> int:
    """Return the revision that the hint names, -1 when it is of another catalog or cannot be read."""
    hinted = catalog.chain.hinted()
    is_ours = hinted is not None and (good.revision < 0 or hinted.catalog_id == good.catalog_id.bytes)
    return hinted.revision if hinted is not None and is_ours else -1


def _folders(catalog: Catalog) -> list[int]:
    """Return the revisions that have a folder, going up."""
    objects = catalog.objects
    revisions = (parse_revision(name) for name in objects.store.folders(objects.prefix))
    return sorted(number for number in revisions if number is not None)


def _broken_checkpoints(catalog: Catalog, keys: list[str]) -> list[str]:
    broken = []
    for key in keys:
        try:
            message = decode(catalog.objects.store.get(key), key)
            check_full(message, key)
            state = EMPTY.advanced(message, message.previous_digest, key)
            for path in state.files:
                read_file_entry(path, state.files.encoded(path), key)
        except NotFoundError:
            continue  # pruned since it was listed
        except (CorruptionError, NotApplicableError):
            broken.append(key)
    return broken


class _Names:
    """Finds the transactions behind a state by their names, which are derived from each other and not from contents."""

    def __init__(self, catalog: Catalog, good: CatalogState) -> None:
        self._objects = catalog.objects
        self._good = good
        self._revision, self._uuid = good.revision, good.uuid.bytes

    def readable(self, revision: int) -> Transaction | None:
        """Return the transaction of a revision if it is whole and of this catalog; asked for in rising order."""
        for item in self._objects.at(revision):
            where = self._objects.store.locate(item.key)
            try:
                message = check_delta(decode(self._objects.store.get(item.key), where), where)
            except CustodyError:
                continue
            ours = message.catalog_id == self._good.catalog_id.bytes or self._good.revision < 0
            if not item.is_checkpoint and message.revision == revision and ours and self._is_named(item):
                return message
        return None

    def _is_named(self, item: CatalogObject) -> bool:
        if self._good.revision < 0 or self._good.naming == Transaction.RANDOM:
            return True
        while self._revision < item.revision:
            self._uuid = self._objects.next_uuid(self._good.catalog_id.bytes, self._revision, self._uuid)
            self._revision += 1
        return item.uuid.bytes == self._uuid


def _from_footers(catalog: Catalog, draft: Draft, good: CatalogState, removed: set[str]) -> list[AddFile]:
    """Return the event logs in the store that nothing readable knows; the lost revisions may have added them."""
    # Files that were ever added in the kept history are left out: they are live, or were removed on purpose.
    paths = set(good.files) | set(draft.state().files) | removed
    try:
        for transaction in catalog.chain.transactions(good.floor, good.revision) if good.revision >= 0 else ():
            paths |= {action.add_file.path for action in transaction.actions if action.HasField("add_file")}
    except CustodyError:
        pass  # older history is damaged too: what was removed in it may come back, which the note says
    ends = max((good.files[path].last_event_id + 1 for path in good.files), default=0)
    return [
        file
        for file in scan_logs(catalog.objects, leave_out=paths).files
        # Older ids belong to logs that the good state lists, or let go; what the lost revisions added anew lies behind
        # them.
        if file.first_event_id >= ends
    ]


def _removals(state: CatalogState, mark: AddMark) -> list[Action]:
    """Return what takes off the list what a mark says expired: its logs, and shards none of whose logs are left."""
    live_paths = {path for path in mark.paths if path in state.files}
    shards = [
        shard.name for shard in state.shards.values() if shard.log_paths and live_paths.issuperset(shard.log_paths)
    ]
    removed = [Action(remove_file=RemoveFile(path=path, reason=EXPIRED)) for path in sorted(live_paths)]
    return [*removed, *(Action(remove_shard=RemoveShard(name=name, reason=EXPIRED)) for name in sorted(shards))]


def _held(state: CatalogState, mark: AddMark) -> str:
    files = [state.files[path] for path in mark.paths if path in state.files]
    ids = ", ".join(f"{file.first_event_id} to {file.last_event_id}" for file in files)
    holds = ", ".join(sorted(state.holds))
    return f"the events {ids} had expired and would be given out again, because the hold {holds} may mean them"
