"""One transaction on its way into a store: what it may say, and whether it landed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from random import SystemRandom

from custody.catalog.transaction_pb2 import Action
from custody.catalog.wellformed import check_action
from custody.errors import NotFoundError, StorageError
from custody.store import ObjectStore

_READ_BACK_ATTEMPTS = 5
_PAUSE_SECONDS = 0.0005
_PAUSE_SECONDS_MAX = 0.5
_random = SystemRandom()


def check_actions(actions: Sequence[Action]) -> None:
    """Raise InvalidInputError for an action that makes no sense, such as a path that is no safe key."""
    for action in actions:
        check_action(action)


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
