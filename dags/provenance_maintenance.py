"""
### Provenance maintenance

Looks after what is live, once a day: forgotten events leave the disk, small logs become one, shards of other settings
are built anew, and a part of everything is read and compared with its checksums, so that damage is found before it is
needed. One run is one pass; a run after a crash goes on where the last one stopped.

| task | what it does |
|---|---|
| `compact` | writes live logs anew without forgotten events, and small neighbours as one log |
| `rebuild` | builds index shards anew that are gone or were built with other settings |
| `scrub` | reads what is due, so that everything is read once in `maintenance.scrub_days` |

Each task's XCom is the report of its Spark job: units, events, bytes, seconds. What the scrub found is kept in the
repository (`custody verify --last`, `custody status`); damage does not fail the run, as a second try would not mend it:
`custody repair` says what would. The schedule is nightly; `CUSTODY_MAINTENANCE_SCHEDULE` in Airflow's environment names
another one, empty for none. The repository is the folder that `CUSTODY_REPOSITORY` names in Airflow's environment;
the Spark master is the connection `spark_default`.
"""

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, chain

from custody_airflow.environment import maintenance_schedule
from custody_airflow.operators import SparkStepOperator

STEPS = ("compact", "rebuild", "scrub")

with DAG(
    dag_id="provenance_maintenance",
    description="Compacts logs, rebuilds stale shards, reads everything in turn",
    doc_md=__doc__,
    schedule=maintenance_schedule(),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=20),
    tags=["custody", "provenance", "maintenance"],
    default_args={
        "owner": "custody",
        "retries": 2,
        "retry_delay": timedelta(minutes=5),
        "execution_timeout": timedelta(hours=8),
    },
):
    # A repository that cannot be compacted is looked at all the same.
    chain(*(SparkStepOperator(task_id=step, step=step, trigger_rule="all_done") for step in STEPS))
