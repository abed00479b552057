"""
### Web crawler

An example of a flow whose steps are tasks and whose FlowFiles wait in queues between them. It crawls a small web site
that the tasks serve themselves, on the loopback interface. Runs by hand.

| task | what it does |
|---|---|
| `get_http` | receives the site's first page; does nothing while FlowFiles of an earlier run wait |
| `funnel` | sends each page both ways: to be looked at, and to be archived |
| `route_text` | copies the lines with the keyword, and those with links |
| `put_email` | puts a mail with the lines of a page beside the repository |
| `split_text` | makes a FlowFile of each link line, without copying |
| `extract_text` | makes the link an attribute |
| `detect_duplicate` | lets each URL through once |
| `invoke_http` | fetches the URL |
| `update_attribute` | names the response |
| `route_on_attribute` | routes on the status code: a page, a redirect, or neither |
| `log_attribute` | logs each success |
| `merge_content` | bundles pages |
| `compress_content` | compresses a bundle |
| `put_file` | puts it beside the repository |

Links are followed in three rounds. What waits after the last one is done by the next run. A task that died left what it
had taken in its queue: its next try goes on with it. Each event names its task as the component, and its run as the
process group. `custody queue list` shows what waits where, `custody lineage` where an archive came from.
"""

from typing import Any

from airflow.sdk import DAG, Param, TaskGroup, chain

from custody_airflow.crawler import CrawlStepOperator
from custody_airflow.dag_defaults import dag_defaults

STEPS = (
    "Funnel",
    "RouteText",
    "PutEmail",
    "SplitText",
    "ExtractText",
    "DetectDuplicate",
    "InvokeHTTP",
    "UpdateAttribute",
    "RouteOnAttribute",
    "LogAttribute",
)
ARCHIVE = ("MergeContent", "CompressContent", "PutFile")
ROUNDS = 3
GIVEN: dict[str, Any] = {"keyword": "{{ params.keyword }}", "bundle_pages": "{{ params.bundle_pages }}"}

with DAG(
    dag_id="web_crawler",
    description="An example: a flow with queues, which crawls a small web site",
    doc_md=__doc__,
    schedule=None,
    params={
        "keyword": Param(
            "provenance", type="string", minLength=1, title="Keyword", description="Lines with it are mailed."
        ),
        "bundle_pages": Param(3, type="integer", minimum=1, title="Pages of one archive"),
    },
    **dag_defaults("example", run_hours=1, task_hours=1, priority=2),
):
    tasks = [CrawlStepOperator(step="GetHTTP", **GIVEN)]
    for number in range(1, ROUNDS + 1):
        with TaskGroup(f"round_{number}"):
            tasks += [CrawlStepOperator(step=step, **GIVEN) for step in STEPS]
    chain(*tasks, *(CrawlStepOperator(step=step, is_last=True, **GIVEN) for step in ARCHIVE))
