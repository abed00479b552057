"""Crashes at each operation of an export, and bugs in it that the enumeration has to see."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import pytest

from custody.export import export_run
from custody.export.cursors import write_cursors
from custody.export.export_run import ExportRun
from custody.export.receiver import EventBatch, RefusedError
from custody.vfs import FileSystem
from tests.crash.enumeration import enumerate_crashes, run_to
from tests.crash.export_scenarios import EVENTS, REFUSED, Exporting
from tests.parts import Part


@pytest.mark.in_parts
def test_a_crash_while_events_are_exported_loses_none_and_repeats_in_order(part: Part) -> None:
    _, deliveries, error = run_to(Exporting())
    assert error is None
    assert deliveries.ids == [number for number in range(EVENTS) if number != REFUSED]
    outcome = enumerate_crashes(Exporting(), seeds=2, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 20


def _cursor_first() -> AbstractContextManager[object]:
    right = ExportRun._hand_over

    def wrong(self: Any, batch: EventBatch, patience: Any) -> tuple[int, int]:
        self._move(batch.writer, batch.last_event_id + 1, 0, 0)
        return right(self, batch, patience)

    return patch.object(ExportRun, "_hand_over", wrong)


def _refused_is_dropped() -> AbstractContextManager[object]:
    def wrong(self: Any, batch: EventBatch, error: RefusedError) -> None:
        """Keep nothing."""

    return patch.object(ExportRun, "_keep", wrong)


def _batch_is_dropped_with_its_refused_event() -> AbstractContextManager[object]:
    def wrong(self: Any, batch: EventBatch, patience: Any) -> tuple[int, int]:
        try:
            self._try(batch, patience)
        except RefusedError as error:
            self._keep(batch, error)
            return 0, 1
        return batch.table.num_rows, 0

    return patch.object(ExportRun, "_hand_over", wrong)


def _cursor_one_too_far() -> AbstractContextManager[object]:
    def wrong(fs: FileSystem, folder: Any, cursors: Any) -> None:
        moved = {writer: number + (number > 0) for writer, number in cursors.next_event_ids.items()}
        write_cursors(fs, folder, type(cursors)(export=cursors.export, next_event_ids=moved))

    return patch.object(export_run, "write_cursors", wrong)


@pytest.mark.parametrize(
    "bug", [_cursor_first, _refused_is_dropped, _batch_is_dropped_with_its_refused_event, _cursor_one_too_far]
)
def test_a_seeded_bug_is_seen(bug: Callable[[], AbstractContextManager[object]]) -> None:
    with bug():
        outcome = enumerate_crashes(Exporting(), seeds=1, first_alarm_only=True)
    assert outcome.alarms
