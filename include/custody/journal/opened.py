"""The group that a writer has open: its lanes, over the containers that still work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Condition

from custody.journal.file import JournalHeader
from custody.journal.lane import Lane


class OpenGroup:
    """Journals with a common first event id, as long as events may be appended.

    `make_lane(number)` gives lane `number`. A lane is used only while as many appends run at once: one thread fills one
    journal, sixteen threads fill sixteen, however many may be open.
    """

    def __init__(self, header: JournalHeader, lanes_max: int, make_lane: Callable[[int], Lane], opened_ms: int) -> None:
        self.header = header
        self.opened_ms = opened_ms
        self._lanes_max = lanes_max
        self._make_lane = make_lane
        self._lanes: list[Lane] = []
        self._running = 0
        self._changed = Condition()

    def enter(self) -> Lane:
        """Take a lane for one append, which has to `leave` it: one of those in use, a new one, or the next in turn."""
        with self._changed:
            self._running += 1
            working = [lane for lane in self._lanes if lane.error is None and not lane.is_out]
            number = self._running - 1
            if number < len(working):
                return working[number]
            if len(self._lanes) < self._lanes_max:
                self._lanes.append(self._make_lane(len(self._lanes)))
                return self._lanes[-1]
            return working[number % len(working)] if working else self._lanes[-1]

    def leave(self) -> None:
        """Say that an append ended, well or not."""
        with self._changed:
            self._running -= 1
            self._changed.notify_all()

    def take_out(self, root: Path) -> None:
        """Append nothing more to the lanes of a container."""
        with self._changed:
            for lane in self._lanes:
                lane.is_out = lane.is_out or lane.path.is_relative_to(root)

    @property
    def bytes(self) -> int:
        """Bytes appended so far."""
        return sum(lane.bytes for lane in self._lanes)

    @property
    def left_open(self) -> list[Lane]:
        """The lanes that could not be sealed."""
        return [lane for lane in self._lanes if lane.is_left_open]

    def sync(self) -> list[tuple[Lane, OSError]]:
        """Make durable what was appended; return the lanes that failed."""
        failed: list[tuple[Lane, OSError]] = []
        for lane in list(self._lanes):
            try:
                lane.sync()
            except OSError as error:
                failed.append((lane, error))
        return failed

    def close(self) -> tuple[list[Path], list[tuple[Lane, OSError]]]:
        """Wait for the appends that run, then seal every lane; return the sealed journals and the lanes that failed."""
        with self._changed:
            while self._running:
                self._changed.wait()
        sealed: list[Path] = []
        failed: list[tuple[Lane, OSError]] = []
        for lane in self._lanes:
            try:
                path = lane.close()
            except OSError as error:
                failed.append((lane, error))
            else:
                sealed += [path] if path is not None else []
        return sealed, failed
