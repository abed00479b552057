"""The sensor of hand-overs: it waits in the triggerer, fails with what is late, and passes over what is young."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from custody.clock import SystemClock
from custody.repository import Repository
from tests.dags.test_sensors import fired, started
from tests.support import append, event

pytestmark = pytest.mark.filterwarnings("default")
HOUR_MS = 3_600_000


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    os.environ.setdefault("AIRFLOW_HOME", str(tmp_path / "airflow"))
    root = tmp_path / "repository"
    root.mkdir()
    (root / "custody.toml").write_text(
        f'[repository]\nstore = "{tmp_path / "store"}"\n[journal]\nhandoff = "store"\n[content]\nhandoff = "store"\n'
    )
    monkeypatch.setenv("CUSTODY_REPOSITORY", str(root))
    return Repository.open(root)


def store_content(repository: Repository) -> None:
    with repository.writer() as writer:
        writer.content.put_many([b"a content"])
        writer.append([event(1)])


def later(monkeypatch: pytest.MonkeyPatch, ms: int) -> None:
    now_ms = SystemClock.now_ms
    monkeypatch.setattr(SystemClock, "now_ms", lambda clock: now_ms(clock) + ms)


def test_what_waits_fails_the_task_which_names_it_and_a_hand_over_mends_it(repository: Repository) -> None:
    from airflow.sdk.exceptions import AirflowException

    from custody_airflow.handoff import HandoffSensor

    sensor = HandoffSensor(task_id="handed_over")
    assert not sensor.soft_fail
    store_content(repository)
    with pytest.raises(AirflowException, match=r"1 groups with 1 events and 1 files of contents.*custody handoff"):
        sensor.resume({}, fired(started(sensor)).payload)
    with pytest.raises(AirflowException, match="1 groups with 1 events"):
        sensor.execute({})
    repository.hand_over()
    with pytest.raises(AirflowException, match=r"main: 1 files of contents"):
        sensor.execute({})
    repository.hand_over_contents()
    assert sensor.resume({}, fired(started(sensor)).payload)["writers"] == []
    assert sensor.execute({})["writers"] == []


def test_what_is_young_is_passed_over_and_told(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.exceptions import AirflowException

    from custody_airflow.handoff import HandoffSensor

    sensor = HandoffSensor(task_id="handed_over", older_seconds=3600)
    with repository.writer() as writer:
        writer.append([event(1), event(2)])
        found = sensor.resume({}, fired(started(sensor)).payload)
        assert [(item["writer"], item["groups"], item["events"]) for item in found["writers"]] == [("main", 1, 2)]
        later(monkeypatch, HOUR_MS + 60_000)
        with pytest.raises(AirflowException, match=r"more than 3600 s, found main: 1 groups with 2 events, the oldest"):
            sensor.resume({}, fired(started(sensor)).payload)


def test_it_waits_in_the_triggerer_until_everything_is_handed_over(repository: Repository) -> None:
    from airflow.sdk.exceptions import TaskDeferred

    from custody_airflow.handoff import HandoffSensor

    append(repository, [event(1)])
    sensor = HandoffSensor(task_id="handed_over", poke_interval=0.05, wait_seconds=60)
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute({})
    for trigger in (deferred.value.trigger, started(sensor, "60")):
        append(repository, [event(2)])

        async def both(trigger: Any = trigger) -> Any:
            waiting = asyncio.create_task(anext(trigger.run()))
            await asyncio.sleep(0.2)
            assert not waiting.done()
            await asyncio.to_thread(repository.hand_over)
            return await asyncio.wait_for(waiting, 30)

        assert sensor.resume({}, asyncio.run(both()).payload)["writers"] == []


def test_a_wait_that_is_over_fails_and_does_not_skip(repository: Repository) -> None:
    from airflow.sdk.exceptions import AirflowException

    from custody_airflow.handoff import HandoffSensor

    append(repository, [event(1)])
    sensor = HandoffSensor(task_id="handed_over", poke_interval=0.05)
    answer = fired(started(sensor, "1"))
    with pytest.raises(AirflowException, match="1 groups with 1 events"):
        sensor.resume({}, answer.payload)


def test_a_deployment_that_hands_nothing_over_skips_it_without_a_worker(repository: Repository) -> None:
    from airflow.sdk.exceptions import AirflowSkipException
    from airflow.triggers.base import TaskSkippedEvent

    from custody_airflow.handoff import HandoffSensor

    append(repository, [event(1)])
    (repository.settings.root / "custody.toml").write_text("")
    sensor = HandoffSensor(task_id="handed_over")
    assert isinstance(fired(started(sensor)), TaskSkippedEvent)
    with pytest.raises(AirflowSkipException, match=r"handoff are off"):
        sensor.execute({})


def test_a_look_that_fails_fails_the_task(repository: Repository) -> None:
    from custody.errors import CustodyError
    from custody_airflow.handoff import HandoffSensor

    (repository.settings.root / "custody.toml").write_text("[repository\n")
    sensor = HandoffSensor(task_id="handed_over")
    answer = fired(started(sensor)).payload
    assert "look_failed" in answer
    with pytest.raises(CustodyError, match=r"custody\.toml"):
        sensor.resume({}, answer)


def test_the_bound_is_rendered_and_kept_with_the_trigger(repository: Repository) -> None:
    from custody_airflow.handoff import HandoffSensor

    sensor = HandoffSensor(task_id="handed_over", older_seconds="{{ params.bound }}", poke_interval=5)
    trigger = started(sensor)
    assert set(sensor.template_fields) <= vars(trigger).keys(), "Airflow renders what both have"
    assert trigger.serialize()[1]["older_seconds"] == "{{ params.bound }}"


@pytest.mark.parametrize(("bound", "tasks"), [(None, True), ("60", True), ("", False)])
def test_the_maintenance_looks_by_the_deployment_s_bound(
    bound: str | None, *, tasks: bool, load_dag: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUSTODY_HANDOFF_BOUND", raising=False)
    dag = load_dag("provenance_maintenance", **({} if bound is None else {"CUSTODY_HANDOFF_BOUND": bound}))
    assert ("handed_over" in dag.task_ids) == tasks
    if tasks:
        sensor = dag.get_task("handed_over")
        assert float(sensor.older_seconds) == float(bound or 3600)
        assert not sensor.upstream_task_ids | sensor.downstream_task_ids
