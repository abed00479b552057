"""The put of an object whose answer is not believed: whatever the store reports, the bytes that are there decide."""

from __future__ import annotations

import time
from random import SystemRandom

from custody.errors import NotFoundError, StorageError
from custody.store.base import ObjectStore

# Answers of a remote store can be lost; one that still gives none after these pauses is down, and the caller decides.
_READ_BACK_ATTEMPTS = 5
# Bounds of the random wait between tries, which doubles from the lower one on.
_PAUSE_SECONDS = 0.0005
_PAUSE_SECONDS_MAX = 0.5
_random = SystemRandom()


def put_object(store: ObjectStore, key: str, data: bytes) -> bool:
    """Write an object if its key is free; whatever the store reports, the bytes that are read back decide."""
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
            # Either the store reported a conflict between two puts, which S3 does before either is visible, or the
            # put did not arrive. The same bytes are put again: should both arrive, the second finds the first.
            failure = None
        except StorageError as error:
            if not store.is_remote:
                raise  # after a failed sync the pages may be dropped: a second sync that succeeds proves nothing
            failure = error
        pause_between_tries(number)
    if failure is not None:
        raise failure
    return False


def pause_between_tries(number: int) -> None:
    """Wait a random time that grows with the attempts, so that contenders get out of step."""
    time.sleep(_random.uniform(0, min(_PAUSE_SECONDS * 2**number, _PAUSE_SECONDS_MAX)))
