"""Crashes at each operation of reconciliations, and bugs in them that the enumeration has to see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from custody.airflow_runs.reconciliation import Reconciliation
from tests.crash.airflow_runs_scenarios import HOURS, Reconciling, expected
from tests.crash.enumeration import enumerate_crashes, run_to
from tests.parts import Part


@pytest.mark.in_parts
def test_a_crash_of_a_reconciliation_loses_no_event_and_stores_none_twice(part: Part) -> None:
    _, told, error = run_to(Reconciling())
    assert error is None
    assert sorted(told.taken.values()) == expected(HOURS)
    outcome = enumerate_crashes(Reconciling(), seeds=3, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 10


@contextmanager
def _cursor_before_the_events() -> Iterator[None]:
    right = Reconciliation._send

    def wrong(self: Any, events: Any) -> None:
        self._move(self._api.now_ms())
        # What the pass had in hand is gone with the process.
        self._fs.sync_directory(self._folder)
        right(self, events)

    with patch.object(Reconciliation, "_send", wrong):
        yield


@contextmanager
def _cursor_is_not_replaced_as_a_whole() -> Iterator[None]:
    def wrong(self: Any, upto: int) -> None:
        from custody.airflow_runs.reconciliation import CURSOR, CURSOR_FORMAT, RunCursor

        path = self._folder / CURSOR
        if self._fs.exists(path):
            self._fs.remove(path)
        with self._fs.create(path) as file:
            file.write(CURSOR_FORMAT.encode(RunCursor(deployment="airflow", until_ms=upto)))
            file.sync()

    with patch.object(Reconciliation, "_move", wrong):
        yield


@pytest.mark.in_parts(2)
@pytest.mark.parametrize("bug", [_cursor_before_the_events, _cursor_is_not_replaced_as_a_whole])
def test_a_bug_is_seen(bug: Callable[[], Any]) -> None:
    with bug():
        assert enumerate_crashes(Reconciling(), seeds=1).alarms
