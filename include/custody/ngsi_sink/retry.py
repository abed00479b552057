"""Retries: when a file that refuses is tried again, and a pool that tries several files at a time.

The waits between tries are the settings `ngsi.batch_retry_intervals` and `ngsi.batch_ttl`. A failure that no wait can
mend is final and not tried again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import Event
from types import TracebackType
from typing import Self, TypeVar

from custody.errors import StorageError
from custody.ngsi.parameters import Parameters
from custody.ngsi_sink.target import DestinationError

Key = TypeVar("Key", bound=Hashable)


def waits_ms(parameters: Parameters) -> Iterator[int]:
    """Yield how long to wait before each retry; it ends when the batch is to be quarantined, with -1 never."""
    return retry_waits_ms(parameters.values.batch_ttl, parameters.retry_intervals_ms)


def retry_waits_ms(ttl: int, intervals_ms: Sequence[int]) -> Iterator[int]:
    """Yield the wait before each of `ttl` retries, or before endless ones where it is -1; the last one is repeated."""
    waits = itertools.chain(intervals_ms, itertools.repeat(intervals_ms[-1]))
    return waits if ttl < 0 else itertools.islice(waits, ttl)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something could not be done; one that is final was not tried again, for no wait helps."""

    reason: str
    is_final: bool = False


class RetryPool:
    """Does the same for many keys, `ngsi.backend_files_at_once` at a time; as a context it ends its threads.

    Args:
        parameters: how many at once, and how long to wait before which retry.
        sleep: waits so many seconds.
        check: is called before each key; an error of it ends everything.
    """

    def __init__(self, parameters: Parameters, sleep: Callable[[float], None], check: Callable[[], None]) -> None:
        self._parameters = parameters
        self._sleep = sleep
        self._check = check
        self._at_once = parameters.values.backend_files_at_once
        self._pool: ThreadPoolExecutor | None = None

    def all(self, keys: Iterable[Key], act: Callable[[Key], None], *, in_order: bool = False) -> dict[Key, Failure]:
        """Act on each key, and after each wait again on those that were refused; return those that failed for good.

        With `in_order`, one key at a time. Otherwise keys must have nothing to do with each other.

        Raises:
            CustodyError: the first error of `act` or `check` other than StorageError and DestinationError; nothing is
                acted on afterwards.
        """
        order = dict.fromkeys(keys)
        remaining, failures = list(order), dict[Key, Failure]()
        for wait_ms in itertools.chain([0], waits_ms(self._parameters) if remaining else ()):
            if wait_ms:
                self._sleep(wait_ms / 1000)
            failed = self._once(remaining, act, in_order=in_order)
            # Besides final failures only those of the last round count: what was done by now did not fail.
            failures = {key: failure for key, failure in failures.items() if failure.is_final} | failed
            remaining = [key for key in remaining if key in failed and not failed[key].is_final]
            if not remaining:
                break
        return {key: failures[key] for key in order if key in failures}

    def _once(self, keys: Sequence[Key], act: Callable[[Key], None], *, in_order: bool) -> dict[Key, Failure]:
        failures: dict[Key, Failure] = {}
        is_over = Event()

        def one(key: Key) -> None:
            if is_over.is_set():
                return
            try:
                # Before each key: a round over many files takes long, and another attempt may take over meanwhile.
                self._check()
                act(key)
            except StorageError as error:
                failures[key] = Failure(str(error))
            except DestinationError as error:
                failures[key] = Failure(str(error), is_final=True)
            # Fatal, such as a lost lease: what has not begun is left, so that nothing is written behind the next
            # holder's back.
            except BaseException:
                is_over.set()
                raise

        # Without threads: a pool gains nothing here, and crash tests need one order of operations.
        if in_order or min(self._at_once, len(keys)) == 1:
            for key in keys:
                one(key)
        else:
            self._together(keys, one, is_over)
        return failures

    def _together(self, keys: Sequence[Key], one: Callable[[Key], None], is_over: Event) -> None:
        """Act on several keys at a time; on return and on raise no thread acts any more."""
        # Made when first needed: a sink that has one file a batch starts no threads.
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._at_once, thread_name_prefix="custody-files")
        running = [self._pool.submit(one, key) for key in keys]
        try:
            # Waits for all before the first error is raised: afterwards no thread may act any more.
            errors = [future.exception() for future in running]
        except BaseException:  # a signal: calls that have begun come to their end, the others are not begun
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
