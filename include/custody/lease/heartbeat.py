"""Signs of life for holders on other machines, where nobody can see whether the process is there."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from custody.clock import Clock
from custody.errors import CustodyError
from custody.lease.lease import Lease

_BEATS = 4
_LOG = logging.getLogger("custody.lease")


class Heartbeat:
    """While the context lasts, a thread gives signs of life, four in the time after which a holder counts as dead."""

    def __init__(self, leases: Iterable[Lease], clock: Clock, dead_seconds: float) -> None:
        self._leases = tuple(leases)
        self._clock = clock
        self._seconds = dead_seconds / _BEATS
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="custody-heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._seconds):
            for lease in self._leases:
                try:
                    lease.beat(self._clock.now_ms())
                except CustodyError as error:
                    _LOG.warning("no sign of life could be left: %s", error)
