"""`custody.session`: one line opens the queues, names the component and ends the work."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import custody
from custody.errors import ConfigurationError, LockedError, NotFoundError
from custody.flow import Component
from custody.repository import Repository
from custody.repository.shared_session import airflow_component

TASK = {
    "AIRFLOW_CTX_DAG_ID": "orders",
    "AIRFLOW_CTX_TASK_ID": "load.parse",
    "AIRFLOW_CTX_DAG_RUN_ID": "manual__2026-03-02",
}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    for name in (*TASK, "CUSTODY_REPOSITORY"):
        monkeypatch.delenv(name, raising=False)
    made = Repository.create(tmp_path / "repository")
    with made.flowfiles() as flow:
        flow.connect("orders")
    return made


def waiting(repository: Repository) -> list[str]:
    return [item.flowfile.attributes["filename"] for item in repository.queues().flowfiles("orders", 100)]


def load(root: Path | Repository | None, component: Component | str | None, name: str) -> str:
    with custody.session(root, component) as session:
        flowfile = session.create({"filename": name})
        session.transfer(flowfile, "orders")
    return flowfile.uuid


def test_a_block_is_committed_at_its_end_and_undone_when_it_raises(repository: Repository) -> None:
    root = repository.settings.root
    load(root, "load", "1.csv")
    with pytest.raises(ZeroDivisionError), custody.session(root, "parse") as session:
        session.get("orders")
        assert [item.state for item in repository.queues().flowfiles("orders", 9)] == ["taken"]
        raise ZeroDivisionError
    assert waiting(repository) == ["1.csv"]
    with custody.session(root, "parse") as session:
        flowfile = session.get("orders")
        assert flowfile is not None
        session.remove(flowfile, "done")
    assert waiting(repository) == []
    found = repository.search("").events
    assert {(stored.event.event_type, stored.event.component_id) for stored in found} == {
        ("CREATE", "load"),
        ("DROP", "parse"),
    }


def test_a_task_of_airflow_is_the_component_and_its_run_the_process_group(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**TASK, "CUSTODY_REPOSITORY": str(repository.settings.root)}.items():
        monkeypatch.setenv(name, value)
    load(None, None, "1.csv")
    event = repository.get(0)
    assert (event.component_id, event.component_type, event.component_name) == (
        "orders.load.parse",
        "AirflowTask",
        "load.parse",
    )
    assert (event.process_group_id, event.process_group_name) == ("manual__2026-03-02", "orders")
    assert airflow_component({"AIRFLOW_CTX_DAG_ID": "orders"}) is None


def test_without_component_or_repository_nothing_is_guessed(repository: Repository, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="component: expected one, or a task of Airflow"):
        load(repository, None, "1.csv")
    with pytest.raises(ConfigurationError, match="repository: expected a folder, or one in CUSTODY_REPOSITORY"):
        load(None, "load", "1.csv")
    with pytest.raises(NotFoundError):
        load(tmp_path / "elsewhere", "load", "1.csv")


def test_threads_share_one_slot_and_the_last_one_gives_it_back(repository: Repository) -> None:
    assert repository.settings.repository.writer_slots == 1
    names = [f"{number}.csv" for number in range(8)]
    meeting = threading.Barrier(len(names))

    def work(name: str) -> None:
        with custody.session(repository, "load") as session:
            meeting.wait(30)  # all sessions are open at once
            session.transfer(session.create({"filename": name}), "orders")

    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(waiting(repository)) == names
    with repository.writer(), pytest.raises(LockedError):  # the slot was free again
        load(repository, "load", "9.csv")
    load(repository, "load", "9.csv")


def test_the_package_has_a_session_and_says_what_it_has_not() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'sessions'"):
        custody.sessions  # type: ignore[attr-defined]  # noqa: B018
