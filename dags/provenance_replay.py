"""
### Provenance replay

Sends FlowFiles again into the queues that they came from, each once, and starts the DAGs that consume these queues. The
form asks for a query, as of `custody search`, or for the file of a plan that `custody replay plan -o` wrote.

| task | what it does |
|---|---|
| `plan` | says which events can be replayed, which cannot and why, how many bytes; skips a run without a query |
| `wanted` | ends the run here when only the plan was asked for (`plan_only`) |
| `replay` | sends the FlowFiles; a try that was broken off goes on where it stopped |
| `consumers` | names the DAGs that consume these queues |
| `trigger` | starts the DAG that consumes each queue, with the queue and the plan as its conf |
| `check` | fails when a full queue stopped the replay: cleared later, `replay` goes on there |

The plan is a file below `replays` in the repository, one a run of the DAG: clearing a run sends nothing twice, and a
new run is a new plan. The DAG of a queue is what its connection names (`consumer`). A backfill with a query and
`within_interval` replays the events of each of its days. The runs of the schedule, which backfills need, have no query
and are skipped; `CUSTODY_REPLAY_SCHEDULE` names another one, empty for none. The repository is the folder that
`CUSTODY_REPOSITORY` names; its queues are on the machine of the worker.
"""

from typing import Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, CronDataIntervalTimetable, Param, TriggerRule, chain, task

from custody_airflow.dag_defaults import dag_defaults
from custody_airflow.environment import replay_schedule
from custody_airflow.replay import ReplayCheckOperator, ReplayOperator, ReplayPlanOperator


@task.short_circuit(task_id="wanted")
def is_wanted(plan_only: str) -> bool:
    return plan_only != "True"


@task(task_id="consumers")
def named_consumers(report: dict[str, Any]) -> list[dict[str, Any]]:
    return list(report["triggers"])


schedule = replay_schedule()

with DAG(
    dag_id="provenance_replay",
    description="FlowFiles enter their queues again, each once",
    doc_md=__doc__,
    schedule=CronDataIntervalTimetable(schedule, timezone="UTC") if schedule else None,
    params={
        "query": Param(
            None,
            type=["null", "string"],
            title="Query",
            description="The events to replay, such as component_id:dag.sort AND event_time:2026-03-02.",
        ),
        "plan": Param(None, type=["null", "string"], title="Plan", description="A plan's file, instead of a query."),
        "user": Param("airflow", type="string", minLength=1, title="User", description="Who asks; events say so."),
        "plan_only": Param(False, type="boolean", title="Plan only", description="Make the plan, and send nothing."),
        "within_interval": Param(
            False, type="boolean", title="Within the interval", description="Of a backfill: each run its own events."
        ),
        "skip_changed": Param(
            False, type="boolean", title="Skip what changed", description="Events that cannot be replayed any more."
        ),
    },
    **dag_defaults("replay", run_hours=24, task_hours=12, priority=4),
):
    plan = ReplayPlanOperator(
        task_id="plan",
        query="{{ params.query or '' }}",
        plan="{{ params.plan or '' }}",
        within_interval="{{ params.within_interval }}",
    )
    replay = ReplayOperator(
        task_id="replay",
        plan="{{ ti.xcom_pull(task_ids='plan')['file'] }}",
        user="{{ params.user }}",
        skip_changed="{{ params.skip_changed }}",
    )
    consumers = named_consumers(replay.output)  # type: ignore[arg-type]  # Airflow gives it the value
    trigger = TriggerDagRunOperator.partial(task_id="trigger", skip_when_already_exists=True).expand_kwargs(consumers)
    check = ReplayCheckOperator(
        task_id="check",
        stopped="{{ ti.xcom_pull(task_ids='replay')['stopped'] or '' }}",
        # Also when no queue names a consumer, so that nothing is triggered.
        trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS,
    )
    chain(plan, is_wanted("{{ params.plan_only }}"), replay, [consumers, check])
    chain(trigger, check)
