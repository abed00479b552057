"""One look at each catalog a question: few requests, and still everything that was committed before the question."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch
from uuid import uuid4

import pytest

from custody.catalog import Action, Catalog, RemoveFile
from custody.config import Settings
from custody.errors import ConfigurationError, ConflictError, CorruptionError, NotFoundError, StorageError
from custody.eventlog import refuse
from custody.read.cache import open_log, read_tail_in_parts
from custody.read.tail import Tail
from custody.repository import Repository
from custody.repository.soft_delete import EventSelection
from custody.store import counted
from custody.store.remote import open_remote
from custody.workspace import Workspace, question
from tests.support import append, numbered, run_steps, sample

EVENTS = sample(40)


def of(root: Path, store: str, writer: str = "main") -> Repository:
    return Repository(Settings.model_validate({"root": root, "repository": {"store": store, "writer": writer}}))


@pytest.fixture
def producer(tmp_path: Path) -> Repository:
    repository = of(tmp_path / "producer", f"memory://{uuid4().hex}")
    append(repository, EVENTS[:20])
    run_steps(repository.settings)
    return repository


@pytest.fixture
def elsewhere(producer: Repository, tmp_path: Path) -> Repository:
    """A reader on another machine, which has answered before."""
    repository = of(tmp_path / "reader", producer.settings.repository.store)
    assert repository.get(7) == numbered(EVENTS)[7]
    assert repository.search("", limit=0).total == 20
    return repository


def requests(ask: Callable[[], object]) -> dict[str, int]:
    with counted() as counter:
        ask()
    return counter.traffic.requests


def test_a_warm_question_lists_the_writers_and_looks_at_each_catalog_once(elsewhere: Repository) -> None:
    # A look: the next revision, which is not there, and then the own one, which was not pruned.
    assert requests(lambda: elsewhere.get(7)) == {"get": 2, "list": 1}
    # One more: who claims the name, for what may wait on another machine.
    assert requests(lambda: elsewhere.search("", limit=0)) == {"get": 2, "list": 2}
    assert requests(lambda: elsewhere.get(7, "main")) == {"get": 2}


def test_each_question_shows_what_was_committed_before_it_began(producer: Repository, elsewhere: Repository) -> None:
    append(producer, EVENTS[20:])
    with pytest.raises((NotFoundError, StorageError)):
        elsewhere.get(33)
    run_steps(producer.settings)
    assert elsewhere.get(33) == numbered(EVENTS)[33]
    assert elsewhere.search("", limit=0).total == 40
    other = of(producer.settings.root, producer.settings.repository.store, "second")
    append(other, EVENTS[:5])
    run_steps(other.settings)
    assert elsewhere.search("", limit=0).total == 45, "a writer that appeared since"


def test_within_a_question_everything_is_of_one_state(producer: Repository, elsewhere: Repository) -> None:
    append(producer, EVENTS[20:])
    with question.one_question():
        before = elsewhere.workspace().state()
        run_steps(producer.settings)
        assert elsewhere.workspace().state() is before
        assert elsewhere.workspace().newest_state().revision > before.revision
    assert elsewhere.workspace().state().revision > before.revision


def test_journals_that_become_live_while_a_question_is_answered_are_not_missed(producer: Repository) -> None:
    """The look that was made ahead lists journals that are gone when they are read: the next one has to be new."""
    append(producer, EVENTS[20:])
    right, done = read_tail_in_parts, list[str]()

    def after_a_pass(*arguments: object, **named: object) -> Tail:
        if not done:
            done.append("pass")
            run_steps(producer.settings)
        return right(*arguments, **named)  # type: ignore[arg-type]

    reading = of(producer.settings.root, producer.settings.repository.store)
    assert reading.search("", limit=0).total == 40
    append(producer, EVENTS[:10])
    with patch("custody.read.reader.read_tail_in_parts", after_a_pass):
        assert reading.search("", limit=0).total == 50
    assert done


def test_an_event_that_is_appended_and_rolled_over_between_two_questions_is_found(producer: Repository) -> None:
    reading = of(producer.settings.root, producer.settings.repository.store)
    assert reading.get(3) == numbered(EVENTS)[3]
    append(producer, EVENTS[20:30])
    assert reading.get(25) == numbered(EVENTS)[25], "from its journal"
    run_steps(producer.settings)
    assert reading.get(25) == numbered(EVENTS)[25], "from its log"


def test_a_look_ahead_that_is_used_twice_is_caught(producer: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    def again(self: question.Question, workspace: Workspace) -> object:
        return self._moments.get(id(workspace.catalog))

    monkeypatch.setattr(question.Question, "moment", again)
    with pytest.raises(ConflictError, match="change too fast"):
        test_journals_that_become_live_while_a_question_is_answered_are_not_missed(producer)


@pytest.fixture
def many(tmp_path: Path) -> Iterator[Repository]:
    store = f"memory://{uuid4().hex}"
    for number in range(5):
        repository = of(tmp_path / "producers", store, f"w{number}")
        append(repository, EVENTS[:3])
        run_steps(repository.settings)
    yield of(tmp_path / "reader", store)


def test_the_catalogs_of_many_writers_are_looked_at_once_each(many: Repository) -> None:
    assert many.search("", limit=0).total == 15
    assert requests(lambda: many.search("", limit=0)) == {"get": 10, "list": 6}
    assert many.get(2, "w3").event_id == 2


def test_a_log_that_is_gone_from_the_store_is_named_within_a_minute(
    producer: Repository, elsewhere: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_remote(producer.settings.repository.store, can_put_if_absent=True)
    [log] = [key for key in store.keys("main/provenance/data/") if key.endswith(".parquet")]
    files = elsewhere.workspace().catalog.objects.files
    path = log.removeprefix("main/provenance/")
    assert files.absent([path]) == set()
    store.delete(log)
    assert files.absent([path]) == set(), "it was there a moment ago"
    monkeypatch.setattr("custody.catalog.data_files._SEEN_SECONDS", 0.0)
    assert files.absent([path]) == {path}
    fresh = of(elsewhere.settings.root, producer.settings.repository.store)
    shutil.rmtree(elsewhere.settings.store)
    assert any(Path(log).name in notice for notice in fresh.search("", limit=0).notices)


@pytest.fixture
def on_disk(tmp_path: Path) -> Repository:
    repository = of(tmp_path / "repository", "store")
    append(repository, EVENTS[:20])
    run_steps(repository.settings)
    return repository


def test_a_short_question_looks_at_a_catalog_on_a_disk_once(on_disk: Repository) -> None:
    assert on_disk.get(7) == numbered(EVENTS)[7]
    with patch.object(Catalog, "load", autospec=True, side_effect=Catalog.load) as loaded:
        assert on_disk.get(7) == numbered(EVENTS)[7]
        assert loaded.call_count == 1
        on_disk.get_many([3, 5], "main")
        assert loaded.call_count == 2


def test_each_short_question_shows_what_was_committed_before_it_began(on_disk: Repository) -> None:
    reader = of(on_disk.settings.root, "store")
    with pytest.raises(NotFoundError):
        reader.get(25)
    append(on_disk, EVENTS[20:30])
    assert reader.get(25) == numbered(EVENTS)[25], "from its journal"
    run_steps(on_disk.settings)
    assert reader.get(25) == numbered(EVENTS)[25], "from its log"
    on_disk.forget(EventSelection(event_ids=(25,)), "asked for")
    with pytest.raises(NotFoundError):
        reader.get(25)
    other = of(on_disk.settings.root, "store", "second")
    append(other, EVENTS[:5])
    run_steps(other.settings)
    with pytest.raises(ConfigurationError, match="each of the writers"):
        reader.get(2)


@pytest.mark.parametrize("is_short", [False, True])
def test_a_log_that_expires_while_a_question_is_answered_is_no_damage(on_disk: Repository, is_short: bool) -> None:
    workspace = on_disk.workspace()
    with question.one_question(is_short=is_short):
        [file] = workspace.state().files.values()
        workspace.catalog.commit([Action(remove_file=RemoveFile(path=file.path))])
        workspace.log_place(file.path).unlink()
        assert open_log(workspace, file, refuse) is None
    append(on_disk, EVENTS[20:])
    run_steps(on_disk.settings)
    [file] = workspace.state().files.values()
    workspace.log_place(file.path).unlink()
    with pytest.raises(CorruptionError, match="expected a live event log"):
        open_log(workspace, file, refuse)
