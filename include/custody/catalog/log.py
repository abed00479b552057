"""The catalog of one writer's database: a linear log of transactions, each with its predecessor's digest.

Layout: `transactions/<revision, 20 digits>/<uuid>.txn`, a checkpoint beside its transaction as `<uuid>.ckpt`. The
uuid in a name is derived from the catalog's id, the revision and the predecessor's uuid: two processes that race for
a revision aim at one name, which put-if-absent gives to one of them. The first transaction's name is fixed, so
creation is a race with one winner too.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from uuid import UUID

from custody.catalog.codec import FEATURES_WRITTEN, decode, digest, encode
from custody.catalog.state import EMPTY, CatalogState, apply
from custody.catalog.transaction_pb2 import Action, Transaction
from custody.clock import Clock
from custody.errors import ConflictError, CorruptionError, FormatVersionError
from custody.format.names import (
    DatabasePaths,
    parse_revision,
    parse_transaction,
    revision_folder,
    transaction_file,
)
from custody.vfs import FileSystem

_FIRST_NAMESPACE = UUID("7f3c1a52-6f0e-4b57-9a0a-6f0d5c1f2b11")  # part of the format: names revision 0
_COMMIT_ATTEMPTS = 50


class Catalog:
    """Reads and extends one catalog; cheap to make, keeps the state that it read last."""

    def __init__(self, fs: FileSystem, paths: DatabasePaths, clock: Clock) -> None:
        self._fs = fs
        self._clock = clock
        self._folder = paths.transactions
        self._identity = f"{paths.writer}/{paths.database}"
        self._state = EMPTY
        self._settled_revision = -1

    def load(self) -> CatalogState:
        """Return the newest state; the work is proportional to what was committed since the last call.

        Raises:
            CorruptionError: an object is damaged, missing, or does not follow from its predecessor.
        """
        if self._state is EMPTY:
            self._state = self._newest_checkpoint()
        while True:
            name = self._next_name(self._state)
            data = self._read(self._state.revision + 1, name)
            if data is not None:
                self._state = self._follow(self._state, data, self._path(self._state.revision + 1, name))
            elif self._is_at_end(name):
                return self._state

    def commit(self, actions: Sequence[Action], *, next_event_id: int = 0, attempt: UUID | None = None) -> CatalogState:
        """Append one transaction and return the state after it; `attempt` is its id where it was chosen before.

        Actions that still apply after another writer's commit are tried again on top of it.
        Durability: on return the transaction and all before it survive power loss; on StorageError it is unknown
        whether it was committed, and the next load tells.

        Raises:
            ConflictError: the actions contradict the state: nothing was written.
            FormatVersionError: a newer custody writes here, with features that this one does not know.
        """
        for _ in range(_COMMIT_ATTEMPTS):
            state = self.settle()
            self._check_writable(state)
            apply(actions, dict(state.files), dict(state.shards))
            transaction = self._successor(state, actions, next_event_id, attempt or uuid.uuid4())
            data = encode(transaction)
            path = self._path(transaction.revision, self._next_name(state))
            self._fs.make_directory(path.parent)
            if self._fs.publish_if_absent(path, data) or self._fs.read(path) == data:
                self._state = state.advanced(transaction, digest(data))
                self._settled_revision = self._state.revision
                return self._state
        raise ConflictError(f"{self._folder}: other writers won {_COMMIT_ATTEMPTS} times. Try again.")

    def settle(self) -> CatalogState:
        """Return the newest state, and make sure that it stays.

        A transaction can be seen before its name is durable, and who wrote it may have died in between. Whoever
        builds on it (the next transaction, the removal of journals) settles it first; those before it are settled
        by the same rule.
        """
        state = self.load()
        if state.revision > self._settled_revision:
            self._fs.sync_directory(self._folder / revision_folder(state.revision))
            self._settled_revision = state.revision
        return state

    def checkpoint(self) -> Path:
        """Write the whole newest state beside its transaction and verify it; return its path.

        Durability: on return the checkpoint survives power loss. A second call changes nothing.
        """
        state = self.load()
        if state.revision < 0:
            raise ConflictError(f"{self._folder}: the catalog is empty, there is nothing to checkpoint.")
        path = self._path(state.revision, transaction_file(state.uuid, checkpoint=True))
        message = Transaction(
            revision=state.revision,
            uuid=state.uuid.bytes,
            previous_digest=state.digest,
            commit_time_ms=state.commit_time_ms,
            encoding=Transaction.FULL,
            catalog_id=state.catalog_id.bytes,
            next_event_id=state.next_event_id,
            writer_features=sorted(state.writer_features),
            actions=state.actions(),
        )
        self._fs.publish_if_absent(path, encode(message))
        decode(self._fs.read(path), path)
        return path

    def checkpoint_age(self) -> int:
        """Return how many transactions lie behind the newest checkpoint."""
        state = self.load()
        return state.revision - max((revision for revision, _ in self._checkpoints()), default=-1)

    def timeline(self) -> Iterator[Transaction]:
        """Yield all transactions that are kept, oldest first, each checked against its predecessor."""
        state = EMPTY
        for revision in range(self.load().revision + 1):
            name = self._next_name(state)
            data = self._read(revision, name)
            if data is None:
                raise CorruptionError(f"{self._path(revision, name)}: expected revision {revision}, got no file.")
            state = self._follow(state, data, self._path(revision, name))
            yield decode(data, self._path(revision, name))

    def _check_writable(self, state: CatalogState) -> None:
        unknown = sorted(state.writer_features - FEATURES_WRITTEN)
        if unknown:
            raise FormatVersionError(
                f"{self._folder}: needs the writer features {', '.join(unknown)}, which this custody does not know."
            )

    def _successor(
        self, state: CatalogState, actions: Iterable[Action], next_event_id: int, attempt: UUID
    ) -> Transaction:
        name, _ = parse_transaction(self._next_name(state)) or (UUID(int=0), False)
        first = state is EMPTY
        return Transaction(
            revision=state.revision + 1,
            uuid=name.bytes,
            previous_uuid=b"" if first else state.uuid.bytes,
            previous_digest=state.digest,
            commit_time_ms=max(self._clock.now_ms(), state.commit_time_ms + 1),
            encoding=Transaction.DELTA,
            catalog_id=(uuid.uuid4() if first else state.catalog_id).bytes,
            attempt_id=attempt.bytes,
            next_event_id=max(state.next_event_id, next_event_id),
            actions=actions,
        )

    def _next_name(self, state: CatalogState) -> str:
        if state is EMPTY:
            return transaction_file(uuid.uuid5(_FIRST_NAMESPACE, self._identity))
        return transaction_file(uuid.uuid5(state.catalog_id, f"{state.revision + 1}:{state.uuid}"))

    def _path(self, revision: int, name: str) -> Path:
        return self._folder / revision_folder(revision) / name

    def _read(self, revision: int, name: str) -> bytes | None:
        path = self._path(revision, name)
        return self._fs.read(path) if self._fs.exists(path) else None

    def _follow(self, state: CatalogState, data: bytes, path: Path) -> CatalogState:
        """Return the state after an object; check that it is the successor of `state`."""
        transaction = decode(data, path)
        expected = (state.revision + 1, state.digest, b"" if state is EMPTY else state.uuid.bytes)
        got = (transaction.revision, transaction.previous_digest, transaction.previous_uuid)
        if got != expected or transaction.encoding != Transaction.DELTA:
            raise CorruptionError(
                f"{path}: expected the successor of revision {state.revision} with its digest "
                f"{state.digest.hex()[:16]}, got revision {transaction.revision} after "
                f"{transaction.previous_digest.hex()[:16]}."
            )
        return state.advanced(transaction, digest(data))

    def _revisions(self) -> list[int]:
        found = (parse_revision(name) for name in self._fs.list(self._folder))
        return sorted(revision for revision in found if revision is not None)

    def _checkpoints(self) -> Iterator[tuple[int, str]]:
        """Yield (revision, file name) of all checkpoints, newest first."""
        for revision in reversed(self._revisions()):
            for name in self._fs.list(self._folder / revision_folder(revision)):
                parsed = parse_transaction(name)
                if parsed is not None and parsed[1]:
                    yield revision, name

    def _newest_checkpoint(self) -> CatalogState:
        """Return the state of the newest checkpoint that can be read, the empty state when there is none."""
        for revision, name in self._checkpoints():
            path = self._path(revision, name)
            try:
                message = decode(self._fs.read(path), path)
            except (CorruptionError, FormatVersionError):
                continue  # an older checkpoint and the transactions since give the same state
            # A checkpoint's previous_digest is the digest of the transaction that it stands beside.
            return EMPTY.advanced(message, message.previous_digest)
        return EMPTY

    def _is_at_end(self, name: str) -> bool:
        """Whether no later revision exists; False when the next one, `name`, was committed in this moment.

        Raises:
            CorruptionError: a later revision exists although the next one does not.
        """
        following = self._state.revision + 1
        for revision in self._revisions():
            names = self._fs.list(self._folder / revision_folder(revision)) if revision >= following else []
            if any(parse_transaction(found) for found in names):
                if self._fs.exists(self._path(following, name)):
                    return False
                raise CorruptionError(
                    f"{self._folder}: revision {following} is missing or has a foreign name, "
                    f"but revision {revision} exists. Run: custody status"
                )
        return True
