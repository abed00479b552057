"""Work that waits: counted from the names on disk, also while a writer lives."""

from __future__ import annotations

from custody.recovery import STEPS
from custody.repository import Repository
from custody.rollover import pending
from tests.support import append, event, run_steps


def counts(repository: Repository) -> tuple[int, int, int, int]:
    waiting = pending(repository.settings)
    return waiting.sealed_groups, waiting.abandoned_journals, waiting.live_journals, waiting.staged_units


def test_a_new_repository_waits_for_nothing(repository: Repository) -> None:
    assert counts(repository) == (0, 0, 0, 0)
    assert not pending(repository.settings).is_any


def test_a_live_writer_s_journal_is_counted_but_is_no_work(repository: Repository) -> None:
    with repository.writer() as writer:
        writer.append([event()])
        assert counts(repository) == (0, 0, 1, 0)
        assert not pending(repository.settings).is_any
        assert STEPS["recover"].units(repository.settings) == []
        writer.seal()
        assert counts(repository) == (1, 0, 0, 0)
        assert pending(repository.settings).is_any


def test_each_state_of_a_group_is_counted(repository: Repository) -> None:
    append(repository, [event()])
    sealed = next(repository.settings.root.rglob("*.sealed"))
    sealed.rename(sealed.with_suffix(".journal"))
    seen = [counts(repository)]
    for name in STEPS:
        run_steps(repository.settings, name)
        seen.append(counts(repository))
    assert seen == [
        (0, 1, 0, 0),
        (1, 0, 0, 0),
        (1, 0, 0, 1),
        (1, 0, 0, 1),
        (1, 0, 0, 1),
        (1, 0, 0, 1),
        (1, 0, 0, 1),
        (0, 0, 0, 0),
    ]
