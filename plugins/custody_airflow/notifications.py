"""The sensor of `ngsi_to_hdfs`: do notifications wait for the sink?

The library is imported when a task runs: a DAG file that is parsed every few seconds has no use for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import BaseSensorOperator, Context
from airflow.sdk.exceptions import AirflowSkipException
from airflow.triggers.base import BaseTrigger, TriggerEvent

from custody_airflow.environment import repository_folder
from custody_airflow.polling import SharedLooks

_LOOKS: SharedLooks[dict[str, Any] | None] = SharedLooks()
_NOTHING = "no notifications wait and nothing was submitted again: nothing to write"


class NotificationSensor(BaseSensorOperator):
    """Succeeds when live notifications wait for the sink, or work of it was broken off; skips the run otherwise.

    :param wait_seconds: how long to wait for something to do (templated); 0 looks once. Waiting is deferred to the
        triggerer and holds no worker.
    """

    template_fields = ("wait_seconds",)

    def __init__(self, *, wait_seconds: str | int = 0, **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's signature
        super().__init__(soft_fail=True, **kwargs)
        self.wait_seconds = wait_seconds

    def execute(self, context: Context) -> dict[str, Any]:
        """Look once, then wait in the triggerer if the run asks for it; return what waits."""
        folder = repository_folder()
        found = look(folder)
        if found is None:
            seconds = int(self.wait_seconds)
            if seconds <= 0:
                raise AirflowSkipException(_NOTHING)
            self.defer(
                trigger=NotificationTrigger(repository=str(folder), poke_seconds=self.poke_interval),
                method_name="resume",
                timeout=timedelta(seconds=seconds),
            )
        assert found is not None  # noqa: S101 - `defer` raises
        return self.resume(context, found)

    def resume(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Return what waits, as it was found here or by the trigger; without a sink there is nobody to write it."""
        if not event["is_configured"]:
            raise AirflowSkipException("ngsi.hdfs_username is not set: the repository has no sink. See docs/ngsi.md.")
        self.log.info("waiting: %s", event)
        return event


class NotificationTrigger(BaseTrigger):
    """Fires once notifications wait in a repository; holds only a path and a number."""

    def __init__(self, repository: str, poke_seconds: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow types its triggers in parts
        self.repository = repository
        self.poke_seconds = poke_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what the database keeps of this trigger."""
        name = f"{type(self).__module__}.{type(self).__qualname__}"
        return name, {"repository": self.repository, "poke_seconds": self.poke_seconds}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look again and again; the event is what waits."""
        while True:
            found = await _LOOKS.ask(self.repository, lambda: look(Path(self.repository)), self.poke_seconds / 2)
            if found is not None:
                yield TriggerEvent(found)
                return
            await asyncio.sleep(self.poke_seconds)


def look(repository: Path) -> dict[str, Any] | None:
    """Return what waits for the sink of a repository, None when nothing does."""
    from custody.repository import Repository
    from custody.repository.persisting import waits

    opened = Repository.open(repository)
    found = waits(opened)
    if not found.is_any:
        return None
    return {
        "notifications": found.notifications,
        "again": found.again,
        "unfinished": found.unfinished,
        "is_configured": opened.settings.ngsi.hdfs_username is not None,
    }
