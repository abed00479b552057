"""The chain of transactions: from the newest checkpoint that can be read, transaction by transaction, each checked.

`Chain` holds no state between calls. Whatever a hint, a listing or a file name says is a claim; a transaction counts
when it carries the digest of its predecessor.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Lock
from uuid import UUID

from custody.catalog.codec import decode, decode_digested, digest
from custody.catalog.keys import CatalogObject, CatalogObjects, uuid_text
from custody.catalog.state import EMPTY, CatalogState, Draft, ForkError, NotApplicableError, clocks_behind
from custody.catalog.transaction_pb2 import Transaction
from custody.catalog.wellformed import check_delta, check_full, check_hint
from custody.errors import CorruptionError, CustodyError, FormatVersionError, NotFoundError, StorageError
from custody.store import carried

# Bounds how many objects one turn holds in memory.
_WIDTH_MAX = 64
# Each try that fails found the catalog changed; damage, which changes nothing, is reported at the second one.
_OPEN_ATTEMPTS = 5
# Of each catalog that a process looks at; a transaction with more bytes is rare, and is digested each time.
_IN_PLACE_BYTES_MAX = 1 << 18
# One writer's newest and those around it. Where many writers are looked at, their catalogs keep their own states.
_CHECKPOINTS_KEPT = 4
# As encoded; decoded a state takes a few times as much.
_KEPT_BYTES_MAX = 32 << 20


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CLOCK_TOLERANCE_MS = 1000
"""By so much the clocks of machines may differ that commit here."""


@dataclass(frozen=True, slots=True)
class UncertainTimes:
    """Revisions of which nobody knows when they were committed; times in ms since the epoch."""

    first: int
    last: int
    until_ms: int
    """When the last of them was committed by its own stamp."""
    clock_ms: int
    """What a clock said after that."""

    def __str__(self) -> str:
        revisions = f"revision {self.last}" if self.first == self.last else f"revisions {self.first} to {self.last}"
        return (
            f"a time up to {_time_text(self.until_ms)} does not tell whether {revisions} had been committed by then: "
            f"stamped up to that time, and a clock stood at {_time_text(self.clock_ms)} after that, so that one of the "
            "clocks was wrong. Name a revision instead of a time; custody catalog log lists them"
        )


def _time_text(time_ms: int) -> str:
    try:
        moment = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return f"{time_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """The state that a checkpoint gives, and the newer checkpoints that could not be read."""

    state: CatalogState
    size_bytes: int = 0
    passed_over: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class OpenedChain:
    """The newest state, and the checkpoint from which it was reached."""

    state: CatalogState
    start: Checkpointed
    log_bytes: int
    """Size of the transactions behind the checkpoint."""


class Chain:
    """Follows the transactions of one catalog."""

    def __init__(self, objects: CatalogObjects) -> None:
        self.objects = objects
        self._store = objects.store
        self._in_place: tuple[bytes, bytes] | None = None
        """Digest and bytes of the transaction that was found in its place last."""

    def open(self) -> OpenedChain:
        """Return the newest state, from the checkpoint that the hint names, or from the newest one of a listing.

        A hint may be old, of another catalog, or left by a process that was stopped while others pruned. It only
        spares the listing: when it does not lead to the end of the chain, the listing decides.

        Raises:
            CorruptionError: an object is damaged, missing, or does not follow from its predecessor.
            FormatVersionError: a newer custody wrote something that this one does not know.
        """
        seen: object = None
        for _ in range(_OPEN_ATTEMPTS):
            try:
                return self._by_hint() or self._followed(self.newest_checkpoint())
            except CorruptionError:
                # Others may have pruned the listed objects while they were read; then there is a newer checkpoint.
                now = [item.key for item in self.objects.checkpoints()], self.hinted()
                if now == seen:
                    raise
                seen = now
        # The last try raises whatever it finds, as others change the catalog faster than it can be read.
        return self._followed(self.newest_checkpoint())

    def newest_checkpoint(self, up_to: int | None = None) -> Checkpointed:
        """Return the state of the newest checkpoint of a listing that can be read, the empty state without any.

        Raises:
            ForkError: it stands beside another transaction than its own.
        """
        passed_over: list[str] = []
        for item in self.objects.checkpoints(up_to=up_to):
            loaded = self.checkpoint(item, passed_over)
            if loaded is not None:
                return Checkpointed(loaded.state, loaded.size_bytes, tuple(passed_over))
        return Checkpointed(EMPTY, 0, tuple(passed_over))

    def checkpoint(
        self, item: CatalogObject, passed_over: list[str], fetched: Sequence[bytes] = ()
    ) -> Checkpointed | None:
        """Return what a checkpoint says; None, with a notice, when it cannot be read.

        `fetched` is the checkpoint and the transaction beside it, as far as they were read a moment ago.

        Raises:
            ForkError: it stands beside another transaction than its own.
        """
        where = self._store.locate(item.key)
        try:
            data = fetched[0] if fetched else self._store.get(item.key)
            state = _CHECKPOINTS.state(data, where)
            # A whole checkpoint under another's name, such as a file copied by hand, is as useless as a damaged one.
            if state.revision != item.revision or state.uuid != item.uuid:
                raise CorruptionError(f"{where}: expected the checkpoint of its name, got revision {state.revision}.")
        except NotFoundError:
            return None
        except (CorruptionError, FormatVersionError) as error:
            passed_over.append(str(error))  # an older checkpoint and the transactions since give the same state
            return None
        except NotApplicableError as error:
            passed_over.append(f"{where}: {error}")
            return None
        # A checkpoint that is whole may still belong to a fork: compare it with the transaction beside it.
        self._check_own(state, fetched[1] if len(fetched) > 1 else None)
        return Checkpointed(state, len(data), tuple(passed_over))

    def hinted(self) -> Transaction | None:
        """Return what the hint says of the newest checkpoint, None when it is lost or damaged."""
        try:
            where = self._store.locate(self.objects.hint)
            return check_hint(decode(self._store.get(self.objects.hint), where), where)
        except (NotFoundError, CorruptionError, FormatVersionError):
            return None

    def is_in_place(self, state: CatalogState) -> bool:
        """Whether the transaction of a state is still in its place, the very one.

        Only its bytes tell. Transactions are deleted oldest first, and the name of a pruned one is free for a process
        that takes its predecessor for the newest; and a checkpoint may be written late.
        """
        if state.revision < 0:
            return False
        try:
            data = self._store.get(self.objects.key(state.revision, state.uuid))
        except NotFoundError:
            return False
        # Every look at a catalog asks, nearly always for the same bytes: to compare them takes a tenth of a digest.
        if self._in_place == (state.digest, data):
            return True
        if digest(data) != state.digest:
            return False
        self._in_place = (state.digest, data) if len(data) <= _IN_PLACE_BYTES_MAX else None
        return True

    def follow(self, state: CatalogState, until: int | None = None, width: int = 1) -> tuple[CatalogState, int]:
        """Return the state after all later transactions, or at `until`, and how many bytes they have.

        `width` is how many are asked for at first.

        Raises:
            CorruptionError: a transaction is damaged or does not follow from its predecessor.
            ForkError: two of them claim one revision, in a catalog with random names.
        """
        draft, size, width = Draft(state), 0, min(width, _WIDTH_MAX)
        while until is None or draft.revision < until:
            keys = self._next_keys(draft, width if until is None else min(width, until - draft.revision))
            objects = self._store.get_many(keys)
            for key, data in zip(keys, objects, strict=False):
                self._follow(draft, data, key)
                size += len(data)
            if len(objects) < len(keys) or not keys:
                break
            # Names are derived, so several objects are fetched at once. The width doubles: a reader that is nearly at
            # the end asks for one, a reader far behind for many.
            width = min(2 * width, _WIDTH_MAX)
        return (state if draft.revision == state.revision else draft.state()), size

    def check_end(self, state: CatalogState) -> bool:
        """Whether no later revision exists; False when the next one was committed in this moment.

        Raises:
            CorruptionError: a later revision exists although the next one does not.
        """
        following = state.revision + 1
        # Whichever is read first: both only tell of revisions that there were.
        with ThreadPoolExecutor(1) as thread:
            reading = thread.submit(carried(self.hinted)) if self._store.is_remote else None
            listed = list(self.objects.list(after=state.revision)) if reading is not None else None
            hinted = self.hinted() if reading is None else reading.result()
        if hinted is not None and state.revision >= 0 and hinted.catalog_id != state.catalog_id.bytes:
            hinted = None  # of another catalog: it says nothing about this one
        # A folder with a transaction's name is none.
        # Only what could follow is listed. A foreign object with a later number counts too: it may be the trace of a
        # lost tail.
        later = (
            item
            for item in (self.objects.list(after=state.revision) if listed is None else listed)
            if self._store.head(item.key) is not None
        )
        last = next((item.revision for item in later), -1)
        last = max(last, -1 if hinted is None else hinted.revision)
        if last <= state.revision:
            return True
        if self._next_keys(Draft(state), 1) and self._store.head(self._next_keys(Draft(state), 1)[0]) is not None:
            return False
        raise CorruptionError(
            f"{self.objects}: revision {following} is missing or has a foreign name, but there was a revision {last}. "
            "Bring the missing objects back, or run: custody catalog repair"
        )

    def at(self, revision: int) -> CatalogState:
        """Return the state at a revision.

        Raises:
            CorruptionError: the revision, or a transaction on the way to it, is damaged or missing.
        """
        state, _ = self.follow(self.newest_checkpoint(revision).state, revision)
        if state.revision != revision:
            raise CorruptionError(f"{self.objects}: expected revision {state.revision + 1}, got no file.")
        return state

    def digests(self, revision: int) -> set[str]:
        """Return the digests of the transactions that lie at a revision, in hexadecimal digits; none where none does.

        Raises:
            NotFoundError: one was removed in this moment.
        """
        transactions = (item for item in self.objects.at(revision) if not item.is_checkpoint)
        return {digest(self._store.get(item.key)).hex() for item in transactions}

    def revision_at(self, newest: CatalogState, time_ms: int) -> int | None:
        """Return the last revision that was committed at or before a time, None where what is kept begins later.

        It reads a logarithmic number of them.
        """
        low, high = newest.floor, newest.revision
        if high < 0 or self._commit_time(low, newest) > time_ms:
            return None
        # Commit times rise strictly along the chain, so a binary search over revisions finds the last one in time.
        while low < high:
            middle = (low + high + 1) // 2
            if self._commit_time(middle, newest) <= time_ms:
                low = middle
            else:
                high = middle - 1
        return low

    def uncertain_times(self, newest: CatalogState, time_ms: int, now_ms: int) -> UncertainTimes | None:
        """Return the revisions around a time whose stamps are later than a clock that was read after them.

        Of runs of revisions that clocks committed which stood before the stamps, each names the one before it, so that
        one look at the newest state tells that there is none.
        """
        if newest.revision >= 0 and newest.commit_time_ms - now_ms > CLOCK_TOLERANCE_MS:
            found = self._uncertain_since(newest, time_ms, now_ms, newest.revision)
            if found is not None:
                return found
        behind = newest.behind
        # The stamps of a run are below those of later ones: a time behind one is behind all before it.
        while behind.last > newest.floor and time_ms < self._commit_time(behind.last, newest):
            found = self._uncertain_since(newest, time_ms, behind.clock_ms, behind.last)
            if found is not None:
                return found
            if behind.first <= newest.floor:
                break
            before = clocks_behind(self._message(behind.first - 1))
            # Whatever stands there, the walk ends.
            if before.last >= behind.first:
                break
            behind = before
        return None

    def newest_uncertain(self, newest: CatalogState, now_ms: int) -> UncertainTimes | None:
        """Return the newest revisions that `uncertain_times` may return."""
        if newest.revision >= 0 and newest.commit_time_ms - now_ms > CLOCK_TOLERANCE_MS:
            return self._uncertain_since(newest, newest.commit_time_ms - 1, now_ms, newest.revision)
        last, clock_ms = newest.behind.last, newest.behind.clock_ms
        if last <= newest.floor:
            return None
        return self._uncertain_since(newest, self._commit_time(last, newest) - 1, clock_ms, last)

    def _uncertain_since(self, newest: CatalogState, time_ms: int, clock_ms: int, last: int) -> UncertainTimes | None:
        """Return the revisions up to `last` that are stamped later than a clock stood, if a time lies among them."""
        sure = self.revision_at(newest, clock_ms)
        since_ms = 0 if sure is None else self._commit_time(sure, newest)
        until_ms = self._commit_time(last, newest)
        if not since_ms <= time_ms < until_ms:
            return None
        return UncertainTimes(newest.floor if sure is None else sure + 1, last, until_ms, clock_ms)

    def transactions(self, start: int = 0, stop: int | None = None) -> Iterator[Transaction]:
        """Yield the transactions from a revision up to one, oldest first, each checked against its predecessor.

        Raises:
            CorruptionError: one is damaged or missing, or does not follow.
        """
        # Only the links are checked here, not the actions: history that is only read needs no state.
        draft = Draft(EMPTY)
        if start:
            state = self.at(start)
            key = self.objects.key(start, state.uuid)
            data = self._store.get(key)
            if digest(data) != state.digest:
                raise CorruptionError(f"{self._store.locate(key)}: expected the digest {state.digest.hex()[:16]}.")
            where = self._store.locate(key)
            yield check_delta(decode(data, where), where)
            draft = Draft(state)
        width = 1
        while stop is None or draft.revision < stop:
            keys = self._next_keys(draft, width if stop is None else min(width, stop - draft.revision))
            objects = self._store.get_many(keys)
            for key, data in zip(keys, objects, strict=False):
                yield self._checked(draft, data, key)
            if len(objects) < len(keys) or not keys:
                if stop is not None and draft.revision < stop:
                    missing = self._next_keys(draft, 1) or [self.objects.folder(draft.revision + 1)]
                    raise CorruptionError(
                        f"{self._store.locate(missing[0])}: expected revision {draft.revision + 1}, got no file."
                    )
                return
            width = min(2 * width, _WIDTH_MAX)

    def next_key(self, state: CatalogState) -> str | None:
        """Return the key that the next transaction has; None when names are random and none is there."""
        keys = self._next_keys(Draft(state), 1)
        return keys[0] if keys else None

    def _by_hint(self) -> OpenedChain | None:
        """Return what the hint leads to; None when that is not the end of the catalog."""
        hinted = self.hinted()
        if hinted is None:
            return None
        key = self.objects.key(hinted.revision, hinted.uuid, checkpoint=True)
        try:
            own = self.objects.key(hinted.revision, hinted.uuid)
            fetched, later = self._ahead([key, own], hinted.revision) if self._store.is_remote else ((), 0)
            item = CatalogObject(hinted.revision, UUID(bytes=hinted.uuid), True, key)
            checkpoint = self.checkpoint(item, [], fetched)
            # The hint may be of another catalog: revision 0 has one key for all catalogs of a writer and database.
            if checkpoint is None or checkpoint.state.catalog_id.bytes != hinted.catalog_id:
                return None
            # One more than there are: that it is absent is the end.
            return self._followed(checkpoint, later + 1)
        except (CorruptionError, FormatVersionError):
            return None

    def _ahead(self, keys: list[str], revision: int) -> tuple[list[bytes], int]:
        """Return what can be read of some objects, and meanwhile count the transactions behind a revision."""

        def count() -> int:
            return sum(not item.is_checkpoint for item in self.objects.list(after=revision))

        with ThreadPoolExecutor(1) as thread:
            later = thread.submit(carried(count))
            return self._store.get_many(keys), later.result()

    def _followed(self, start: Checkpointed, width: int = 1) -> OpenedChain:
        state, size = start.state, 0
        while True:
            state, more = self.follow(state, width=width)
            size += more
            # Others may commit between the last fetch and the check; then the loop follows them and checks again.
            if self.check_end(state):
                return OpenedChain(state, start, size)

    def _commit_time(self, revision: int, newest: CatalogState) -> int:
        """Return when a revision was committed, in ms, by its own transaction: a foreign one beside it says nothing.

        Raises:
            CorruptionError: neither the transaction nor a checkpoint beside it can be read.
        """
        return newest.commit_time_ms if revision == newest.revision else self._message(revision).commit_time_ms

    def _message(self, revision: int) -> Transaction:
        """Return the transaction of a revision, or the checkpoint beside it; raises as `_commit_time`."""
        reasons = []
        # The transaction first: a checkpoint beside it may be damaged, and stands in only where it is lost.
        for item in sorted(self._own(revision), key=lambda item: item.is_checkpoint):
            where = self._store.locate(item.key)
            try:
                message = decode(self._store.get(item.key), where)
                (check_full if item.is_checkpoint else check_delta)(message, where)
            except (CorruptionError, NotFoundError, StorageError) as error:
                reasons.append(str(error))
            else:
                return message
        reason = f" {reasons[0]}" if reasons else ""
        raise CorruptionError(f"{self.objects}: expected revision {revision}, got no file that can be read.{reason}")

    def _own(self, revision: int) -> list[CatalogObject]:
        """Return the objects of the chain at a revision, without foreign ones beside them."""
        items = self.objects.at(revision)
        if len({item.uuid for item in items}) < 2:
            return items
        uuid = self.at(revision).uuid
        return [item for item in items if item.uuid == uuid]

    def _next_keys(self, draft: Draft, width: int) -> list[str]:
        """Return the keys of the next revisions: names are derived, so that several can be read at once."""
        if draft.revision < 0:
            return self._first_key()
        # Random names cannot be derived, so each revision costs a listing of its folder and is read one by one.
        if draft.naming == Transaction.RANDOM:
            return self._random_key(draft.revision + 1)
        return self.objects.next_keys(draft.catalog_id, draft.revision, draft.uuid, width)

    def _first_key(self) -> list[str]:
        """Return the key of revision 0: its fixed one, or a random one if that object says that names are random."""
        # The catalog says only in revision 0 whether its names are random, so both kinds of names are tried there.
        fixed = self.objects.key(0, self.objects.first_uuid)
        if self._store.head(fixed) is not None:
            return [fixed]
        keys = self._random_key(0)
        return keys if keys and self._naming(keys[0]) == Transaction.RANDOM else [fixed]

    def _naming(self, key: str) -> int:
        try:
            return decode(self._store.get(key), self._store.locate(key)).naming
        except StorageError:  # a folder of that name
            return Transaction.DERIVED

    def _random_key(self, revision: int) -> list[str]:
        transactions = [item for item in self.objects.at(revision) if not item.is_checkpoint]
        if len(transactions) > 1:
            uuids = tuple(sorted(str(item.uuid) for item in transactions))
            raise ForkError(
                f"{self.objects}: revision {revision} forks, two writers committed it: {', '.join(uuids)}. "
                "Keep one of them: move the other away.",
                revision,
                uuids,
            )
        return [item.key for item in transactions]

    def _check_own(self, state: CatalogState, fetched: bytes | None) -> None:
        """Raise ForkError when another transaction than a checkpoint's own lies beside it."""
        own = self.objects.key(state.revision, state.uuid)
        try:
            data = self._store.get(own) if fetched is None else fetched
        except NotFoundError:
            transactions = [item for item in self.objects.at(state.revision) if not item.is_checkpoint]
            uuids = [str(item.uuid) for item in transactions if self._store.head(item.key) is not None]
        else:
            if digest(data) == state.digest or not _is_whole(data):
                return  # a damaged one proves nothing: that is what checkpoints are for
            uuids = [str(state.uuid)]
        if uuids:
            raise ForkError(
                f"{self._store.locate(own)}: revision {state.revision} forks: the checkpoint {state.uuid} is of "
                f"another transaction than {', '.join(uuids)}. Move the one away that does not belong here.",
                state.revision,
                tuple(sorted({str(state.uuid), *uuids})),
            )

    def _follow(self, draft: Draft, data: bytes, key: str) -> None:
        """Apply an object that has to be the successor of the draft's revision."""
        transaction, own_digest = self._successor(draft, data, key)
        try:
            draft.follow(transaction, own_digest)
        except NotApplicableError as error:
            raise CorruptionError(f"{self._store.locate(key)}: {error}") from error
        except FormatVersionError as error:
            raise FormatVersionError(f"{self._store.locate(key)}: {error}") from error

    def _checked(self, draft: Draft, data: bytes, key: str) -> Transaction:
        """Check an object as `_follow` does, without applying what it says."""
        transaction, own_digest = self._successor(draft, data, key)
        if draft.revision < 0:
            draft.naming = transaction.naming
        draft.catalog_id, draft.revision, draft.uuid = transaction.catalog_id, transaction.revision, transaction.uuid
        draft.digest, draft.commit_time_ms = own_digest, transaction.commit_time_ms
        return transaction

    def _successor(self, draft: Draft, data: bytes, key: str) -> tuple[Transaction, bytes]:
        """Return the message and the digest of an object that has to be the next one."""
        where = self._store.locate(key)
        transaction, own_digest = decode_digested(data, where)
        check_delta(transaction, where, draft.commit_time_ms)
        first = draft.revision < 0
        if (
            transaction.revision != draft.revision + 1
            or transaction.previous_digest != draft.digest
            or transaction.previous_uuid != (b"" if first else draft.uuid)
            or transaction.encoding != Transaction.DELTA
            or not (first or transaction.catalog_id == draft.catalog_id)
            or not key.endswith(f"/{uuid_text(transaction.uuid)}.txn")
        ):
            raise CorruptionError(
                f"{where}: expected the successor of revision {draft.revision} with its digest "
                f"{draft.digest.hex()[:16]}, got revision {transaction.revision} after "
                f"{transaction.previous_digest.hex()[:16]}."
            )
        return transaction, own_digest


class _Checkpoints:
    """The states of the checkpoints that this process decoded last, by their bytes.

    A step opens a catalog several times, each unit anew, and a pass has many steps. To decode and check a checkpoint
    takes the more the more logs are live. Its bytes are read and digested each time, so damage is found as before; what
    the same bytes mean cannot change. States are values, which threads and catalogs share.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._states: OrderedDict[tuple[str, bytes], tuple[CatalogState, int]] = OrderedDict()

    def state(self, data: bytes, where: str) -> CatalogState:
        """Return what the checkpoint at a place says.

        Raises:
            CorruptionError, FormatVersionError, NotApplicableError: it is damaged, or makes no sense.
        """
        key = where, digest(data)
        with self._lock:
            if key in self._states:
                self._states.move_to_end(key)
                return self._states[key][0]
        message = check_full(decode(data, where), where)
        # A checkpoint's previous_digest is the digest of the transaction that it stands beside.
        state = EMPTY.advanced(message, message.previous_digest, where)
        with self._lock:
            self._states[key] = state, len(data)
            while self._states and (
                len(self._states) > _CHECKPOINTS_KEPT
                or sum(size for _, size in self._states.values()) > _KEPT_BYTES_MAX
            ):
                self._states.popitem(last=False)
        return state


_CHECKPOINTS = _Checkpoints()


def last_commit_ms(objects: CatalogObjects) -> int | None:
    """Return when the newest object that can be read was committed, in ms; None when none can be.

    For a catalog that cannot be opened: each object is trusted for its own checksum, none for its place in the chain.
    """
    # Newest first: the first object that can be read gives the answer, so a long catalog is not read as a whole.
    for item in reversed(list(objects.list())):
        where = objects.store.locate(item.key)
        try:
            message = decode(objects.store.get(item.key), where)
            (check_full if item.is_checkpoint else check_delta)(message, where)
        except CustodyError:
            continue
        return message.commit_time_ms
    return None


def _is_whole(data: bytes) -> bool:
    try:
        decode(data, "")
    except (CorruptionError, FormatVersionError):
        return False
    return True
