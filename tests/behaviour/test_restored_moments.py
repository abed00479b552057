"""Parts of a repository that are brought back to earlier moments: no answer is silent, no id is given out twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from unittest.mock import patch

import pytest

from custody.catalog import Catalog
from custody.read import reader, results
from custody.store.witness import Witnesses
from custody.workspace import Workspace
from tests.behaviour.restored_moments import try_restores

IN_EACH_RUN = 100
RESTORES = 2000


def test_a_hundred_restores_of_some_folders_are_answered_rightly_or_with_a_notice(tmp_path: Path) -> None:
    assert not list(try_restores(range(IN_EACH_RUN), tmp_path))


@pytest.mark.slow
def test_two_thousand_restores_of_some_folders_are_answered_rightly_or_with_a_notice(tmp_path: Path) -> None:
    assert not list(try_restores(range(IN_EACH_RUN, RESTORES), tmp_path))


def commits_are_not_witnessed() -> AbstractContextManager[object]:
    return patch.object(Witnesses, "try_to_note", lambda *_: None)


@contextmanager
def containers_have_no_witness() -> Iterator[None]:
    """Only the repository's folder has one."""
    right = Witnesses._places

    def wrong(self: Witnesses) -> Iterator[Path]:
        yield from list(right(self))[:1]

    with patch.object(Witnesses, "_places", wrong):
        yield


@contextmanager
def acceptances_are_not_compared() -> Iterator[None]:
    right = Witnesses.look
    with patch.object(Witnesses, "look", lambda self: right(self)._replace(passed_by=None)):
        yield


def containers_are_not_compared() -> AbstractContextManager[object]:
    return patch.object(Workspace, "_earlier_disk", lambda *_: None)


@contextmanager
def answers_say_nothing() -> Iterator[None]:
    silent = partial(patch.object, attribute="report_earlier", new=lambda *_: None)
    with silent(results), silent(reader):
        yield


@contextmanager
def earlier_states_are_written_to() -> Iterator[None]:
    lenient = partial(patch.object, attribute="require_newest", new=lambda *_: None)
    with lenient(Catalog), lenient(Workspace):
        yield


@pytest.mark.parametrize(
    "mistake",
    [
        commits_are_not_witnessed,
        containers_have_no_witness,
        acceptances_are_not_compared,
        containers_are_not_compared,
        answers_say_nothing,
        earlier_states_are_written_to,
    ],
)
def test_a_seeded_mistake_in_the_rule_is_found(
    mistake: Callable[[], AbstractContextManager[object]], tmp_path: Path
) -> None:
    with mistake():
        assert list(islice(try_restores(range(IN_EACH_RUN), tmp_path), 1))
