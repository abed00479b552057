"""What waits to be handed over, with its age."""

from __future__ import annotations

import os
from pathlib import Path

from custody.flow.content import claims_on_disk
from custody.repository import Repository
from custody.rollover import HandoffBacklog, handoff_backlogs
from custody.vfs import PosixFileSystem
from tests.support import append, event, run_steps

SETTINGS = '[repository]\nstore = "{store}"\n[journal]\nhandoff = "store"\n[content]\nhandoff = "store"\n'


def opened(tmp_path: Path) -> Repository:
    (tmp_path / "custody.toml").write_text(SETTINGS.format(store=tmp_path / "elsewhere"))
    return Repository.open(tmp_path)


def backlog_of(repository: Repository) -> HandoffBacklog:
    backlog = handoff_backlogs(repository.settings)
    assert backlog is not None
    [of_main] = backlog
    return of_main


def test_open_and_sealed_groups_and_contents_wait_since_the_oldest_of_them(tmp_path: Path) -> None:
    repository = opened(tmp_path)
    assert handoff_backlogs(repository.settings) == []
    with repository.writer() as writer:
        writer.append([event(1), event(2)])
        writer.seal()
        writer.append([event(3)])
        writer.content.put_many([b"a content"])
        found = backlog_of(repository)
        assert (found.groups, found.events, found.content_files) == (2, 3, 1)
        assert found.oldest_ms is not None
        begun_ms = found.oldest_ms
        assert not found.is_overdue(begun_ms + 60_000, 60)
        assert found.is_overdue(begun_ms + 60_001, 60)
        assert found.is_overdue(begun_ms + 1, 0)
        # Its group was begun just now, and its content got its last bytes an hour before.
        repository.hand_over()
        store = repository.settings.content_store
        [claim] = claims_on_disk(PosixFileSystem(), store, "main")
        os.utime(claim.path(store), (begun_ms / 1000 - 3600,) * 2)
        found = backlog_of(repository)
        assert found.groups == 1
        assert found.oldest_ms is not None
        assert abs(found.oldest_ms - begun_ms + 3_600_000) <= 1
    repository.hand_over()
    repository.hand_over_contents()
    assert backlog_of(repository) == HandoffBacklog(writer="main")
    run_steps(repository.settings)
    assert not backlog_of(repository).is_overdue(1 << 60, 0)


def test_a_group_of_which_no_journal_says_when_it_was_begun_is_overdue(tmp_path: Path) -> None:
    found = HandoffBacklog(writer="main", groups=1, events=0)
    assert found.is_overdue(0, 10**9)
    assert found.line(0) == "main: 1 groups with 0 events"


def test_settings_that_hand_nothing_over_have_no_backlog(repository: Repository) -> None:
    append(repository, [event(1)])
    assert handoff_backlogs(repository.settings) is None
