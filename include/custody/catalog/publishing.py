"""One transaction on its way into a store: what it may say, and whether it landed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from random import SystemRandom

from custody.catalog.tombstones import check_hold, check_tombstone
from custody.catalog.transaction_pb2 import Action
from custody.errors import NotFoundError, StorageError
from custody.store import ObjectStore, check_key

_READ_BACK_ATTEMPTS = 5
_PAUSE_SECONDS = 0.0005
_PAUSE_SECONDS_MAX = 0.5
_random = SystemRandom()


def check_actions(actions: Sequence[Action]) -> None:
    """Raise InvalidInputError for a path that is no safe key, or a tombstone or hold without a condition."""
    for action in actions:
        if action.HasField("add_file"):
            check_key(action.add_file.path)
            if action.add_file.toc_path:
                check_key(action.add_file.toc_path)
        elif action.HasField("add_tombstone"):
            check_tombstone(action.add_tombstone)
        elif action.HasField("add_hold"):
            check_hold(action.add_hold)


def publish(store: ObjectStore, key: str, data: bytes) -> bool:
    """Write an object if its key is free; whatever the store says, what can be read there decides."""
    failure: StorageError | None = None
    for number in range(_READ_BACK_ATTEMPTS):
        try:
            if failure is None and store.put_if_absent(key, data):
                return True
            if store.get(key) == data:
                store.settle(key)
                return True
            return False
        except NotFoundError:
            # Either another race was meant (S3 says "conflict" for that) or the put did not arrive. The same
            # bytes are put again: should both arrive, the second one finds the first.
            failure = None
        except StorageError as error:
            if not store.is_remote:
                raise  # a sync that failed: that a second one succeeds would prove nothing
            failure = error
        pause(number)
    if failure is not None:
        raise failure
    return False


def pause(number: int) -> None:
    """Wait a random time that grows with the attempts, so that contenders fall out of step."""
    time.sleep(_random.uniform(0, min(_PAUSE_SECONDS * 2**number, _PAUSE_SECONDS_MAX)))
