"""Sensors of the rollover: one waits for journals, one looks for leftovers of an interrupted run.

The library is imported only when a task runs: a DAG file, which is parsed every few seconds, must not load Arrow.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

from airflow.sdk import BaseSensorOperator, Context
from airflow.sdk.exceptions import AirflowSkipException

from custody_airflow.environment import repository_folder
from custody_airflow.triggers import JournalTrigger, WorkTrigger


class WorkSensor(BaseSensorOperator):
    """Succeeds when a repository has work of one kind, skips the run when it has none.

    :param wait_seconds: how long to wait for something to do (templated); 0 looks once. Waiting is
        deferred to the triggerer and holds no worker.
    """

    template_fields = ("wait_seconds",)
    trigger_class: ClassVar[type[WorkTrigger]]
    """Looks for work, and waits for it in the triggerer."""
    nothing: ClassVar[str]
    """The message of a run that is skipped."""

    def __init__(self, *, wait_seconds: str | int = 0, **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's signature
        super().__init__(soft_fail=True, **kwargs)
        self.wait_seconds = wait_seconds

    def execute(self, context: Context) -> dict[str, Any]:
        """Look once, then wait in the triggerer if the run asks for it; return what waits."""
        folder = repository_folder()
        work = self.trigger_class.look(folder)
        if work is None:
            seconds = int(self.wait_seconds)
            if seconds <= 0:
                raise AirflowSkipException(self.nothing)
            self.defer(
                trigger=self.trigger_class(repository=str(folder), poke_seconds=self.poke_interval),
                method_name="resume",
                timeout=timedelta(seconds=seconds),
            )
        assert work is not None  # noqa: S101 - `defer` raises
        return self.resume(context, work)

    def resume(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Return the work that this sensor or its trigger found."""
        self.log.info("waiting: %s", event)
        return event


class JournalSensor(WorkSensor):
    """Succeeds when journals or leftovers of an interrupted run wait, skips the run when nothing does."""

    trigger_class = JournalTrigger
    nothing = "no journals and no leftovers: nothing to roll over"


class LeftoverSensor(BaseSensorOperator):
    """Succeeds when an interrupted run or a dead writer left something, and is skipped when nothing was left.

    It looks once, at names only. Skipped, it skips the task `recover` behind it and no other one.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Look, and return where something was left."""
        from custody.config import load_settings
        from custody.recovery import peek_leftovers

        remains = peek_leftovers(load_settings(repository_folder()))
        if not remains.is_any:
            raise AirflowSkipException("no interrupted run and no dead writer left anything")
        self.log.info("left over: %s", remains)
        return as_dict(remains)


def as_dict(value: object) -> dict[str, Any]:
    """Return a report as plain values, which Airflow keeps as XCom."""
    import msgspec

    plain: dict[str, Any] = msgspec.to_builtins(value)
    return plain
