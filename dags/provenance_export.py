"""
### Provenance export

Delivers events to the receivers of the settings (`[exports.NAME]` in `custody.toml`): HTTP, a NiFi, an OpenLineage
endpoint, Kafka, files. Each receiver gets every event at least once, a writer's in the order of their ids.

| task | what it does |
|---|---|
| `resend` | delivers once more what receivers refused, if the run is asked to |
| `deliver` | for each receiver: delivers what waits, from where the last delivery ended |

A run starts when the rollover made events live; events that wait in journals are delivered with them. How far each
receiver is, the repository keeps and not Airflow: a run after a crash goes on where the last delivery ended, and one
that is started twice delivers nothing twice. Without receivers, and while nothing waits, the task does nothing.

Each task's XCom is the report of its Spark job. The repository is the folder that `CUSTODY_REPOSITORY` names; the Spark
master is the connection `spark_default`.
"""

from airflow.sdk import DAG, Param, chain

from custody_airflow.assets import commits
from custody_airflow.dag_defaults import dag_defaults
from custody_airflow.operators import SparkStepOperator

ONLY = "{{ '--only=' + params.receiver if params.receiver else '' }}"

with DAG(
    dag_id="provenance_export",
    description="Events are delivered to other systems, each at least once",
    doc_md=__doc__,
    schedule=[commits()],
    params={
        "receiver": Param(
            None,
            type=["null", "string"],
            pattern="^[a-z0-9][a-z0-9_-]{0,62}$",
            title="Receiver",
            description="Only this table [exports.NAME] of the settings. Empty: all of them.",
        ),
        "resend": Param(
            False,
            type="boolean",
            title="Send refused events again",
            description="Deliver once more what receivers refused and the quarantine has.",
        ),
    },
    **dag_defaults("export", run_hours=6, task_hours=6, priority=2),
):
    resend = SparkStepOperator(task_id="resend", step="export_resend", arguments=[ONLY], selected="{{ params.resend }}")
    deliver = SparkStepOperator(task_id="deliver", step="export_deliver", arguments=[ONLY], trigger_rule="none_failed")
    chain(resend, deliver)
