"""A follower, crashed at every operation: rows and stored events are the same, each once; and bugs that are found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from custody.ngsi_sink import notifications
from custody.ngsi_sink.chunk import Span, WriterEvent
from custody.read import settled
from custody.vfs.memory import CrashMode
from tests.crash.enumeration import enumerate_crashes
from tests.crash.follow_scenarios import Following
from tests.parts import Part


@pytest.mark.in_parts(8)
def test_a_crash_of_a_follower_writes_no_row_twice_and_none_without_its_event(part: Part) -> None:
    outcome = enumerate_crashes(Following("always"), modes=(CrashMode.SYNCED_ONLY,), seeds=1, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 100


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["always", "never"])
def test_a_crash_of_a_follower_in_every_way(sync: str) -> None:
    outcome = enumerate_crashes(Following(sync), seeds=3)
    assert not outcome.alarms, str(outcome)


def no_sync(patch: pytest.MonkeyPatch) -> None:
    """Takes what it reads in an open journal for durable."""
    patch.setattr(settled, "_settle", lambda *_: None)


def greatest_id(patch: pytest.MonkeyPatch) -> None:
    """Takes the greatest id for the end of all that can come."""
    patch.setattr(settled, "_run_length", lambda ids, first: int(ids[-1]) + 1 - first if len(ids) else 0)


def no_memory_of_journals(patch: pytest.MonkeyPatch) -> None:
    """Moves its cursor over live events only: what came from a journal is taken again when it is live."""
    save = notifications.LiveNotifications.bounds

    def live_only(self: notifications.LiveNotifications, cursors: object = None) -> dict[str, int]:
        self._settled = {}
        return save(self, None)

    patch.setattr(notifications.LiveNotifications, "bounds", live_only)
    patch.setattr("custody.ngsi_sink.sink.new_events", lambda items, *_: list(items))
    patch.setattr("custody.ngsi_sink.chunk._of", _from_the_first)


def _from_the_first(source: notifications.LiveNotifications, span: Span) -> object:
    live = source._repository.workspace(span.writer).state().next_event_id
    events = source.notified(span.writer, min(span.first, live), span.upto)
    return (WriterEvent(span.writer, event) for event in events)


BUGS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "no sync of what was read": no_sync,
    "the greatest id is the end": greatest_id,
    "what came from a journal comes again": no_memory_of_journals,
}


@pytest.mark.in_parts(3)
@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_in_following_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Following("never" if bug == "no sync of what was read" else "always")
    BUGS[bug](monkeypatch)
    outcome = enumerate_crashes(scenario, modes=(CrashMode.SYNCED_ONLY,), seeds=1, first_alarm_only=True)
    assert outcome.alarms, str(outcome)
