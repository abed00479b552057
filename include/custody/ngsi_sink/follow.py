"""A follower: one process that keeps the sink open and writes each batch when it is due.

It looks for new events several times a second, in logs and in journals, and runs the sink as soon as a batch is full or
old. A look at an idle repository lists folders and reads nothing else. Between two runs it does nothing that another
attempt could be in the way of; once its lease is gone, it ends.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from threading import Event as Signal

from custody.errors import LockedError
from custody.ngsi_sink.opening import OpenSink
from custody.ngsi_sink.run import SinkReport

POLL_SECONDS = 0.2
"""The pause between two looks: half of it is, on average, part of the time from an acknowledgement to a line."""
_STANDBY_SECONDS = 1.0
_OUTAGE_FIRST_SECONDS, _OUTAGE_LONGEST_SECONDS = 1.0, 60.0
# A cursor that passes over other events is a commit; saved so rarely, it costs nothing beside a busy writer of them.
_IDS_UNSAVED_MAX = 10_000
_LOGGER = logging.getLogger(__name__)


class Stopped(Exception):
    """The follower was asked to end while it waited for a target; a batch that it had committed is finished later."""


def stoppable_sleep(stopped: Signal) -> Callable[[float], None]:
    """Return a function that waits so many seconds before a retry, and raises Stopped once `stopped` is set.

    Without it a target that is down would hold up the end for all retries, or for ever with `ngsi.batch_ttl = -1`.
    """

    def sleep(seconds: float) -> None:
        if stopped.wait(seconds):
            raise Stopped

    return sleep


class Follower:
    """Runs an open sink whenever something is due.

    Args:
        opened: the sink, which reads journals too.
        poll_seconds: the pause between two looks.
    """

    def __init__(self, opened: OpenSink, poll_seconds: float = POLL_SECONDS) -> None:
        self._opened = opened
        self._poll_seconds = poll_seconds
        self._waiting = 0
        """Events of a batch that is not due yet."""
        self._due_ms: int | None = None
        self._seen: dict[str, int] | None = None
        """The bounds of the last run; what lies below was written, is counted in `_waiting`, or is no notification."""
        self._outage_seconds = 0.0
        self._resume_at = 0.0

    def follow(self, stopped: Signal) -> Iterator[SinkReport]:
        """Yield the report of each run that had something to do, until `stopped` is set.

        Raises:
            SupersededError: another attempt took over.
            StorageError: the disk of the sink, or of the repository, refused.
            ConfigurationError: the target refuses the user.
        """
        while not stopped.is_set():
            yield from self.step()
            stopped.wait(self._pause())

    def step(self) -> Iterator[SinkReport]:
        """Look once, and write what is due; yield the reports of what had something to do.

        Raises: as `follow`.
        """
        # Also while nothing is due: a follower that was paused ends with its first look.
        self._opened.sink.check()
        if time.monotonic() < self._resume_at:
            return
        if self._opened.is_resubmitted:
            yield self._opened.resubmit()
        bounds = self._opened.source.bounds(self._opened.sink.cursors)
        if not self._is_due(bounds):
            return
        report = self._opened.run(ids_unsaved_max=_IDS_UNSAVED_MAX)
        self._waiting, self._due_ms, self._seen = report.waiting, report.due_ms, report.bounds
        self._back_off(report)
        if report.events or report.problems:
            yield report

    def _is_due(self, bounds: Mapping[str, int]) -> bool:
        if self._seen is None:
            return True
        if self._due_ms is not None and self._opened.clock.now_ms() >= self._due_ms:
            return True
        fresh = sum(max(bound - self._seen.get(writer, 0), 0) for writer, bound in bounds.items())
        # Nothing waits, so the first of the new ones opens a batch and its time begins. Otherwise only a full batch is
        # due earlier than what is known.
        return fresh > 0 and (
            self._due_ms is None or self._waiting + fresh >= self._opened.parameters.values.batch_size
        )

    def _pause(self) -> float:
        """Return how long to wait for the next look: to the moment at which a batch is due, if that comes first."""
        if self._due_ms is None:
            return self._poll_seconds
        return min(max((self._due_ms - self._opened.clock.now_ms()) / 1000, 0.0), self._poll_seconds)

    def _back_off(self, report: SinkReport) -> None:
        """Wait longer and longer while the target takes nothing: each run of an outage fills the quarantine."""
        if not report.is_stopped:
            self._outage_seconds = self._resume_at = 0.0
            return
        self._outage_seconds = min(max(2 * self._outage_seconds, _OUTAGE_FIRST_SECONDS), _OUTAGE_LONGEST_SECONDS)
        self._resume_at = time.monotonic() + self._outage_seconds
        # What lies behind the chunk was not looked at.
        self._seen = None
        _LOGGER.warning("nothing could be written; looking again in %.0f s", self._outage_seconds)


def enter_when_free(
    stack: ExitStack,
    open_one: Callable[[bool], AbstractContextManager[OpenSink]],
    stopped: Signal,
    on_wait: Callable[[LockedError], None],
    *,
    take_over: bool = False,
) -> OpenSink | None:
    """Open the sink as soon as no other attempt has it; None once `stopped` is set.

    Args:
        stack: closes it.
        open_one: opens the sink; its argument says whether to take it from an attempt that lives.
        stopped: ends the wait.
        on_wait: gets the first refusal, to be shown.
        take_over: what the first try does.
    """
    is_first = True
    while not stopped.is_set():
        try:
            return stack.enter_context(open_one(take_over and is_first))
        except LockedError as error:
            if is_first:
                on_wait(error)
            is_first = False
            stopped.wait(_STANDBY_SECONDS)
    return None
