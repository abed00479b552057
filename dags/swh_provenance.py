"""
### Swh provenance

Builds the tables that answer "where was this content?" from a graph of software, and publishes them. Runs by hand: the
form asks for the folder of the graph's tables (`nodes`, `edges`, `timestamps`, `origins`; Parquet or ORC). A graph of a
git repository is made by `custody swh import-git`.

| task | what it does |
|---|---|
| `swh_nodes` | checks the graph, takes it apart into what is joined, lists the nodes that count |
| `swh_earliest_timestamps` | when each content and directory first appeared, and in which revision |
| `swh_max_leaf_timestamps` | the date of the youngest content in each directory |
| `swh_directory_frontier` | which directories are old enough to stand for their contents |
| `swh_frontier_directories_in_revisions` | these directories in all revisions |
| `swh_contents_in_revisions` | contents in revisions that are reached without such a directory |
| `swh_contents_in_frontier_directories` | contents in such directories |
| `swh_revisions_in_origins` | revisions in origins |
| `swh_publish` | makes the build the database that is asked, in one transaction |

Each task's XCom is the report of its Spark job. A step that finished is not done again: a run that failed goes on where
it stopped, and so does a later run with the same build name. The former database answers until the new one is
published, and stays on disk. The repository is the folder that `CUSTODY_REPOSITORY` names in Airflow's environment; the
Spark master is the connection `spark_default`.
"""

from datetime import timedelta

from airflow.sdk import DAG, Param, chain

from custody_airflow.dag_defaults import dag_defaults
from custody_airflow.operators import SparkStepOperator

STEPS = (
    "swh_nodes",
    "swh_earliest_timestamps",
    "swh_max_leaf_timestamps",
    "swh_directory_frontier",
    "swh_frontier_directories_in_revisions",
    "swh_contents_in_revisions",
    "swh_contents_in_frontier_directories",
    "swh_revisions_in_origins",
    "swh_publish",
)
BUILD = "{{ params.build or dag_run.run_after.strftime('%Y%m%dT%H%M%S') }}"

with DAG(
    dag_id="swh_provenance",
    description="Builds the tables that say where each content was",
    doc_md=__doc__,
    schedule=None,
    params={
        "graph": Param(
            type="string",
            minLength=1,
            title="Graph",
            description="Folder of the tables nodes, edges, timestamps and origins, as the Spark workers see it.",
        ),
        "node_filter": Param(
            "heads",
            type="string",
            enum=["heads", "all"],
            title="Revisions that count",
            description="heads: those that a branch, a tag or a release points at. all: every one.",
        ),
        "build": Param(
            None,
            type=["null", "string"],
            pattern="^[A-Za-z0-9_=][A-Za-z0-9._=+-]{0,99}$",
            title="Name of the build",
            description="A build that was interrupted goes on under its name. Empty: the time of the run.",
        ),
    },
    **dag_defaults("swh", run_hours=7 * 24, task_hours=48, retry_delay=timedelta(minutes=2), priority=2),
):
    given = ["--graph", "{{ params.graph }}", "--node-filter", "{{ params.node_filter }}", "--build", BUILD]
    chain(*(SparkStepOperator(task_id=step, step=step, arguments=given) for step in STEPS))
