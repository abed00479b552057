"""Sensors begin in the triggerer: what they find ends the task there, and an error makes it fail in a worker."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest

from custody.repository import Repository
from tests.support import append, event

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(autouse=True)
def deployment(repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    os.environ.setdefault("AIRFLOW_HOME", str(tmp_path / "airflow"))
    monkeypatch.setenv("CUSTODY_REPOSITORY", str(repository.settings.root))


def started(sensor: Any, wait_seconds: str = "0") -> Any:
    """The trigger that Airflow makes of a sensor's arguments, after it has rendered them."""
    module, _, name = sensor.start_trigger_args.trigger_cls.rpartition(".")
    trigger_class = getattr(__import__(module, fromlist=[name]), name)
    return trigger_class(**{**sensor.start_trigger_args.trigger_kwargs, "wait_seconds": wait_seconds})


def fired(trigger: Any) -> Any:
    async def one() -> Any:
        return [answer async for answer in trigger.run()]

    [answer] = asyncio.run(one())
    return answer


def test_a_sensor_starts_in_the_triggerer_and_its_form_s_value_is_rendered_there() -> None:
    from custody_airflow.sensors import JournalSensor

    sensor = JournalSensor(task_id="wait", wait_seconds="{{ params.wait_seconds }}", poke_interval=5)
    assert sensor.start_from_trigger
    arguments: Any = sensor.start_trigger_args
    assert arguments.trigger_kwargs == {
        "repository": "",
        "poke_seconds": 5,
        "wait_seconds": "{{ params.wait_seconds }}",
    }
    trigger = started(sensor)
    assert set(sensor.template_fields) <= vars(trigger).keys(), "Airflow renders what both have"
    assert trigger.serialize()[1] == {"repository": "", "poke_seconds": 5, "wait_seconds": "0"}


def test_where_tries_are_kept_as_events_a_sensor_begins_in_a_worker(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from custody_airflow.sensors import JournalSensor

    monkeypatch.setenv("CUSTODY_RUN_SPOOL", str(tmp_path))
    assert not JournalSensor(task_id="wait").start_from_trigger


def test_nothing_to_do_skips_the_task_without_a_worker_and_work_is_its_result(repository: Repository) -> None:
    from airflow.triggers.base import TaskSkippedEvent

    from custody_airflow.sensors import JournalSensor, LeftoverSensor

    journals, leftovers = JournalSensor(task_id="wait"), LeftoverSensor(task_id="left")
    assert isinstance(fired(started(journals)), TaskSkippedEvent)
    append(repository, [event()])
    assert journals.resume({}, fired(started(journals)).payload)["sealed_groups"] == 1
    assert isinstance(fired(started(leftovers)), TaskSkippedEvent)
    [sealed] = repository.settings.root.rglob("*.sealed")
    sealed.rename(sealed.with_suffix(".journal"))  # as of a writer that died before it sealed
    assert list(leftovers.resume({}, fired(started(leftovers)).payload)["paths"]) == [
        str(sealed.with_suffix(".journal"))
    ]


def test_a_task_that_waits_ends_when_work_comes_or_its_time_is_over(repository: Repository) -> None:
    from airflow.triggers.base import TaskSkippedEvent

    from custody_airflow.sensors import JournalSensor

    sensor = JournalSensor(task_id="wait", poke_interval=0.05)
    begun = time.monotonic()
    assert isinstance(fired(started(sensor, "1")), TaskSkippedEvent)
    assert time.monotonic() - begun >= 1

    async def both() -> Any:
        waiting = asyncio.create_task(anext(started(sensor, "60").run()))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await asyncio.to_thread(append, repository, [event()])
        return await asyncio.wait_for(waiting, 30)

    assert asyncio.run(both()).payload["sealed_groups"] == 1


def test_what_may_still_skip_the_run_goes_back_to_the_task(repository: Repository) -> None:
    from airflow.triggers.base import TaskSkippedEvent

    from custody_airflow.notifications import NotificationSensor

    assert isinstance(fired(started(NotificationSensor(task_id="wait"))), TaskSkippedEvent)


def test_a_look_that_fails_in_the_triggerer_fails_the_task_and_does_not_skip_it(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from custody_airflow.sensors import JournalSensor

    sensor = JournalSensor(task_id="wait")
    (repository.settings.root / "custody.toml").write_text("[repository\n")
    answer = fired(started(sensor)).payload
    assert "custody.toml" in answer["look_failed"]
    with pytest.raises(AirflowFailException, match=r"custody\.toml"):
        sensor.resume({}, answer)
    (repository.settings.root / "custody.toml").write_text("")
    append(repository, [event()])
    assert sensor.resume({}, answer)["sealed_groups"] == 1, "it looks again"
    monkeypatch.delenv("CUSTODY_REPOSITORY")
    answer = fired(started(sensor)).payload
    with pytest.raises(AirflowFailException, match="CUSTODY_REPOSITORY"):
        sensor.resume({}, answer)
