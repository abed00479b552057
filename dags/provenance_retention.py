"""
### Provenance retention

Lets events go that are older than `retention.age_max` or a rule says, and the oldest ones when `retention.bytes_max` is
used up. What a hold means stays. A run after a crash goes on where the last one stopped: what is done is read from the
catalog and from disk, not from Airflow.

| task | what it does |
|---|---|
| `plan` | says what would go, why, what is held, and the room before and after; this is the task's XCom |
| `wanted` | ends the run here when only the plan was asked for (`plan_only`) |
| `mark` | takes what expired out of the catalogs, in one transaction a writer |
| `expire` | deletes the event logs that were marked longer ago than `retention.grace` |
| `drop_shards` | deletes the index shards of which no log is left, as wholes |
| `history` | moves the earliest revision of the catalogs forward, as `catalog.history_…` say |
| `prune` | deletes the revisions of the catalogs that list what is gone |
| `collect_garbage` | forgets marks that are done; deletes what no kept revision lists |
| `erase` | goes on with what `custody forget --erase` began, to the last copy |
| `check` | fails when the limit cannot be kept although all went that may go |

Each task's XCom is the report of its Spark job. The schedule is hourly; `CUSTODY_RETENTION_SCHEDULE` in Airflow's
environment names another one, empty for none. The repository is the folder that `CUSTODY_REPOSITORY` names; the Spark
master is the connection `spark_default`.
"""

from airflow.sdk import DAG, Param, chain, task

from custody_airflow.dag_defaults import TAKE_OVER, TAKE_OVER_PARAM, dag_defaults
from custody_airflow.environment import retention_schedule
from custody_airflow.operators import SparkStepOperator

AFTER_THE_PLAN = ("mark", "expire", "drop_shards", "history", "prune", "collect_garbage", "erase", "check")


@task.short_circuit(task_id="wanted")
def is_wanted(plan_only: str) -> bool:
    return plan_only != "True"


def step(name: str) -> SparkStepOperator:
    return SparkStepOperator(task_id=name, step=f"retention_{name}", arguments=[TAKE_OVER])


with DAG(
    dag_id="provenance_retention",
    description="Events that are too old, or have no room, go",
    doc_md=__doc__,
    schedule=retention_schedule(),
    params={
        "plan_only": Param(
            False,
            type="boolean",
            title="Plan only",
            description="Show what would go, and change nothing.",
        ),
        "take_over": TAKE_OVER_PARAM,
    },
    **dag_defaults(run_hours=6, task_hours=2, priority=3),
):
    chain(step("plan"), is_wanted("{{ params.plan_only }}"), *map(step, AFTER_THE_PLAN))
