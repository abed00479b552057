"""
### Ngsi to hdfs

Writes the notifications that the receiver took to the files of their destinations, on HDFS or in a folder, each line
once, and tells of each file by SEND events.

| task | what it does |
|---|---|
| `wait_for_notifications` | do notifications or tables wait, was something submitted again, did a run break off? |
| `persist` | takes them in batches and writes the files; what cannot be written goes to the quarantine |

A run starts when the rollover made events live, and by a schedule. With `CUSTODY_NGSI_WATCH`, seconds between two
looks, the triggerer starts a run as soon as a batch is due, and acknowledged notifications are taken from the journals,
before a rollover. A batch is written when it is full
(`ngsi.batch_size`) or old enough (`ngsi.batch_timeout`); a run of an interval, of the schedule or of a backfill, writes
besides everything that arrived before the interval's end. What is written is remembered by the sink and not by
Airflow: intervals may come in any order and again, and no line is there twice.

The schedule is hourly unless `CUSTODY_NGSI_SCHEDULE` says otherwise; empty leaves the rollover alone to start runs. The
repository is the folder that `CUSTODY_REPOSITORY` names, its section `ngsi` says where files go; the Spark master is
the connection `spark_default`.
"""

from airflow.sdk import DAG, Param, chain

from custody_airflow.assets import ngsi_timing
from custody_airflow.dag_defaults import TAKE_OVER, TAKE_OVER_PARAM, dag_defaults
from custody_airflow.environment import ngsi_watch
from custody_airflow.notifications import NotificationSensor
from custody_airflow.operators import SparkStepOperator

# Of an interval: a run by hand, or after a commit, has none, or one that says nothing.
INTERVAL_END = (
    "data_interval_end if data_interval_end is defined and dag_run.run_type in ('scheduled', 'backfill') else ''"
)
UNTIL = "{{ params.until or (" + INTERVAL_END + ") }}"

with DAG(
    dag_id="ngsi_to_hdfs",
    description="Notifications become files on HDFS, each line once",
    doc_md=__doc__,
    schedule=ngsi_timing(),
    params={
        "until": Param(
            None,
            type=["null", "string"],
            format="date-time",
            title="Everything until",
            description="What arrived before is written, full batch or not. Empty: what is due.",
        ),
        "wait_seconds": Param(
            0,
            type="integer",
            minimum=0,
            maximum=3600,
            title="Wait for notifications",
            description="Seconds to wait for something to write before the run is skipped; 0 looks once.",
        ),
        "take_over": TAKE_OVER_PARAM,
    },
    **dag_defaults("ngsi", run_hours=6, task_hours=2, priority=8),
):
    wait_for_notifications = NotificationSensor(
        task_id="wait_for_notifications", wait_seconds="{{ params.wait_seconds }}", poke_interval=5
    )
    journals = ["--journals"] if ngsi_watch() is not None else []
    persist = SparkStepOperator(
        task_id="persist", step="ngsi_to_hdfs", arguments=[TAKE_OVER, *journals, f"--until={UNTIL}"]
    )
    chain(wait_for_notifications, persist)
