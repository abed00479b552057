"""The put of an object whose answer is not believed: whatever the store reports, the bytes that are there decide."""

from __future__ import annotations

import time
from random import SystemRandom

from custody.errors import NotFoundError, StorageError
from custody.store.base import PART_BYTES, ObjectData, ObjectStore, read_parts

# Answers of a remote store can be lost; one that still gives none after these pauses is down, and the caller decides.
_READ_BACK_ATTEMPTS = 5
# Bounds of the random wait between tries, which doubles from the lower one on.
_PAUSE_SECONDS = 0.0005
_PAUSE_SECONDS_MAX = 0.5
_random = SystemRandom()
CONDITION_PROBE = "CONDITIONAL-PUTS"
"""The key of an object that shows whether a store refuses a name that is taken; no writer can have this name."""
MULTIPART_BYTES = 64 << 20
CONDITIONAL_BYTES_MAX = 5 << 30
"""No larger object is given to a name on the condition that it is free: S3 copies no more at once."""


def put_object(store: ObjectStore, key: str, data: ObjectData, *, is_key_of_content: bool = False) -> bool:
    """Write an object if its key is free; whatever the store reports, the bytes that are read back decide.

    `is_key_of_content` says that the key follows from the bytes, such as their digest, so that whoever writes it writes
    the same: then larger objects than any condition holds for are written as well.
    """
    is_too_large = store.is_remote and len(data) > CONDITIONAL_BYTES_MAX
    failure: StorageError | None = None
    for number in range(_READ_BACK_ATTEMPTS):
        try:
            if failure is None and is_key_of_content and is_too_large:
                store.put(key, data)
            elif failure is None and store.put_if_absent(key, data):
                return True
            if _holds(store, key, data):
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


def _holds(store: ObjectStore, key: str, data: ObjectData) -> bool:
    """Whether an object has these bytes; raises NotFoundError."""
    if len(data) <= PART_BYTES:
        return store.get(key) == data
    parts, place = read_parts(store, key), 0
    if parts is None:
        raise NotFoundError(f"{store.locate(key)}: there is no such object.")
    for part in parts:
        if data[place : place + len(part)] != part:
            return False
        place += len(part)
    return place == len(data)


def pause_between_tries(number: int) -> None:
    """Wait a random time that grows with the attempts, so that contenders get out of step."""
    time.sleep(_random.uniform(0, min(_PAUSE_SECONDS * 2**number, _PAUSE_SECONDS_MAX)))
