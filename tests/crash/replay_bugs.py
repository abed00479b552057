"""Bugs of replay; each is in place as long as its context lasts."""

from __future__ import annotations

import dataclasses
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import msgspec

from custody.flowfile_repository import FlowFileRepository, Work, flowfile_repository
from custody.flowfile_repository.records import SnapshotSummary
from custody.flowfile_repository.state import FlowFileState
from custody.replay import replay_run
from tests.crash import replay_scenarios


def _committing(*works: Any) -> AbstractContextManager[object]:
    """Let a replay make several transactions of one; each part of it is made of the right work."""
    right = FlowFileRepository.commit

    def wrong(self: FlowFileRepository, work: Work) -> range:
        if work.replayed is None:
            return right(self, work)
        for part in works:
            part(self, right, work)
        return range(0)

    return patch.object(FlowFileRepository, "commit", wrong)


def _flowfiles(self: FlowFileRepository, right: Any, work: Work) -> None:
    right(self, dataclasses.replace(work, replayed=None))


def _progress(self: FlowFileRepository, right: Any, work: Work) -> None:
    right(self, dataclasses.replace(work, placed=(), events=()))


def _all_but_the_events(self: FlowFileRepository, right: Any, work: Work) -> None:
    right(self, dataclasses.replace(work, events=()))


def _events(self: Any, _right: Any, work: Work) -> None:
    self._provenance.append(work.events)


def progress_behind_the_flowfiles() -> AbstractContextManager[object]:
    return _committing(_flowfiles, _progress)


def progress_before_the_flowfiles() -> AbstractContextManager[object]:
    return _committing(_progress, _flowfiles)


def events_behind_the_flowfiles() -> AbstractContextManager[object]:
    return _committing(_all_but_the_events, _events)


def events_before_the_flowfiles() -> AbstractContextManager[object]:
    return _committing(_events, _all_but_the_events)


def progress_is_no_part_of_a_snapshot() -> AbstractContextManager[object]:
    right = FlowFileState.summary

    def wrong(self: FlowFileState) -> SnapshotSummary:
        return msgspec.structs.replace(right(self), replays={})

    return patch.object(FlowFileState, "summary", wrong)


def progress_told_by_what_waits() -> AbstractContextManager[object]:
    def wrong(self: FlowFileState, plan: str) -> int:
        return max((n for n, uuid in enumerate(replay_scenarios.sent_uuids(), 1) if uuid in self.places), default=0)

    return patch.object(FlowFileState, "replayed", wrong)


def no_look_at_the_progress_under_the_lock() -> AbstractContextManager[object]:
    return patch.object(flowfile_repository, "_check_replay", lambda *_: None)


def no_look_at_the_contents_under_the_lock() -> AbstractContextManager[object]:
    return patch.object(FlowFileRepository, "_require_contents", lambda *_: None)


def contents_looked_at_once() -> AbstractContextManager[object]:
    """As it is where what goes meanwhile is told without a code: the next look knows nothing of it."""
    right = replay_run._judge
    finders: dict[int, Any] = {}

    def wrong(flowfiles: Any, finder: Any) -> Any:
        kept = finders.setdefault(id(flowfiles), finder())
        return right(flowfiles, lambda: kept)

    return patch.object(replay_run, "_judge", wrong)
