"""How events become batches, and when a batch that cannot be written is tried again; pure functions of times in ms.

Files tried several at a time, and again after waits: what becomes of those that the target refuses.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import Event
from types import TracebackType
from typing import Generic, Self, TypeVar

from custody.errors import StorageError
from custody.ngsi.parameters import Parameters
from custody.ngsi_sink.target import DestinationError

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Batch(Generic[Item]):
    """Events that are written together, in the order of their arrival, and when they are due."""

    items: tuple[Item, ...]
    due_ms: int


def cut(events: Iterable[tuple[int, Item]], *, size: int, timeout_ms: int) -> Iterator[Batch[Item]]:
    """Yield the batches of events that arrive at times in ascending order.

    A batch is due when it has `size` events, or `timeout_ms` after its first one, whichever comes first. An event that
    comes after that belongs to the next batch.
    """
    open_since, items = 0, list[Item]()
    for at_ms, item in events:
        if items and at_ms >= open_since + timeout_ms:
            yield Batch(tuple(items), open_since + timeout_ms)
            items = []
        if not items:
            open_since = at_ms
        items.append(item)
        if len(items) == size:
            yield Batch(tuple(items), at_ms)
            items = []
    if items:
        yield Batch(tuple(items), open_since + timeout_ms)


def waits_ms(parameters: Parameters) -> Iterator[int]:
    """Yield how long to wait before each retry; it ends when the batch is to be put aside, with -1 never."""
    return retry_waits_ms(parameters.values.batch_ttl, parameters.retry_intervals_ms)


def retry_waits_ms(ttl: int, intervals_ms: Sequence[int]) -> Iterator[int]:
    """Yield the wait before each of `ttl` retries, or before endless ones where it is -1; the last one is repeated."""
    waits = itertools.chain(intervals_ms, itertools.repeat(intervals_ms[-1]))
    return waits if ttl < 0 else itertools.islice(waits, ttl)


Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Failed:
    """Why something could not be done; what is final was not tried again, for no wait helps."""

    reason: str
    is_final: bool = False


class Attempts:
    """Does the same for many keys, `ngsi.backend_files_at_once` at a time; a context that ends its threads.

    Args:
        parameters: how many at once, and how long to wait before which retry.
        sleep: waits so many seconds.
        check: is called before each key; what it raises ends all.
    """

    def __init__(self, parameters: Parameters, sleep: Callable[[float], None], check: Callable[[], None]) -> None:
        self._parameters = parameters
        self._sleep = sleep
        self._check = check
        self._at_once = parameters.values.backend_files_at_once
        self._pool: ThreadPoolExecutor | None = None

    def all(self, keys: Iterable[Key], act: Callable[[Key], None], *, in_order: bool = False) -> dict[Key, Failed]:
        """Act on each key, again after each wait on those that were refused; return what is left, with reasons.

        With `in_order`, one key at a time. Otherwise keys must have nothing to do with each other.

        Raises:
            CustodyError: what `act` or `check` raised first, other than StorageError and DestinationError; nothing is
                acted on afterwards.
        """
        order = dict.fromkeys(keys)
        left, found = list(order), dict[Key, Failed]()
        for wait_ms in itertools.chain([0], waits_ms(self._parameters) if left else ()):
            if wait_ms:
                self._sleep(wait_ms / 1000)
            failed = self._once(left, act, in_order=in_order)
            found = {key: why for key, why in found.items() if why.is_final} | failed
            left = [key for key in left if key in failed and not failed[key].is_final]
            if not left:
                break
        return {key: found[key] for key in order if key in found}

    def _once(self, keys: Sequence[Key], act: Callable[[Key], None], *, in_order: bool) -> dict[Key, Failed]:
        failed: dict[Key, Failed] = {}
        is_over = Event()

        def one(key: Key) -> None:
            if is_over.is_set():
                return
            try:
                self._check()
                act(key)
            except StorageError as error:
                failed[key] = Failed(str(error))
            except DestinationError as error:
                failed[key] = Failed(str(error), is_final=True)
            except BaseException:
                is_over.set()
                raise

        if in_order or min(self._at_once, len(keys)) == 1:
            for key in keys:
                one(key)
        else:
            self._together(keys, one, is_over)
        return failed

    def _together(self, keys: Sequence[Key], one: Callable[[Key], None], is_over: Event) -> None:
        """Act on several keys at a time; on return and on raise nobody acts any more."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._at_once, thread_name_prefix="custody-files")
        running = [self._pool.submit(one, key) for key in keys]
        try:
            errors = [future.exception() for future in running]
        except BaseException:  # a signal: what has begun is ended, the rest is not begun
            is_over.set()
            wait(running)
            raise
        for error in errors:
            if error is not None:
                raise error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown()
