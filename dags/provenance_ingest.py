"""
### Provenance ingest

Takes files of events from the landing folder of each interval into the journals. The folder is `landing.folder` in the
repository's `custody.toml`; with parts of a date in it (`landing/%Y-%m-%d/%H`) every hour has one of its own.

| task | what it does |
|---|---|
| `wait_for_files` | are there files of the interval that were not taken yet, and is nobody writing to them any more? |
| `ingest` | stores their events, each once; what cannot be stored goes to the quarantine |

A file is taken once: the repository keeps a ledger, and knows every event by its identity besides. So runs may be
repeated, backfilled in any order, or started by hand for an interval of one's own, and the repository ends up the same.
Events are found at once, and become event logs by the next run of `provenance_rollover`.

A scheduled run begins where the last successful one ended, so that intervals are made up that were missed while the DAG
was paused. From the date that `CUSTODY_INGEST_SINCE` names on, each missed interval gets a run of its own.
`CUSTODY_INGEST_SCHEDULE` is the cron schedule of the intervals, hourly unless said otherwise.
"""

from airflow.sdk import DAG, CronDataIntervalTimetable, Param, chain

from custody_airflow.dag_defaults import dag_defaults
from custody_airflow.environment import ingest_schedule, ingest_since
from custody_airflow.landing import LandingSensor
from custody_airflow.operators import SparkStepOperator

WAITED = "ti.xcom_pull(task_ids='wait_for_files')"

schedule = ingest_schedule()
since, is_catching_up = ingest_since()

with DAG(
    dag_id="provenance_ingest",
    description="Files of events that landed become acknowledged events",
    doc_md=__doc__,
    schedule=CronDataIntervalTimetable(schedule, timezone="UTC") if schedule else None,
    params={
        "start": Param(
            None,
            type=["null", "string"],
            format="date-time",
            title="Start of the interval",
            description="For a run by hand: folders of which time. Empty: the hour before the run and its own.",
        ),
        "end": Param(None, type=["null", "string"], format="date-time", title="End of the interval"),
        "wait_seconds": Param(
            0,
            type="integer",
            minimum=0,
            maximum=3600,
            title="Wait for files",
            description="Seconds to wait for a file before the run is skipped; 0 looks once.",
        ),
    },
    # Intervals in any order give the same events, so runs need not wait for each other.
    **dag_defaults(run_hours=6, task_hours=2, priority=5, max_active_runs=2, since=since, catchup=is_catching_up),
):
    wait_for_files = LandingSensor(
        task_id="wait_for_files", wait_seconds="{{ params.wait_seconds }}", poke_interval=5, timeout=3600
    )
    ingest = SparkStepOperator(
        task_id="ingest",
        step="ingest",
        arguments=["--start", "{{ " + WAITED + "['start'] }}", "--end", "{{ " + WAITED + "['end'] }}"],
    )
    chain(wait_for_files, ingest)
