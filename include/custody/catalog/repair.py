"""Makes a catalog with unreadable revisions readable again, without hiding what was lost.

The last good state stays. Of the later transactions those that can be read are taken as far as they still apply; event
logs that lie in the store and that no readable transaction removed are taken from their footers. All objects from the
first unreadable revision on are copied aside, then one transaction with a note takes the place of the first, then the
others go: a crash in between loses nothing, the next repair goes on. An attestation of a later revision will then say,
rightly, that the history is not the attested one.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from custody.catalog.codec import decode
from custody.catalog.conflict import NotApplicableError
from custody.catalog.forgotten import Forgotten
from custody.catalog.log import Catalog
from custody.catalog.rebuild import replace_from, scan, shard_of
from custody.catalog.restoring import restored_to
from custody.catalog.state import EMPTY, CatalogState, Draft
from custody.catalog.transaction_pb2 import Action, AddFile, Note, Transaction
from custody.clock import Clock
from custody.errors import CorruptionError, CustodyError, FormatVersionError
from custody.format.names import parse_revision


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """What a repair would do."""

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
    good = _last_good(catalog)
    found = list(catalog.objects.list())
    newest = max((item.revision for item in found), default=-1)
    newest = max(newest, _traced(catalog, newest))
    broken = _broken_checkpoints(catalog, [item.key for item in found if item.is_checkpoint])
    if newest <= good.revision:
        return RepairPlan(good, newest, (), (), (), (), good.next_event_id, tuple(broken))
    draft, next_event_id, lost, skipped = Draft(good), good.next_event_id, [], []
    taken: list[Action] = []
    removed: set[str] = set()
    for revision in range(good.revision + 1, newest + 1):
        transaction = _readable(catalog, revision, good)
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
                taken.append(action)
            if action.HasField("remove_file"):
                removed.add(action.remove_file.path)
    copies = Forgotten(catalog.objects).read()
    again = restored_to(draft, copies.behind(good.revision, _let_go_by(taken)))
    known = _from_footers(catalog, draft, good, removed | again.expired)
    from_footers = [file for file in known if file.path not in leave_out]
    next_event_id = max([next_event_id, *(file.last_event_id + 1 for file in from_footers)])
    return RepairPlan(
        good,
        newest,
        tuple(lost),
        (*taken, *again.actions, *(Action(add_file=file) for file in from_footers)),
        tuple(file.path for file in from_footers),
        tuple(skipped),
        next_event_id,
        tuple(broken),
        restored=again.names,
        more=(*copies.unknown(lost), *again.more),
    )


def repair(
    catalog: Catalog, clock: Clock, containers: Sequence[str] = (), leave_out: Container[str] = ()
) -> tuple[RepairPlan, CatalogState]:
    """Do what `plan_repair` says; return the plan and the state after it.

    With the names of the containers, files that are taken from footers get their shards, as in `rebuild`.

    Durability: on return the repaired catalog survives power loss. A crash on the way leaves a catalog that the next
    repair mends; every object that is replaced was copied aside before.
    """
    plan = plan_repair(catalog, leave_out)
    objects = catalog.objects
    for key in plan.checkpoints:
        objects.store.move(key, f"{objects.home}transactions-damaged-{clock.now_ms():013d}/{key.rpartition('/')[2]}")
    fresh = Catalog(objects.store, objects.writer, objects.database, clock)
    fresh.copies = catalog.copies
    if plan.good.revision >= 0:
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
            fresh.copies.keep(plan.good, plan.actions)  # from now on they belong to another revision
        key, data = fresh.continuation(plan.good, [note, *plan.actions, *shards], plan.next_event_id)
        replace_from(objects, clock, first, key, data)
        for folder in _folders_behind(catalog, first):
            objects.store.drop_folder(folder)
    state = fresh.settle()
    if plan.is_needed:
        fresh.write_checkpoint()
    return plan, state


def _let_go_by(actions: Sequence[Action]) -> set[str]:
    """Return the tombstones and marks that actions take back, by id."""
    gone = {action.remove_tombstone.id.hex() for action in actions if action.HasField("remove_tombstone")}
    return gone | {action.remove_mark.id.hex() for action in actions if action.HasField("remove_mark")}


def _traced(catalog: Catalog, newest: int) -> int:
    """Return up to which revision there are traces of a lost tail: a hint, or several folders without a transaction."""
    hinted = catalog.chain.hinted()
    behind = _folders_behind(catalog, newest)
    last = parse_revision(behind[-1].rstrip("/").rpartition("/")[2]) if len(behind) > 1 else None
    return max(-1 if hinted is None else hinted.revision, -1 if last is None else last)


def _folders_behind(catalog: Catalog, revision: int) -> list[str]:
    objects = catalog.objects
    found = (parse_revision(name) for name in objects.store.folders(objects.prefix))
    return [objects.folder(number) for number in sorted(n for n in found if n is not None and n > revision)]


def _last_good(catalog: Catalog) -> CatalogState:
    """Return the newest state that checkpoints and transactions without a gap give."""
    state = catalog.chain.newest_checkpoint().state
    while True:
        try:
            return catalog.chain.follow(state)[0]
        except FormatVersionError:
            raise
        except CorruptionError:
            # One step at a time, up to the transaction that cannot be followed.
            try:
                state, _ = catalog.chain.follow(state, state.revision + 1)
            except CorruptionError:
                return state


def _broken_checkpoints(catalog: Catalog, keys: list[str]) -> list[str]:
    broken = []
    for key in keys:
        try:
            message = decode(catalog.objects.store.get(key), key)
            EMPTY.advanced(message, message.previous_digest)
        except (CorruptionError, NotApplicableError):
            broken.append(key)
    return broken


def _readable(catalog: Catalog, revision: int, good: CatalogState) -> Transaction | None:
    """Return a transaction of a revision that is whole and of this catalog, None when there is none."""
    for item in catalog.objects.at(revision):
        try:
            message = decode(catalog.objects.store.get(item.key), item.key)
        except CustodyError:
            continue
        ours = message.catalog_id == good.catalog_id.bytes or good.revision < 0
        if not item.is_checkpoint and message.revision == revision and ours:
            return message
    return None


def _from_footers(catalog: Catalog, draft: Draft, good: CatalogState, removed: set[str]) -> list[AddFile]:
    """Return the event logs in the store that nothing readable knows; the lost revisions may have added them."""
    known = set(good.files) | set(draft.state().files) | removed
    try:
        for transaction in catalog.chain.transactions(good.floor, good.revision) if good.revision >= 0 else ():
            known |= {action.add_file.path for action in transaction.actions if action.HasField("add_file")}
    except CustodyError:
        pass  # older history is damaged too: what was removed in it may come back, which the note says
    ends = max((good.files[path].last_event_id + 1 for path in good.files), default=0)
    return [file for file in scan(catalog.objects, hashes=True, leave_out=known).files if file.first_event_id >= ends]
