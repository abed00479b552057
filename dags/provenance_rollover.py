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
| `index` | builds the index shard of each log |
| `commit` | makes logs and shards live, in one catalog transaction a unit of groups; then tells of it |
| `checkpoint` | writes a catalog checkpoint when one is due |
| `sweep` | deletes the journals and staged units of what is live |

Each task's XCom is the report of its Spark job: units, events, bytes, seconds. Where events became live, the asset
`provenance_commits` gets an event with revisions, files and events, which DAGs of yours can follow. The schedule is
every minute unless `CUSTODY_ROLLOVER_SCHEDULE` says otherwise; with `CUSTODY_ROLLOVER_WATCH` sealed journals start a
run by themselves. The repository is the folder that `CUSTODY_REPOSITORY` names; the Spark master is the connection
`spark_default`.
"""

from airflow.sdk import DAG, Param, TriggerRule, chain

from custody_airflow.assets import rollover_timing
from custody_airflow.dag_defaults import TAKE_OVER, TAKE_OVER_PARAM, dag_defaults
from custody_airflow.operators import CommitOperator, SparkStepOperator
from custody_airflow.sensors import JournalSensor, LeftoverSensor

with DAG(
    dag_id="provenance_rollover",
    description="Journals become live, searchable event logs",
    doc_md=__doc__,
    schedule=rollover_timing(),
    params={
        "wait_seconds": Param(
            0,
            type="integer",
            minimum=0,
            maximum=3600,
            title="Wait for journals",
            description="Seconds to wait for something to roll over before the run is skipped; 0 looks once.",
        ),
        "take_over": TAKE_OVER_PARAM,
    },
    **dag_defaults(run_hours=6, task_hours=2, priority=10),
):

    def step(name: str, **more: str) -> SparkStepOperator:
        return SparkStepOperator(task_id=name, step=name, arguments=[TAKE_OVER], **more)

    wait_for_journals = JournalSensor(
        task_id="wait_for_journals", wait_seconds="{{ params.wait_seconds }}", poke_interval=5
    )
    # With nothing left over `recover` is skipped and the pass goes on; with nothing to do all of it is skipped.
    rollover = step("rollover", trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS)
    commit = CommitOperator(task_id="commit", arguments=[TAKE_OVER])
    chain(wait_for_journals, LeftoverSensor(task_id="wait_for_leftovers"), step("recover"), rollover)
    chain(wait_for_journals, rollover)
    chain(rollover, step("compress"), step("index"), commit, step("checkpoint"), step("sweep"))
