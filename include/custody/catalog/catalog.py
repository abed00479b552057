"""The catalog of one writer's database: a linear log of transactions, the states that they give, and checkpoints.

Each transaction carries the digest of its predecessor, and its key is derived from it: two processes that race for a
revision aim at one key, of which put-if-absent gives it to one. `Catalog` reads the log, follows it as it grows, and
appends to it; a reader of the newest state never waits for a writer.

Layout: docs/formats/catalog.md. Keys: `custody.catalog.keys`. Checks along the chain: `custody.catalog.chain`.
"""

from __future__ import annotations

import errno
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from custody.catalog.chain import CLOCK_TOLERANCE_MS, Chain, UncertainTimes
from custody.catalog.checkpoints import remove_checkpoint, write_checkpoint, write_newest_hint
from custody.catalog.codec import FEATURES_WRITTEN, decode, digest, encode
from custody.catalog.keys import CatalogObjects
from custody.catalog.second_copies import SecondCopyStore
from custody.catalog.state import (
    EMPTY,
    CatalogState,
    ClocksBehind,
    CommitConflictError,
    Conflict,
    Draft,
    FencedError,
    NotApplicableError,
    PrunedError,
    SealedError,
    features_of,
)
from custody.catalog.stripes import Stripes
from custody.catalog.transaction_pb2 import (
    Action,
    AddFile,
    AddHold,
    AddLoss,
    AddShard,
    AddTombstone,
    Note,
    Transaction,
)
from custody.catalog.wellformed import check_action, check_delta, have_ids_in_common
from custody.clock import Clock
from custody.config import Settings
from custody.errors import (
    ConfigurationError,
    ConflictError,
    CorruptionError,
    CustodyError,
    EarlierStateError,
    FormatVersionError,
    NotFoundError,
    StorageError,
)
from custody.format.names import parse_event_log
from custody.store import (
    ObjectInfo,
    ObjectStore,
    open_store,
    pause_between_tries,
    put_object,
    require_bucket,
    require_conditional_puts,
)
from custody.store.witness import EarlierState, Witness, Witnesses, WitnessLook
from custody.vfs import FileSystem

# Each lost race means that another writer committed, so the log moves on; the bound only ends a hopeless try.
_COMMIT_ATTEMPTS = 100
# Keeps the log that opening has to follow small beside the checkpoint; one below 1 MiB is not worth a checkpoint.
_LOG_FRACTION = 0.5
_LOG_BYTES_MIN = 1 << 20
_Entry = TypeVar("_Entry")


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference between two revisions: what stands in the later one alone, and what in the former one alone."""

    added: Mapping[str, AddFile]
    removed: Mapping[str, AddFile]
    shards_added: Mapping[str, AddShard]
    shards_removed: Mapping[str, AddShard]
    tombstones_added: Mapping[str, AddTombstone]
    tombstones_removed: Mapping[str, AddTombstone]
    holds_added: Mapping[str, AddHold]
    holds_removed: Mapping[str, AddHold]
    losses_added: Mapping[str, AddLoss]
    losses_removed: Mapping[str, AddLoss]


class Catalog:
    """Reads and extends one catalog; cheap to make, keeps the state that it read last.

    Args:
        store: where the catalog lies.
        writer: whose it is; one linear timeline for each writer and database.
        database: of what.
        clock: for commit times.
        stripes: where files lie that are not in the store.
    """

    def __init__(
        self, store: ObjectStore, writer: str, database: str, clock: Clock, stripes: Stripes | None = None
    ) -> None:
        self.objects = CatalogObjects(store, writer, database, stripes)
        self.chain = Chain(self.objects)
        self.notices: list[str] = []
        """What was passed over while the catalog was read, such as a damaged checkpoint."""
        self.epoch: int | None = None
        """The epoch that this process began for the writer; a greater one in the catalog stops it."""
        self.copies: SecondCopyStore | None = None
        """Where tombstones and marks are kept a second time; None for a catalog that hides nothing."""
        self.witnesses: Witnesses | None = None
        """Which states of the catalog were seen; None where nobody keeps that."""
        self.may_go_back = False
        """Whether an earlier state than one that was seen may be written to: for repairs."""
        self._store = store
        self._clock = clock
        # Threads share a catalog. Each works with what it took from here once, and no other thread changes that.
        self._known: CatalogState | None = None
        """The newest state that was read; None as long as nothing was."""
        self._settled_revision = -1
        """Up to this revision every transaction is known to be durable."""
        self._ancestors: set[tuple[int, str]] = set()
        """Revisions and digests of witnesses from which the states that are read go on."""
        self._checkpointed = (-1, 0)
        """Revision and size in bytes of the newest checkpoint that this object knows of."""
        self._log_bytes = 0
        """Size of the transactions that were read or written since that checkpoint."""

    def load(self) -> CatalogState:
        """Return the newest state; the work is proportional to what was committed since the last call.

        The first call looks for revisions behind the last one too; a later call looks for the next one only.

        Raises:
            CorruptionError: an object is damaged, missing, or does not follow from its predecessor.
            FormatVersionError: a newer custody wrote something that this one does not know.
        """
        # Only the first load looks for a lost tail, which needs a listing; names of later revisions are derived, so a
        # refresh lists nothing.
        known = self._known
        if known is not None:
            return self._refresh(known)
        opened = self.chain.open()
        self.notices += opened.start.passed_over
        self._checkpointed = (opened.start.state.revision, opened.start.size_bytes)
        self._log_bytes += opened.log_bytes
        self._known = opened.state if opened.state.revision >= 0 else None
        self._remember(opened.state)
        return opened.state

    def witness_of(self, state: CatalogState) -> Witness:
        """Return what a witness says of a state of this catalog."""
        objects = self.objects
        if state.revision < 0:
            return Witness(writer=objects.writer, database=objects.database)
        return Witness(
            writer=objects.writer,
            database=objects.database,
            accepted=0 if self.witnesses is None else self.witnesses.accepted,
            catalog=state.catalog_id.hex,
            revision=state.revision,
            digest=state.digest.hex(),
            next_event_id=state.next_event_id,
        )

    def earlier_state(self, state: CatalogState, look: WitnessLook | None = None) -> EarlierState | None:
        """Return how a state is earlier than one that was seen of this catalog, or none that follows; None if neither.

        A `look` at the witnesses spares another one.

        Raises:
            StorageError: the store refuses.
        """
        if self.witnesses is None:
            return None
        for where, seen in (look or self.witnesses.look()).newest:
            if seen.revision >= 0 and not self._goes_on_from(state, seen):
                return EarlierState(
                    self.objects.writer,
                    f"the catalog {self.objects}",
                    f"revision {seen.revision} with the digest {seen.digest[:16]}, which {where} has seen",
                    f"revision {state.revision} with the digest {state.digest.hex()[:16]}"
                    if state.revision >= 0
                    else "no catalog",
                    seen.next_event_id,
                )
        return None

    def require_newest(self, state: CatalogState) -> None:
        """Raise EarlierStateError unless a state goes on from all that were seen of this catalog."""
        earlier = None if self.may_go_back else self.earlier_state(state)
        if earlier is not None:
            raise EarlierStateError(f"{earlier}. Nothing is written.")

    def accept(self, state: CatalogState) -> None:
        """Let a state count as the newest one, whatever was seen before: for repairs, and where a person says so.

        Durability: on return a witness of it survives power loss.

        Raises:
            StorageError: no disk takes one.
        """
        if self.witnesses is None:
            return
        if self.earlier_state(state) is None:
            self.witnesses.note(self.witness_of(state))
        else:
            self.witnesses.accept(self.witness_of(state))

    def _goes_on_from(self, state: CatalogState, seen: Witness) -> bool:
        if state.revision < seen.revision or state.catalog_id.hex != seen.catalog:
            return False
        if state.revision == seen.revision:
            return state.digest.hex() == seen.digest
        place = seen.revision, seen.digest
        # A process that dies between a commit and its witness leaves an earlier one: then one transaction is read.
        if place not in self._ancestors and seen.revision >= state.floor:
            try:
                found = self.chain.digests(seen.revision)
            except NotFoundError:
                found = set()  # pruned in this moment
            # Where history is damaged, nobody can tell: that is named by `verify`.
            if found and seen.digest not in found:
                return False
            self._ancestors.add(place)
        return True

    def timeline(self, start: int | None = None, stop: int | None = None) -> Iterator[Transaction]:
        """Yield the transactions that are kept, oldest first, each checked against its predecessor.

        Raises:
            PrunedError: `start` is not kept any more, or what comes next was pruned while this was read.
            CorruptionError: a transaction is damaged or missing.
        """
        state = self.load()
        first = state.floor if start is None else self._kept(start, state)
        last = state.revision if stop is None else self._kept(stop, state)
        with self._beside_prunes(first):
            yield from self.chain.transactions(first, last)

    def at(self, revision: int, *, check_files: bool = False) -> CatalogState:
        """Return the state at a revision; with `check_files` only if all its files exist.

        Raises:
            PrunedError: the revision is not kept any more; the error says which is the earliest.
            NotFoundError: there is no such revision yet.
            CorruptionError: it cannot be read, or one of its files is missing.
        """
        newest = self.load()
        state = newest
        if revision != newest.revision:
            kept_revision = self._kept(revision, newest)
            with self._beside_prunes(revision):
                state = self.chain.at(kept_revision)
        for path in state.files if check_files else ():
            if not self.objects.files.exists(path):
                where = self.objects.files.locate(path)
                raise CorruptionError(f"{where}: expected a file of revision {revision}, found none.")
        return state

    def digest_of(self, path: str) -> bytes | None:
        """Return the digest of a live file, or of the one beside it, as of the last load; None for other files."""
        listed = self.objects.files.parquet_of(path)
        file = (self._known or EMPTY).files.get(listed)
        if file is None:
            return None
        return file.sha256 if listed == path else file.toc_sha256

    def revision_at(self, time_ms: int) -> int:
        """Return the last revision that was committed at or before a time; reads a logarithmic number of them.

        Raises:
            NotFoundError: the catalog begins later.
            PrunedError: what is kept of it does.
        """
        newest = self.load()
        with self._beside_prunes(newest.floor):
            revision = self.chain.revision_at(newest, time_ms)
        if revision is not None:
            return revision
        if newest.floor:
            earliest = f"that time was pruned, the earliest revision is {newest.floor}"
            raise PrunedError(f"{self.objects}: {earliest}.", newest.floor)
        raise NotFoundError(f"{self.objects}: nothing was committed at that time yet.")

    def uncertain_times(self, time_ms: int) -> UncertainTimes | None:
        """Return the revisions of which a time does not tell whether they were committed by then; None as a rule.

        They are stamped later than that, and a later clock stood before their stamps: one of the two clocks was wrong.
        """
        return self.chain.uncertain_times(self.load(), time_ms, self._clock.now_ms())

    def uncertain_now(self) -> UncertainTimes | None:
        """Return the newest of such revisions, whatever time is asked for; None as a rule."""
        newest = self.load()
        return self.chain.newest_uncertain(newest, self._clock.now_ms())

    def difference(self, former: int, later: int) -> Difference:
        """Return what differs between two revisions, either of which may be the earlier one; raises as `at` does."""
        old, new = self.at(former), self.at(later)
        return Difference(
            *_apart(old.files, new.files),
            *_apart(old.shards, new.shards),
            *_apart(old.tombstones, new.tombstones),
            *_apart(old.holds, new.holds),
            *_apart(old.losses, new.losses),
        )

    def commit(
        self,
        actions: Sequence[Action],
        *,
        next_event_id: int = 0,
        attempt: UUID | None = None,
        check: Callable[[CatalogState], None] = lambda _: None,
        waiting_since_ms: int = 0,
    ) -> CatalogState:
        """Append one transaction and return the state after it; `attempt` is its id where it was chosen before.

        `waiting_since_ms` says when the oldest journal of what becomes live was begun, 0 where nobody knows.
        `check` is given each state that the transaction would follow, and raises what forbids it.

        Actions that still apply after another writer's commit are tried again on top of it.
        Durability: on return the transaction and all before it survive power loss; on StorageError it is unknown
        whether it was committed, and the next load tells.

        Raises:
            InvalidInputError: an action makes no sense: a path is no safe key, a tombstone means everything.
            CommitConflictError: the actions contradict the state, or others won too often: nothing was written.
            SealedError, FencedError: this writer was retired, or taken over by another process.
            FormatVersionError: a newer custody writes here, with features that this one does not know.
            EarlierStateError: a later state was seen of this catalog.
        """
        _check_actions(actions)
        # One id for all tries of this commit: it tells this attempt's object from another's when the outcome of a put
        # is unknown.
        attempt_id = (attempt or uuid.uuid4()).bytes
        # Each turn starts from the newest durable state: actions that still apply there are tried again on top of it.
        for number in range(_COMMIT_ATTEMPTS):
            state = self.settle()
            self._check_writable(state)
            self.require_newest(state)
            try:
                check(state)
                transaction = self._successor(state, actions, next_event_id, attempt_id)
                transaction.waiting_since_ms = waiting_since_ms
                # The name follows from the predecessor. Whoever commits next aims at the same key, and one of them
                # gets it.
                key = self.objects.key(transaction.revision, transaction.uuid)
                # Checked as a reader checks it: nothing is written that could not be read back.
                data = encode(check_delta(transaction, self._store.locate(key), state.commit_time_ms))
                after = self._after(state, transaction, data)
                self._check_ids(state, after, actions)
            except CustodyError:
                # An earlier try may have written copies for a transaction that will never be; without the undo a repair
                # would restore them. In the first try none is written yet.
                if number and self.copies is not None:
                    self.copies.undo(actions)
                raise
            if self.copies is not None:
                # Before the transaction: a crash in between leaves a copy too many, never a tombstone without one.
                self.copies.keep(state, actions)
            if self._publish(state, key, data):
                # A prune may have freed this name while the put was under way: then the transaction lies where no
                # reader looks.
                if self._was_overtaken(state, after, key):
                    continue
                # The put was synced, and all transactions before it were settled: the state is durable as a whole.
                self._known, self._settled_revision = after, after.revision
                self._log_bytes += len(data)
                if self.witnesses is not None and self.earlier_state(state) is None:
                    self.witnesses.try_to_note(self.witness_of(after))
                if self.copies is not None:
                    # After the transaction: a crash before leaves a copy of what was taken back, which garbage
                    # collection removes.
                    self.copies.let_go(state, actions)
                return after
            # The loser has synced the winner's object too, so it is as ready for the next revision as the winner.
            self._settled_revision = transaction.revision
            if number:
                pause_between_tries(number)
        raise CommitConflictError(
            f"{self.objects}: other writers won {_COMMIT_ATTEMPTS} times. Try again.", state.revision, None
        )

    def settle(self) -> CatalogState:
        """Return the newest state, all of it durable, also what a process committed that died before it synced.

        Durability: on return every transaction up to the state survives power loss.
        """
        while True:
            state = self.load()
            if state.revision <= self._settled_revision:
                return state
            try:
                # One sync covers all: every process settles its predecessor before it commits, so only the newest may
                # be unsynced.
                self._store.settle(self.objects.key(state.revision, state.uuid))
            except StorageError:
                if self.chain.is_in_place(state) or self.load().revision == state.revision:
                    raise
                continue  # it was pruned in this moment
            self._settled_revision = state.revision
            return state

    def continuation(self, state: CatalogState, actions: Sequence[Action], next_event_id: int) -> tuple[str, bytes]:
        """Return key and bytes of a transaction that would follow a state; nothing is written. For repairs."""
        transaction = self._successor(state, actions, next_event_id, uuid.uuid4().bytes)
        self._after(state, transaction, data := encode(transaction))
        return self.objects.key(transaction.revision, transaction.uuid), data

    def begin_epoch(self) -> int:
        """Take over this writer: commit a transaction of a new epoch and return it; older processes are refused.

        Raises:
            SealedError: the writer was retired.
        """
        former = self.epoch
        for _ in range(_COMMIT_ATTEMPTS):
            self.epoch = self.load().epoch + 1
            note = Action(note=Note(kind=Note.FENCED, text=f"epoch {self.epoch}"))
            try:
                # For each state that the transaction would follow: a process that loaded the same epoch may have begun
                # this one meanwhile, and two that share an epoch would not stop each other.
                self.commit([note], check=partial(self._require_not_begun, self.epoch))
            except FencedError:
                continue
            except BaseException:
                # Not begun, or unknown whether it was: this process stays as fenced as it was before.
                self.epoch = former
                raise
            return self.epoch
        self.epoch = former
        raise CommitConflictError(f"{self.objects}: others took over too often.", (self._known or EMPTY).revision, None)

    def checkpoint(self) -> Path:
        """Write the whole newest state beside its transaction and verify it; return where it lies.

        Durability: on return the checkpoint survives power loss. A second call changes nothing.
        """
        return Path(self._store.locate(self.write_checkpoint().key))

    def write_checkpoint(self, revision: int | None = None) -> ObjectInfo:
        """Write a checkpoint as `checkpoint` does, of the newest or of any kept revision; return its key and size.

        An earlier one makes time travel around it quick, and is where a pruning can begin the history.

        Raises:
            PrunedError, NotFoundError: the revision is not kept any more, or there is none yet.
            CorruptionError: it cannot be read, or what was read back is not what was written.
        """
        state = self._checkpointable(revision)
        while True:
            # Of the newest state only: a copy of what was taken back since would be restored by a repair.
            if self.copies is not None and revision is None:
                # An older release commits without second copies; each checkpoint makes up for what it left out.
                self.copies.keep(state, ())
                self.copies.complete(state)
            # Looked at before and after: a checkpoint may also replace a lost transaction, and then its absence proves
            # nothing about a pruning.
            was_in_place = self.chain.is_in_place(state)
            try:
                checkpoint = write_checkpoint(self.objects, state)
            except (StorageError, NotFoundError):
                if not was_in_place or self.chain.is_in_place(state):
                    raise
            else:
                if self.chain.is_in_place(state) or not was_in_place:
                    break
            # Others pruned or repaired this revision away while its checkpoint was written. The checkpoint has to go:
            # a reader that lists the catalog would begin at it.
            remove_checkpoint(self.objects, state)
            self._forget()
            write_newest_hint(self.objects, self.chain)
            state = self._checkpointable(revision)
        if revision is None:
            self._checkpointed = (state.revision, checkpoint.size_bytes)
            self._log_bytes = 0
        return checkpoint

    def _checkpointable(self, revision: int | None) -> CatalogState:
        newest = self.load()
        if newest.revision < 0:
            raise ConflictError(f"{self.objects}: the catalog is empty, there is nothing to checkpoint.")
        return newest if revision is None else self.at(revision)

    def checkpoint_age(self) -> int:
        """Return how many transactions lie behind the newest checkpoint."""
        revision = self.load().revision
        hinted = self.chain.hinted()
        if hinted is not None:
            key = self.objects.key(hinted.revision, hinted.uuid, checkpoint=True)
            if hinted.revision <= revision and self._store.head(key) is not None:
                return revision - hinted.revision
        return revision - max((item.revision for item in self.objects.checkpoints()), default=-1)

    def checkpoint_due(self, every: int) -> bool:
        """Whether a checkpoint is due: after `every` transactions, or when these weigh half as much as the state."""
        heavy = self._log_bytes > max(_LOG_BYTES_MIN, _LOG_FRACTION * self._checkpointed[1])
        return self.checkpoint_age() >= every or heavy

    def _refresh(self, before: CatalogState) -> CatalogState:
        try:
            state, size = self.chain.follow(before)
        except CorruptionError:
            # Behind a pruned revision there may be an object of a process that did not know of the pruning.
            if self.chain.is_in_place(before):
                raise
            state, size = before, 0
        self._log_bytes += size
        if before.revision >= 0 and not self.chain.is_in_place(before):
            # It was pruned, or it is lost and a checkpoint stands in for it. What follows it may be pruned too, or be
            # of a process that did not know: only a checkpoint tells what is the end now.
            self._forget()
            return self.load()
        self._known = state
        if state is not before:
            self._remember(state)
        return state

    def _remember(self, state: CatalogState) -> None:
        """Let this process know a state that it read, also when its store is away later."""
        if self.witnesses is not None and state.revision >= 0 and not self.may_go_back:
            self.witnesses.remember(self.witness_of(state))

    def _forget(self) -> None:
        """Drop the state that was read; the next load begins at a checkpoint again."""
        self._known, self._settled_revision = None, -1
        self._ancestors = set()

    @contextmanager
    def _beside_prunes(self, revision: int) -> Iterator[None]:
        """Turn an error about a revision that others pruned meanwhile into PrunedError."""
        try:
            yield
        except (CorruptionError, StorageError, NotFoundError) as error:
            self._forget()
            floor = self.load().floor
            # At or above the floor nothing was pruned on purpose: there the error is real damage.
            if revision >= floor or isinstance(error, PrunedError):
                raise
            raise PrunedError(
                f"{self.objects}: revision {revision} was pruned, the earliest is {floor}.", floor
            ) from error

    def _kept(self, revision: int, newest: CatalogState) -> int:
        if revision < newest.floor:
            raise PrunedError(
                f"{self.objects}: revision {revision} was pruned, the earliest is {newest.floor}.", newest.floor
            )
        if revision > newest.revision:
            raise NotFoundError(f"{self.objects}: there is no revision {revision}, the newest is {newest.revision}.")
        return revision

    def _successor(
        self, state: CatalogState, actions: Sequence[Action], next_event_id: int, attempt: bytes
    ) -> Transaction:
        first = state.revision < 0
        # The kind of names is chosen at revision 0 for good: readers derive the next key from it.
        random = not self._store.can_put_if_absent if first else state.naming == Transaction.RANDOM
        catalog_id = uuid.uuid4().bytes if first else state.catalog_id.bytes
        now_ms = self._clock.now_ms()
        # Rises even when the clock was set back: searches by time rely on the order.
        commit_time_ms = max(now_ms, state.commit_time_ms + 1)
        behind = state.behind
        if commit_time_ms - now_ms > CLOCK_TOLERANCE_MS:
            is_going_on = behind.last == state.revision > 0
            run = behind if is_going_on else ClocksBehind(state.revision + 1, 0, now_ms)
            behind = ClocksBehind(run.first, state.revision + 1, max(min(run.clock_ms, now_ms), 0))
        name = uuid.uuid4().bytes if random else self.objects.next_uuid(catalog_id, state.revision, state.uuid.bytes)
        return Transaction(
            revision=state.revision + 1,
            uuid=name,
            previous_uuid=b"" if first else state.uuid.bytes,
            previous_digest=state.digest,
            commit_time_ms=commit_time_ms,
            behind_first=behind.first,
            behind_last=behind.last,
            behind_clock_ms=behind.clock_ms,
            encoding=Transaction.DELTA,
            catalog_id=catalog_id,
            attempt_id=attempt,
            # Never goes down, so that no event id is given out twice.
            next_event_id=max(state.next_event_id, next_event_id),
            naming=Transaction.RANDOM if random else Transaction.DERIVED,
            epoch=self.epoch or 0,
            reader_features=sorted(features_of(actions) - state.reader_features),
            actions=actions,
        )

    def _after(self, state: CatalogState, transaction: Transaction, data: bytes) -> CatalogState:
        draft = Draft(state)
        try:
            draft.follow(transaction, digest(data))
        except NotApplicableError as error:
            raise self._conflict(state, error.conflict) from error
        return draft.state()

    def _check_writable(self, state: CatalogState) -> None:
        # A newer custody may keep rules here that this one does not know, and would break by writing.
        unknown = sorted(state.writer_features - FEATURES_WRITTEN)
        if unknown:
            raise FormatVersionError(
                f"{self.objects}: needs the writer features {', '.join(unknown)}, which this custody does not know."
            )
        if state.seal is not None:
            raise SealedError(f"{self.objects}: was sealed at revision {state.revision}: {state.seal.reason}.")
        if self.epoch is not None and state.epoch > self.epoch:
            raise FencedError(
                f"{self.objects}: epoch {state.epoch} was started by another process, this one has {self.epoch}. "
                "Stop it."
            )
        if state is not EMPTY and state.naming == Transaction.DERIVED and not self._store.can_put_if_absent:
            raise ConfigurationError(
                f"{self.objects}: needs put-if-absent, which catalog.put_if_absent says that this store lacks."
            )

    def _require_not_begun(self, epoch: int, state: CatalogState) -> None:
        if state.epoch >= epoch:
            raise FencedError(f"{self.objects}: epoch {epoch} was begun by another process. Begin a later one.")

    def _check_ids(self, state: CatalogState, after: CatalogState, actions: Sequence[Action]) -> None:
        """Raise CommitConflictError when an event log would be live beside another one with the same events."""
        for file in (action.add_file for action in actions if action.HasField("add_file")):
            if not file.rows or parse_event_log(file.path) is None or file.path not in after.files:
                continue
            # Of two live logs with the same events readers would give out both.
            for other in after.files.overlapping(file.first_event_id, file.last_event_id):
                if have_ids_in_common(file, other):
                    conflict = Conflict("add file", file.path, f"holds event ids that {other.path} holds")
                    raise self._conflict(state, conflict)

    def _conflict(self, state: CatalogState, conflict: Conflict) -> CommitConflictError:
        message = f"{self.objects} revision {state.revision}: {conflict}"
        return CommitConflictError(message, state.revision, conflict)

    def _publish(self, state: CatalogState, key: str, data: bytes) -> bool:
        """Put a transaction in its place; False when the place is taken, or its folder was dropped meanwhile."""
        try:
            return put_object(self._store, key, data)
        except StorageError as error:
            # Only a local disk has folders that another process may drop between making them and using them.
            if self._store.is_remote or error.errno != errno.ENOENT:
                raise
            if state.revision >= 0 and not self.chain.is_in_place(state):
                self._forget()
                raise self._pruned_since(key, state.revision + 1) from error
            return False  # somebody dropped the folder while it was still empty

    def _pruned_since(self, key: str, revision: int) -> StorageError:
        return StorageError(
            f"{self._store.locate(key)}: is gone: others pruned revision {revision} meanwhile, and nothing tells "
            "whether it was this one. Look whether its changes are live, then try again."
        )

    def _was_overtaken(self, state: CatalogState, after: CatalogState, key: str) -> bool:
        """Remove a transaction that took the place of a pruned one, where no reader looks; return whether it did.

        Revisions are deleted oldest first. So while the predecessor is there, the place was really free. When it is
        gone, the place may have been free too: then a successor carries the transaction's digest, or the transaction
        lies on the way to the newest one.

        Raises:
            StorageError: the transaction is gone again, and nothing tells whether it was pruned or never in place.
        """
        if self.chain.is_in_place(state) or self._is_first(after):
            return False
        following = self._follower(after)
        if following is None:
            is_there = self.chain.is_in_place(after)
            fresh = self.chain.open().state
            if fresh.floor <= after.revision <= fresh.revision and self._is_on_the_way(after, fresh):
                return False
            if not is_there:
                self._forget()
                raise self._pruned_since(key, after.revision)
        elif following == after.digest:
            return False
        # It is safe to delete: the chain does not lead here, so no reader can have taken it for a revision.
        self._store.delete(key)
        self._store.drop_folder(self.objects.folder(after.revision))
        self._forget()
        return True

    def _is_first(self, after: CatalogState) -> bool:
        """Whether a transaction is revision 0 of a catalog of which nothing else is there."""
        return after.revision == 0 and next(iter(self.objects.list(after=0)), None) is None

    def _follower(self, after: CatalogState) -> bytes | None:
        """Return the digest that the transaction behind a place has of its predecessor; None when there is none."""
        following = self.chain.next_key(after)
        try:
            return None if following is None else decode(self._store.get(following), following).previous_digest
        except (NotFoundError, CorruptionError, FormatVersionError):
            return None

    def _is_on_the_way(self, after: CatalogState, fresh: CatalogState) -> bool:
        return after.digest == (fresh if fresh.revision == after.revision else self.chain.at(after.revision)).digest


def store_of(settings: Settings, fs: FileSystem) -> ObjectStore:
    """Return the store of a repository, which knows the writers that lie in stores of their own.

    Raises:
        ConfigurationError: its URL is of no known kind, the environment does not fit it, or there is no such bucket.
    """
    location = settings.repository.store

    def open_at(location: str) -> ObjectStore:
        return open_store(
            location,
            fs,
            settings.root,
            can_put_if_absent=settings.catalog.put_if_absent,
            multipart_bytes=settings.repository.multipart_bytes,
        )

    store = open_at(location)
    if not settings.is_store_remote:
        return store
    # Imported here: a repository in a folder has none.
    from custody.store.placed_writers import PlacedWriters

    placed = PlacedWriters(store, location, open_at)
    require_bucket(placed, location)
    return placed


def writable_store_of(settings: Settings, fs: FileSystem) -> ObjectStore:
    """Return the store of a repository for what appends events or publishes logs.

    Raises:
        ConfigurationError: as `store_of`, or the store writes over names that are taken.
    """
    store = store_of(settings, fs)
    if settings.is_store_remote:
        require_conditional_puts(store, settings.repository.store)
    return store


def open_catalog(settings: Settings, writer: str, fs: FileSystem, clock: Clock) -> Catalog:
    """Return the catalog of a writer's event logs, with second copies of tombstones and marks; raises as `store_of`."""
    store, database = store_of(settings, fs), settings.repository.database
    if settings.is_store_remote and settings.stripes:
        raise ConfigurationError(
            f"store {settings.repository.store!r}: expected no repository.stripes beside an object store. Remove them."
        )
    stripes = Stripes(fs, store, writer, database, settings.stripes, settings.repository.stripes_retired)
    catalog = Catalog(store, writer, database, clock, stripes)
    catalog.copies = SecondCopyStore(catalog.objects)
    catalog.witnesses = Witnesses(
        fs,
        settings.witnesses,
        settings.containers,
        writer,
        database,
        store=None if settings.is_store_remote else settings.store,
    )
    read_by_copies(catalog, settings, fs)
    return catalog


def read_by_copies(catalog: Catalog, settings: Settings, fs: FileSystem) -> None:
    """Let a catalog's files be read and written by local copies, where the store is an object store."""
    if settings.is_store_remote:
        # Imported here: a repository in a folder has no copies.
        from custody.store.local_copies import LocalCopies

        files, store = catalog.objects.files, catalog.objects.store
        files.copies = LocalCopies(fs, store, settings.store, settings.repository.work_copies_bytes_max)
        files.digest_of = catalog.digest_of


def _apart(old: Mapping[str, _Entry], new: Mapping[str, _Entry]) -> tuple[Mapping[str, _Entry], Mapping[str, _Entry]]:
    """Return what only the new entries have, and what only the old ones have."""
    added = {name: new[name] for name in new if name not in old}
    return added, {name: old[name] for name in old if name not in new}


def _check_actions(actions: Sequence[Action]) -> None:
    """Raise InvalidInputError for an action that makes no sense, such as a path that is no safe key."""
    for action in actions:
        check_action(action)
