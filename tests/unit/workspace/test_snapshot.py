"""The snapshot rule: an event that moves from a journal to a log while others read is found, once."""

from __future__ import annotations

import errno

import pytest

from custody.errors import ConflictError, StorageError
from custody.repository import Repository
from custody.workspace import Moment, Workspace, attempts, look, look_undisturbed, read_at_one_moment
from tests.support import append, event, run_steps


@pytest.fixture
def workspace(repository: Repository) -> Workspace:
    append(repository, [event()])
    return Workspace(repository.settings, "main")


def gone() -> StorageError:
    return StorageError(errno.ENOENT, "gone")


def test_a_group_that_becomes_live_after_the_listing_waits_no_more(
    repository: Repository, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = workspace.groups()
    assert look(workspace).waiting == listed

    def list_and_roll_over() -> object:
        run_steps(repository.settings)
        return listed, []

    monkeypatch.setattr(workspace, "own_and_foreign_groups", list_and_roll_over)
    moment = look(workspace)
    assert (moment.groups, moment.waiting) == (listed, [])
    assert [file.rows for file in moment.state.files.values()] == [1]


def test_a_journal_that_is_gone_starts_the_look_again(workspace: Workspace) -> None:
    moments: list[Moment] = []

    def read(moment: Moment) -> int:
        moments.append(moment)
        if len(moments) < 3:
            raise gone()
        return len(moment.waiting)

    assert read_at_one_moment(workspace, read) == (moments[-1].state, 1)
    assert len(moments) == 3


def test_journals_that_change_too_fast_are_a_conflict_and_other_errors_go_through(workspace: Workspace) -> None:
    with pytest.raises(ConflictError, match="'main': its journals change too fast"):
        for attempt in attempts(workspace):
            with attempt:
                raise gone()
    with pytest.raises(StorageError, match="full"):
        read_at_one_moment(workspace, lambda _: (_ for _ in ()).throw(StorageError(errno.ENOSPC, "full")))


def test_an_undisturbed_look_has_one_revision_before_and_after(
    repository: Repository, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, looks = workspace.own_and_foreign_groups, [0]

    def groups() -> object:
        looks[0] += 1
        if looks[0] == 1:
            run_steps(repository.settings)
        return right()

    monkeypatch.setattr(workspace, "own_and_foreign_groups", groups)
    moment = look_undisturbed(workspace)
    assert (moment.state.revision, moment.waiting, looks) == (0, [], [2])


def test_a_name_is_held_as_long_as_its_lock_is(repository: Repository, workspace: Workspace) -> None:
    assert not workspace.is_held()
    with repository.writer():
        assert workspace.is_held()
    assert not workspace.is_held()
