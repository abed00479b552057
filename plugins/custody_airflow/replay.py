"""Operators of `provenance_replay`: the plan of a run, its replay, and who is triggered by it.

The library is imported only when a task runs: a DAG file, which is parsed every few seconds, has no use for it.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from custody_airflow.environment import repository_folder
from custody_airflow.failures import permanent_failures

START = "{{ data_interval_start if data_interval_start is defined and data_interval_start else '' }}"
END = "{{ data_interval_end if data_interval_end is defined and data_interval_end else '' }}"
_PLANS = "replays"


class ReplayPlanOperator(BaseOperator):
    """Makes the plan of a run, once: a later try of the task takes the file that an earlier one left.

    :param query: the events to replay (templated); without query and plan the run is skipped.
    :param plan: a plan's file, which is taken as it is (templated).
    :param within_interval: "True" bounds the query's event time by the run's data interval (templated).
    :param start: start of the interval (templated).
    :param end: its end (templated).
    """

    template_fields = ("query", "plan", "within_interval", "start", "end")

    def __init__(
        self,
        *,
        query: str,
        plan: str = "",
        within_interval: str = "False",
        start: str = START,
        end: str = END,
        **kwargs: Any,  # noqa: ANN401 - Airflow's signature
    ) -> None:
        super().__init__(**kwargs)
        self.query = query
        self.plan = plan
        self.within_interval = within_interval
        self.start = start
        self.end = end

    @permanent_failures()
    def execute(self, context: Context) -> dict[str, Any]:
        """Return where the plan is and what it says."""
        from custody.replay import read_plan, save_plan
        from custody.repository import Repository
        from custody.vfs import PosixFileSystem

        fs, folder = PosixFileSystem(), repository_folder()
        if not self.query and not self.plan:
            raise AirflowSkipException("neither a query nor a plan was named: nothing to replay")
        path = Path(self.plan)
        if not self.plan:
            query = bounded(self.query, self.start, self.end) if self.within_interval == "True" else self.query
            path = folder / _PLANS / plan_name(context["ti"].dag_id, context["ti"].run_id, query)
            # A second plan would have an id of its own, and send what the first one sent already.
            if not fs.exists(path):
                fs.make_directory(path.parent)
                save_plan(fs, path, Repository.open(folder).plan_replay(query))
        plan = read_plan(fs, path)
        for refusal in plan.refused[:100]:
            self.log.warning("%s", refusal.message)
        counts = {code.value: count for code, count in plan.refused_by_code.items()}
        told = {"file": str(path), "plan": plan.id, "events": len(plan.events), "bytes": plan.bytes, "refused": counts}
        self.log.info("plan: %s", told)
        return told


class ReplayOperator(BaseOperator):
    """Replays what is left of a plan, and returns what was done and whom to trigger.

    :param plan: the plan's file (templated).
    :param user: who wants it (templated).
    :param skip_changed: "True" passes over events that cannot be replayed any more (templated).
    """

    template_fields = ("plan", "user", "skip_changed")

    def __init__(self, *, plan: str, user: str, skip_changed: str = "False", **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's signature
        super().__init__(**kwargs)
        self.plan = plan
        self.user = user
        self.skip_changed = skip_changed

    @permanent_failures()
    def execute(self, context: Context) -> dict[str, Any]:
        """Replay; the XCom's `triggers` are the arguments of the operator that triggers the consumers."""
        from custody.repository import Repository

        report = Repository.open(repository_folder()).replay(
            Path(self.plan), user=self.user, skip_changed=self.skip_changed == "True"
        )
        done = report.done_before + report.replayed + len(report.skipped)
        self.log.info("replayed %d of %d, %d before", report.replayed, report.events, report.done_before)
        return {
            "plan": report.plan,
            "events": report.events,
            "done": done,
            "replayed": report.replayed,
            "stopped": report.stopped,
            "triggers": triggers_of(report.plan, report.queues, report.consumers, done),
        }


class ReplayCheckOperator(BaseOperator):
    """Fails when a queue was full, so that the plan is not all done.

    :param stopped: why the replay stopped, empty when it did not (templated).
    """

    template_fields = ("stopped",)

    def __init__(self, *, stopped: str, **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's signature
        super().__init__(**kwargs)
        self.stopped = stopped

    def execute(self, context: Context) -> None:
        """Fail, or not."""
        if self.stopped:
            raise AirflowFailException(f"{self.stopped} Clear the task `replay` with all behind it for that.")


def plan_name(dag_id: str, run_id: str, query: str) -> str:
    """Return the name of a run's plan: one a query, as a backfill that is done anew keeps the names of its runs."""
    return f"{uuid.uuid5(uuid.NAMESPACE_URL, f'{dag_id}/{run_id}?{query}')}.plan"


def bounded(query: str, start: str, end: str) -> str:
    """Return a query whose events happened from `start` up to, not with, `end`.

    Raises:
        InvalidInputError: the run has no interval.
    """
    from custody.errors import InvalidInputError
    from custody.landing import parse_instant

    if not start or not end:
        raise InvalidInputError(
            "within_interval: expected a run with a data interval, of the schedule or a backfill, got one without. "
            "Bound the query itself: event_time:[2026-03-01 TO 2026-03-02]."
        )
    first, last = (round(parse_instant(text).timestamp() * 1000) for text in (start, end))
    return f"({query}) AND event_time:[{first} TO {last - 1}]"


def triggers_of(plan: str, queues: dict[str, int], consumers: dict[str, str], done: int) -> list[dict[str, Any]]:
    """Return the arguments that trigger the DAG of each queue: its conf names the queue and the plan.

    The run's name is made of what was done: whoever tries again triggers the same run, and not another one.
    """
    return [
        {
            "trigger_dag_id": consumer,
            "trigger_run_id": f"replay__{plan}__{queue}__{done}",
            "conf": {"queue": queue, "replay_plan": plan, "flowfiles": queues[queue]},
        }
        for queue, consumer in sorted(consumers.items())
    ]
