"""The journal sensor: is there anything to roll over?"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
from airflow.sdk import BaseSensorOperator, Context
from airflow.sdk.exceptions import AirflowSkipException

from custody.config import load_settings
from custody.rollover import pending
from custody_airflow.environment import repository_folder
from custody_airflow.triggers import JournalTrigger


class JournalSensor(BaseSensorOperator):
    """Succeeds when journals or leftovers of an interrupted run wait, skips the run when nothing does.

    :param wait_seconds: how long to wait for something to do (templated); 0 looks once. Waiting is
        deferred to the triggerer and holds no worker.
    """

    template_fields = ("wait_seconds",)

    def __init__(self, *, wait_seconds: str | int = 0, **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's signature
        super().__init__(soft_fail=True, **kwargs)
        self.wait_seconds = wait_seconds

    def execute(self, context: Context) -> dict[str, Any]:
        """Look once, then wait in the triggerer if the run asks for it; return what waits."""
        folder = repository_folder()
        found = pending(load_settings(folder))
        if not found.is_any:
            seconds = int(self.wait_seconds)
            if seconds <= 0:
                raise AirflowSkipException("no journals and no leftovers: nothing to roll over")
            self.defer(
                trigger=JournalTrigger(repository=str(folder), poke_seconds=self.poke_interval),
                method_name="resume",
                timeout=timedelta(seconds=seconds),
            )
        self.log.info("waiting: %s", found)
        return as_dict(found)

    def resume(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Return what the trigger found."""
        self.log.info("waiting: %s", event)
        return event


def as_dict(value: object) -> dict[str, Any]:
    """Return a report as plain values, which Airflow keeps as XCom."""
    plain: dict[str, Any] = msgspec.to_builtins(value)
    return plain
