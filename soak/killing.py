"""The plan of kills: a seed chooses all of them before the soak begins, so that the same seed gives the same plan."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from soak.processes import KINDS, Target

PATIENCE_SECONDS = 25.0
"""How long a kill waits for somebody to be there."""
_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Planned:
    """One kill: when, in seconds from the beginning, what kind, and which one (0 to 1) of those that there are."""

    at: float
    kind: str
    which: float


@dataclass(frozen=True, slots=True)
class Kill:
    """A kill that happened, in seconds from the beginning."""

    at: float
    kind: str
    doing: str


def plan_kills(seed: int, seconds: float, every: Mapping[str, float]) -> list[Planned]:
    """Return the kills of a soak: of each kind one `every` so many seconds on average, at random times."""
    planned = []
    for kind in KINDS:
        chance = random.Random(f"{seed} {kind}")  # noqa: S311 - a test's chance
        at = chance.expovariate(1 / every[kind])
        while at < seconds:
            planned.append(Planned(round(at, 3), kind, chance.random()))
            at += chance.expovariate(1 / every[kind])
    return sorted(planned, key=lambda kill: (kill.at, kill.kind))


@dataclass
class Killer:
    """Carries a plan out, in a thread of its own."""

    plan: list[Planned]
    targets: Callable[[str], list[Target]]
    started: float
    """When the soak began, on the monotonic clock."""
    done: list[Kill] = field(default_factory=list)
    missed: list[Planned] = field(default_factory=list)
    """Kills for which nobody was there."""

    def __post_init__(self) -> None:
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(kind,), name=f"kill {kind}") for kind in KINDS]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Kill nobody any more."""
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _run(self, kind: str) -> None:
        for planned in self.plan:
            if planned.kind != kind:
                continue
            if self._ended.wait(max(self.started + planned.at - time.monotonic(), 0)):
                return
            if not self._kill(planned):
                self.missed.append(planned)

    def _kill(self, planned: Planned) -> bool:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline and not self._ended.is_set():
            there = self.targets(planned.kind)
            if there:
                chosen = there[min(int(planned.which * len(there)), len(there) - 1)]
                if chosen.process.is_alive():
                    with suppress(ProcessLookupError):
                        os.kill(chosen.process.pid, signal.SIGKILL)
                        self.done.append(Kill(time.monotonic() - self.started, planned.kind, chosen.work))
                        return True
            self._ended.wait(_POLL_SECONDS)
        return False
