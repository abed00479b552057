"""Sensors of the rollover: one waits for journals, one looks for leftovers of an interrupted run.

They begin in the triggerer, which looks without a process of its own for each task: a run that finds nothing to do is
skipped without one. The library is imported only when a task runs: a DAG file, which is parsed every few seconds, must
not load Arrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar

from airflow.sdk import BaseSensorOperator, Context
from airflow.sdk.exceptions import AirflowSkipException
from airflow.triggers.base import StartTriggerArgs

from custody_airflow.environment import repository_folder, run_spool
from custody_airflow.failures import permanent_failures
from custody_airflow.triggers import FAILED, JournalTrigger, LeftoverTrigger, WorkTrigger


class WorkSensor(BaseSensorOperator):
    """Succeeds when a repository has work of one kind, skips the run when it has none.

    :param wait_seconds: how long to wait for something to do (templated); 0 looks once. Waiting is
        deferred to the triggerer and holds no worker.
    """

    template_fields: Sequence[str] = ("wait_seconds",)
    trigger_class: ClassVar[type[WorkTrigger]]
    """Looks for work, and waits for it in the triggerer."""

    def __init__(self, *, wait_seconds: str | int = 0, **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's signature
        super().__init__(**{"soft_fail": True, **kwargs})
        self.wait_seconds = wait_seconds
        # A try that begins and ends in the triggerer tells no listener: where tries are kept as events, none does.
        self.start_from_trigger = run_spool() is None
        self.start_trigger_args = StartTriggerArgs(
            trigger_cls=f"{self.trigger_class.__module__}.{self.trigger_class.__qualname__}",
            # The repository is looked up where the trigger runs: a DAG file is read without one, too.
            trigger_kwargs={"repository": "", "poke_seconds": self.poke_interval, "wait_seconds": wait_seconds},
            next_method="resume",
        )

    @permanent_failures()
    def execute(self, context: Context) -> dict[str, Any]:
        """Look once, then wait in the triggerer if the run asks for it; return what waits.

        Airflow itself begins in the triggerer; `dag.test()` begins here, and so does a look there that failed.
        """
        folder = repository_folder()
        work = self.trigger_class.look(folder)
        if work is None:
            seconds = int(self.wait_seconds)
            if seconds <= 0:
                raise AirflowSkipException(self.trigger_class.nothing)
            self.defer(
                trigger=self.trigger_class(repository=str(folder), poke_seconds=self.poke_interval),
                method_name="resume",
                timeout=timedelta(seconds=seconds),
            )
        assert work is not None  # noqa: S101 - `defer` raises
        return self.result(work)

    def resume(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Return the work that the trigger found; where its look failed, look again here, so that the task fails."""
        if FAILED in event:
            self.log.warning("the triggerer could not look: %s", event[FAILED])
            return self.execute(context)
        return self.result(event)

    def result(self, event: dict[str, Any]) -> dict[str, Any]:
        """Return what waits as the task's result."""
        self.log.info("waiting: %s", event)
        return event


class JournalSensor(WorkSensor):
    """Succeeds when journals or leftovers of an interrupted run wait, skips the run when nothing does."""

    trigger_class = JournalTrigger


class LeftoverSensor(WorkSensor):
    """Succeeds when an interrupted run or a dead writer left something, and is skipped when nothing was left.

    It looks once. Skipped, it skips the task `recover` behind it and no other one.
    """

    trigger_class = LeftoverTrigger


def as_dict(value: object) -> dict[str, Any]:
    """Return a report as plain values, which Airflow keeps as XCom."""
    import msgspec

    plain: dict[str, Any] = msgspec.to_builtins(value)
    return plain
