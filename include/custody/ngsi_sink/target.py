"""Targets: files of destinations, brought to what a committed batch says, and tried again when they refuse.

`Target` is all that the sink knows of the place where its files are. `FilesTarget` is the one implementation, on any
file system that can append and cut (`AppendableFiles`): a local folder, HDFS over REST, HDFS over RPC. To apply an
append twice changes nothing: `apply` looks how long the file is, compares the bytes that an earlier try left, cuts, and
appends. A file that another writer has open is waited for.

`RetryPool` tries several files at a time. The waits between tries are the settings `ngsi.batch_retry_intervals` and
`ngsi.batch_ttl`. A failure that no wait can mend is final and not tried again.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import Event
from types import TracebackType
from typing import Protocol, Self, TypeVar, runtime_checkable

from custody.errors import CorruptionError, StorageError
from custody.ngsi.parameters import Parameters
from custody.ngsi_sink.batch_file import FileAppend

_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.2, 5.0
TOGETHER_FROM = 64
"""So many new files of a batch are made at once. Fewer are not: a sync for all waits for what others wrote, too."""
BUSY_SECONDS = 180.0
"""HDFS takes a file from a dead writer after 60 s, and then needs some seconds to find out its length."""


class Target(Protocol):
    """The place of destinations' files. Nobody else writes to them while a sink is open."""

    def length(self, path: str) -> int:
        """Return the bytes of a file, 0 where there is none.

        Raises:
            DestinationError: something other than a file has its name.
            StorageError: nobody answered, or the call was refused.
        """
        ...

    def absent(self, paths: Sequence[str]) -> set[str]:
        """Return paths of which it is certain by one quick look that nothing has them; `length` says it of others."""
        ...

    def apply(self, part: FileAppend, data: memoryview) -> None:
        """Make a file end in these bytes, once, whatever a crash left of an earlier try.

        Durability: on return the file survives, with the bytes, what its file system survives: a local one a power
        loss, HDFS what docs/design/026 says.

        Raises:
            DestinationError: the file is shorter than it was, holds other bytes where these belong, or something other
                than a file has its name.
            StorageError: it was refused, or nobody answered; it is unknown whether it was done. Apply it again.
        """
        ...

    def apply_together(
        self, parts: Sequence[FileAppend], data: Sequence[memoryview], check: Callable[[], None]
    ) -> set[int]:
        """Do what can be done of many parts at once; return the places of those that are done, durably as by `apply`.

        All others are to be applied by themselves; none is refused here. `check` is called now and then, and its error
        ends everything.
        """
        ...

    def uri(self, path: str) -> str:
        """Return the URI of a file: `file:///…`, `hdfs://…` or `webhdfs://…`."""
        ...

    def close(self) -> None:
        """Give connections back."""
        ...


class DestinationError(CorruptionError):
    """A destination's name belongs to something other than a file, or its file does not hold what was committed to it.

    Waiting does not help, and it concerns this destination alone. Nothing was changed.
    """


def not_a_file(uri: str) -> DestinationError:
    """Return the error of a name that something other than a file has."""
    return DestinationError(
        f"{uri}: expected a file, or nothing, got a folder or something else. Nothing was changed; "
        "move it away, then submit what waits in the quarantine again."
    )


class BusyError(Exception):
    """Another writer has the file open, or it is being repaired: the same call may succeed a little later."""


class AppendableFiles(Protocol):
    """A file system that can append and cut. All methods raise StorageError, and BusyError where waiting helps.

    `size` raises DestinationError for a name that something other than a file has.
    """

    @property
    def outlives_writers(self) -> bool:
        """Whether a file may still change after its writer died, as a server may go on with the call."""
        ...

    def size(self, path: str) -> int | None:
        """Return the bytes of a file, None where there is none."""
        ...

    def digest(self, path: str, offset: int, length: int) -> str:
        """Return the SHA-256 of a piece of a file, in hexadecimal."""
        ...

    def settle(self, path: str) -> None:
        """End what a dead writer began and make it durable: from here on `size` counts bytes that stay."""
        ...

    def create(self, path: str, data: memoryview) -> None:
        """Create a file and the folders above it, durably; BusyError where there is one by now."""
        ...

    def append(self, path: str, data: memoryview) -> None:
        """Add bytes at the end of a file, durably."""
        ...

    def cut(self, path: str, length: int) -> None:
        """Cut a file, durably."""
        ...

    def uri(self, path: str) -> str:
        """Return the URI of a file."""
        ...

    def close(self) -> None:
        """Give connections back."""
        ...


@runtime_checkable
class CreatesTogether(Protocol):
    """Files of which many can be looked for, and made, at once for less than one by one."""

    def absent(self, paths: Iterable[str]) -> set[str]:
        """Return paths of which it is certain that nothing has them."""
        ...

    def create_together(self, files: Mapping[str, memoryview], check: Callable[[], None]) -> set[str]:
        """Make files, durably; return those that are done. What is left of the others is as after a crash."""
        ...


class FilesTarget:
    """A target on a file system that can append and cut."""

    def __init__(
        self,
        files: AppendableFiles,
        *,
        busy_seconds: float = BUSY_SECONDS,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.monotonic,
        together_from: int = TOGETHER_FROM,
    ) -> None:
        self._files = files
        self._busy_seconds = busy_seconds
        self._sleep = sleep
        self._now = now
        self._together_from = together_from
        self._settled: set[str] = set()
        """Paths that only this object has written to since they were settled."""

    def length(self, path: str) -> int:
        """Return the bytes of a file, 0 where there is none."""
        return self._files.size(path) or 0

    def absent(self, paths: Sequence[str]) -> set[str]:
        """Return paths of which it is certain by one quick look that nothing has them."""
        if len(paths) < self._together_from or not isinstance(self._files, CreatesTogether):
            return set()
        return self._files.absent(paths)

    def apply(self, part: FileAppend, data: memoryview) -> None:
        """Make a file end in these bytes, once, whatever a crash left of an earlier try."""
        until, wait = self._now() + self._busy_seconds, _FIRST_WAIT_SECONDS
        while True:
            # What this object itself wrote last and got acknowledged no longer changes: settling it would only cost
            # calls.
            is_settled = part.path in self._settled or not self._files.outlives_writers
            # Until the call is acknowledged nobody knows what it left: a second try has to settle the file.
            self._settled.discard(part.path)
            try:
                # From the beginning each time: the writer that had the file open may have changed it.
                self._apply(part, data, is_settled=is_settled)
            except BusyError as error:
                if self._now() + wait > until:
                    raise StorageError(
                        f"{self.uri(part.path)}: expected it to be free within {self._busy_seconds:.0f} s, "
                        f"got {error}. See who else writes to it, and try again."
                    ) from error
                self._sleep(wait)
                wait = min(2 * wait, _LONGEST_WAIT_SECONDS)
            else:
                self._settled.add(part.path)
                return

    def apply_together(
        self, parts: Sequence[FileAppend], data: Sequence[memoryview], check: Callable[[], None]
    ) -> set[int]:
        """Make the new files among the parts at once, if they are many and the file system gains by it."""
        new = {part.path: place for place, part in enumerate(parts) if part.offset == 0}
        if len(new) < self._together_from or not isinstance(self._files, CreatesTogether):
            return set()
        done = self._files.create_together({path: data[place] for path, place in new.items()}, check)
        return {new[path] for path in done}

    def uri(self, path: str) -> str:
        """Return the URI of a file."""
        return self._files.uri(path)

    def close(self) -> None:
        """Give connections back."""
        self._files.close()

    def _apply(self, part: FileAppend, data: memoryview, *, is_settled: bool) -> None:
        size = self._files.size(part.path)
        if size is None:
            if part.offset:
                raise self._short(part, 0)
            # Never overwrites: where a lost call made the file since the look, this is busy and the look is repeated.
            self._files.create(part.path, data)
            return
        if is_settled and size == part.offset and part.length:
            self._files.append(part.path, data)
            return
        # An earlier try may have left it like this, and may have died before its bytes were durable, or while a server
        # still wrote them. Only a settled file may be compared and cut.
        self._files.settle(part.path)
        size = self._files.size(part.path) or 0
        if size < part.offset:
            raise self._short(part, size)
        end = part.offset + part.length
        # An earlier try wrote everything and was not acknowledged, or somebody else appended behind it.
        if size >= end:
            if self._files.digest(part.path, part.offset, part.length) == part.sha256:
                return
            if size > end:
                raise DestinationError(
                    f"{self.uri(part.path)} @{part.offset}: expected {part.length} bytes that were committed, got "
                    f"others, and {size - end} more behind them. Nothing was changed; see who else writes to this file."
                )
        # A torn try of this append: its bytes go before all of them come again.
        if size > part.offset:
            self._files.cut(part.path, part.offset)
        self._files.append(part.path, data)

    def _short(self, part: FileAppend, size: int) -> DestinationError:
        return DestinationError(
            f"{self.uri(part.path)}: expected at least the {part.offset} bytes that were committed, got {size}. "
            "Nothing was changed; bring the file back from a backup."
        )


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
        # Each thread takes the next key: a future for each of ten thousand files costs more than to look at them.
        waiting = iter(keys)

        def act_on_next() -> None:
            for key in waiting:
                one(key)

        running = [self._pool.submit(act_on_next) for _ in range(min(self._at_once, len(keys)))]
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
