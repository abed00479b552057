"""
### Provenance runs

Brings events of Airflow's own runs into the repository: start, end, state, log and written files of each run of a DAG
and of each try of a task. *Which run wrote this file?* is a search then.

| task | what it does |
|---|---|
| `deliver` | stores what the listener kept in its spool, each event once |
| `reconcile` | adds what the listener lost, from Airflow's REST API: of killed tasks, or while the spool was full |

The listener keeps events where `CUSTODY_RUN_SPOOL` names a folder; without it both tasks are skipped. The connection
`custody_airflow_api` (type http) has the address of this Airflow with a user and a password; without it nothing is
reconciled. The schedule is every ten minutes unless `CUSTODY_RUNS_SCHEDULE` says otherwise. The repository is the
folder that `CUSTODY_REPOSITORY` names. Each task's XCom has its counts; `stored` of `reconcile` is what was lost.
"""

from airflow.sdk import DAG, Param, TriggerRule, chain

from custody_airflow.dag_defaults import dag_defaults
from custody_airflow.environment import runs_schedule
from custody_airflow.runs import DeliverRunsOperator, ReconcileRunsOperator

with DAG(
    dag_id="provenance_runs",
    description="Airflow's own runs become events",
    doc_md=__doc__,
    schedule=runs_schedule(),
    params={
        "since": Param(
            None,
            type=["null", "string"],
            format="date-time",
            title="Reconcile since",
            description="Look at what changed in Airflow from this instant on. Empty: since the last pass.",
        ),
        "settle_seconds": Param(
            60,
            type="integer",
            minimum=0,
            maximum=3600,
            title="Settle",
            description="Seconds that the newest changes wait for the next run: Airflow may still commit older ones.",
        ),
    },
    **dag_defaults("runs", run_hours=6, task_hours=2, priority=4),
):
    deliver = DeliverRunsOperator(task_id="deliver")
    # Also where another process delivers the spool.
    reconcile = ReconcileRunsOperator(
        task_id="reconcile",
        since="{{ params.since or '' }}",
        settle_seconds="{{ params.settle_seconds }}",
        trigger_rule=TriggerRule.NONE_FAILED,
    )
    chain(deliver, reconcile)
