"""Crashes at each operation of a spool and of its delivery, and bugs in them that the enumeration has to see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from custody.client import spool as spools
from custody.client import spool_delivery
from custody.client.spool import Positions
from custody.client.spool_delivery import SpoolDelivery
from custody.vfs import FileSystem
from tests.crash.enumeration import enumerate_crashes, run_to
from tests.crash.spool_scenarios import REFUSED, Spooling
from tests.parts import Part


@pytest.mark.in_parts
def test_a_crash_of_producers_or_of_the_delivery_loses_no_event_and_delivers_each_once(part: Part) -> None:
    _, told, error = run_to(Spooling())
    assert error is None
    assert sorted(told.taken.values()) == [number for number in range(10) if number != REFUSED]
    outcome = enumerate_crashes(Spooling(), seeds=3, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 60


@contextmanager
def _append_is_not_synced() -> Iterator[None]:
    with patch.object(spools._OpenSegment, "sync", lambda _: None):
        yield


@contextmanager
def _name_of_a_segment_is_not_synced() -> Iterator[None]:
    right = spools._OpenSegment.__init__

    def wrong(self: Any, *arguments: Any) -> None:
        right(self, *arguments)
        self._is_named = True

    with patch.object(spools._OpenSegment, "__init__", wrong):
        yield


@contextmanager
def _position_before_the_answer() -> Iterator[None]:
    right = SpoolDelivery._send

    def wrong(self: Any, number: int, lines: bytes) -> None:
        done = self._positions.frames.get(number, 0)
        self._move(msgspec.structs.replace(self._positions, frames={**self._positions.frames, number: done + 1}))
        right(self, number, lines)

    with patch.object(SpoolDelivery, "_send", wrong):
        yield


@contextmanager
def _number_is_given_out_again() -> Iterator[None]:
    def wrong(fs: FileSystem, folder: Path, positions: Positions) -> None:
        spools.write_positions(fs, folder, msgspec.structs.replace(positions, next_number=0))

    with patch.object(spool_delivery, "write_positions", wrong):
        yield


@contextmanager
def _finished_is_forgotten_before_the_file_is_gone() -> Iterator[None]:
    right = SpoolDelivery._finish

    def wrong(self: Any, number: int) -> None:
        right(self, number)
        self._move(msgspec.structs.replace(self._positions, finished=(), next_number=0))
        self._fs.remove(self._folder / spools.segment_name(number))

    with patch.object(SpoolDelivery, "_finish", wrong):
        yield


@contextmanager
def _live_segment_is_taken_for_finished() -> Iterator[None]:
    with patch.object(spool_delivery, "lock_name", lambda _: "nobody.lock"):
        yield


@contextmanager
def _refused_is_dropped() -> Iterator[None]:
    with patch.object(SpoolDelivery, "_put_aside", lambda *_: None):
        yield


@pytest.mark.parametrize(
    "bug",
    [
        _append_is_not_synced,
        _name_of_a_segment_is_not_synced,
        _position_before_the_answer,
        _number_is_given_out_again,
        _finished_is_forgotten_before_the_file_is_gone,
        _live_segment_is_taken_for_finished,
        _refused_is_dropped,
    ],
)
def test_a_seeded_bug_is_seen(bug: Callable[[], Any]) -> None:
    with bug():
        outcome = enumerate_crashes(Spooling(), seeds=2, first_alarm_only=True)
    assert outcome.alarms
