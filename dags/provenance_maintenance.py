"""
### Provenance maintenance

Looks after what is live, every hour: retired writers move into the archive, if there is one, forgotten events leave the
disk, small logs become one, shards of other settings are built anew, and a part of everything is read and compared with
its checksums, so that damage is found before it is needed. One run is one pass; a run after a crash goes on where the
last one stopped.

| task | what it does |
|---|---|
| `absorb` | lets the archive take up the writers that were retired |
| `compact` | writes live logs anew without forgotten events, and small neighbours as one log |
| `rebuild` | builds index shards anew that are gone or were built with other settings |
| `scrub` | reads what is due, so that everything is read once in `maintenance.scrub_days` |
| `handed_over` | fails where groups or contents wait too long to be handed over; skipped where none ever are |

Each step's XCom is the report of its Spark job: units, events, bytes, seconds. What the scrub found is kept in the
repository (`custody verify --last`, `custody status`); damage does not fail the run, for no second try would mend it:
`custody repair` says what would. What this machine's disks alone have held for an hour, or for the seconds of
`CUSTODY_HANDOFF_BOUND`, does fail it, beside the other tasks: `custody handoff` mends that. A run by hand may do some
of the steps only. The schedule is hourly; `CUSTODY_MAINTENANCE_SCHEDULE` in Airflow's environment names another one,
empty for none. The repository is the folder that `CUSTODY_REPOSITORY` names; the Spark master is the connection
`spark_default`.
"""

from datetime import timedelta

from airflow.sdk import DAG, Param, TriggerRule, chain

from custody_airflow.dag_defaults import TAKE_OVER, TAKE_OVER_PARAM, dag_defaults
from custody_airflow.environment import handoff_bound, maintenance_schedule
from custody_airflow.handoff import HandoffSensor
from custody_airflow.operators import SparkStepOperator

STEPS = ("absorb", "compact", "rebuild", "scrub")

with DAG(
    dag_id="provenance_maintenance",
    description="Compacts logs, rebuilds stale shards, reads everything in turn",
    doc_md=__doc__,
    schedule=maintenance_schedule(),
    params={
        "steps": Param(
            list(STEPS),
            type="array",
            items={"type": "string", "enum": list(STEPS)},
            examples=list(STEPS),
            title="Tasks",
            description="What the run does; the others are skipped.",
        ),
        "take_over": TAKE_OVER_PARAM,
    },
    **dag_defaults("maintenance", run_hours=20, task_hours=8, retry_delay=timedelta(minutes=5)),
):
    chain(
        *(
            SparkStepOperator(
                task_id=step,
                step=step,
                arguments=[TAKE_OVER],
                selected=f"{{{{ '{step}' in params.steps }}}}",
                # A repository that cannot be compacted is looked at all the same.
                trigger_rule=TriggerRule.ALL_DONE,
            )
            for step in STEPS
        )
    )
    # Beside the steps: what is not handed over is no reason to leave the live logs alone.
    if (bound := handoff_bound()) is not None:
        HandoffSensor(task_id="handed_over", older_seconds=bound)
