"""The operator of the example `web_crawler`: one step of the flow as one task."""

from __future__ import annotations

import re
from typing import Any

from airflow.sdk import BaseOperator, Context

from custody_airflow.environment import repository_folder
from custody_airflow.failures import permanent_failures

_WORD_END = re.compile(r"(?<=[a-z])(?=[A-Z])")


class CrawlStepOperator(BaseOperator):
    """Lets one step of the web crawler work until its queue gives nothing more; returns how many FlowFiles it took.

    :param step: the step, such as `RouteText`; its task is called `route_text`.
    :param is_last: whether no more pages will come in this run.
    :param keyword: lines with it are mailed (templated).
    :param bundle_pages: so many pages go into one archive (templated).

    The site is served by the task itself. Archives and mails are put beside the repository, into `<its name>-crawled`:
    where they go is no parameter of a run. The events name the task as their component.
    """

    template_fields = ("keyword", "bundle_pages")

    def __init__(
        self,
        *,
        step: str,
        is_last: bool = False,
        keyword: str,
        bundle_pages: str,
        **kwargs: Any,  # noqa: ANN401 - Airflow's signature
    ) -> None:
        kwargs.setdefault("task_id", _WORD_END.sub("_", step).lower())
        super().__init__(**kwargs)
        self.step = step
        self.is_last = is_last
        self.keyword = keyword
        self.bundle_pages = bundle_pages

    @permanent_failures()
    def execute(self, context: Context) -> int:
        """Work, and return how many FlowFiles the step took."""
        # Not when the module is imported: the library loads Arrow, which the parser of DAG files has no use for.
        from custody.examples.web_crawler import CrawlOptions, run_task
        from custody.examples.web_site import web_site

        root = repository_folder()
        with web_site() as port:
            options = CrawlOptions(root.with_name(f"{root.name}-crawled"), port, self.keyword, int(self.bundle_pages))
            return run_task(root, self.step, options, is_last=self.is_last)
