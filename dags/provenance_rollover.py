"""
### Provenance rollover

Takes acknowledged events from journals to the live, searchable repository. One run is one pass; a run that finds
nothing to do is skipped by its first task, and a run after a crash goes on where the last one stopped: what is done is
read from disk, not from Airflow.

| task | what it does |
|---|---|
| `wait_for_journals` | are there sealed journals, a dead writer's journals, or leftovers of an interrupted run? |
| `wait_for_leftovers` | did a dead writer or an interrupted run leave anything? If not, `recover` is skipped |
| `recover` | seals the journals that a dead writer left open, removes what interrupted steps left |
| `rollover` | merges sealed groups in event-id order and cuts them into the events of future logs |
| `compress` | writes event logs: Parquet in blocks of at most 1 MB, with tables of contents |
| `index` | builds the Whoosh shard of each log |
| `commit` | makes logs and shards live, in one catalog transaction a unit of groups |
| `checkpoint` | writes a catalog checkpoint when one is due |
| `sweep` | deletes the journals and staged units of what is live |

Each task's XCom is the report of its Spark job: units, events, bytes, seconds. The repository is the folder that
`CUSTODY_REPOSITORY` names in Airflow's environment; the Spark master is the connection `spark_default`.
"""

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, Param, TriggerRule, chain

from custody_airflow.environment import rollover_schedule
from custody_airflow.operators import SparkStepOperator
from custody_airflow.sensors import JournalSensor, LeftoverSensor

STEPS = ("recover", "rollover", "compress", "index", "commit", "checkpoint", "sweep")

with DAG(
    dag_id="provenance_rollover",
    description="Journals become live, searchable event logs",
    doc_md=__doc__,
    schedule=rollover_schedule(),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=6),
    tags=["custody", "provenance"],
    params={
        "wait_seconds": Param(
            0,
            type="integer",
            minimum=0,
            maximum=3600,
            title="Wait for journals",
            description="Seconds to wait for something to roll over before the run is skipped; 0 looks once.",
        ),
    },
    default_args={
        "owner": "custody",
        "retries": 2,
        "retry_delay": timedelta(seconds=30),
        "execution_timeout": timedelta(hours=2),
    },
):
    wait_for_journals = JournalSensor(
        task_id="wait_for_journals",
        wait_seconds="{{ params.wait_seconds }}",
        poke_interval=5,
    )
    recover, rollover, *others = (
        SparkStepOperator(
            task_id=step,
            step=step,
            # With nothing left over `recover` is skipped and the pass goes on; with nothing to do all of it is skipped.
            trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS if step == "rollover" else TriggerRule.ALL_SUCCESS,
        )
        for step in STEPS
    )
    chain(wait_for_journals, LeftoverSensor(task_id="wait_for_leftovers"), recover, rollover, *others)
    wait_for_journals >> rollover
