"""Operators that submit the Spark job of a step, one step as one spark-submit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook, Context
from airflow.sdk.exceptions import AirflowNotFoundException, AirflowSkipException

from custody.errors import ConfigurationError
from custody.spark.environment import job_of
from custody_airflow.assets import commits, commits_of_a_run
from custody_airflow.environment import repository_folder, spark_pool
from custody_airflow.failures import driver_failures, permanent_failures
from custody_airflow.sensors import as_dict
from custody_airflow.written import wrote

_EVENTS_LOOKED_AT = 100


class SparkStepOperator(SparkSubmitOperator):
    """Submits the Spark job of a step and returns its report as XCom.

    :param step: name of the step; its job in `spark_jobs/` is submitted.
    :param arguments: further arguments of the job (templated).
    :param selected: the task is skipped when this is "False" (templated).

    Java, Spark and Python come from the environment that Airflow runs in, with flags for a quick start. The master
    comes from the connection, which has to exist: without it the provider would submit to YARN. Drivers share the pool
    that the deployment names.

    The job gets the name of its attempt: should an earlier driver of this task have outlived its supervisor, the later
    try takes the work over, and the earlier one ends with exit code 19.
    """

    template_fields = (*SparkSubmitOperator.template_fields, "arguments", "selected")

    def __init__(self, *, step: str, arguments: Sequence[str] = (), selected: str = "True", **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's signature
        kwargs.setdefault("name", f"custody-{step}")
        kwargs.setdefault("pool", spark_pool())
        super().__init__(application=job_of(step)[0], **kwargs)
        self.step = step
        self.arguments = list(arguments)
        self.selected = selected

    @permanent_failures()
    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # the provider's has no result
        """Submit, wait, and return the report that the job left."""
        # Not when the module is imported: the library loads Arrow, which the parser of DAG files has no use for.
        from custody.config import load_settings
        from custody.spark.environment import jobs_folder, submit_environment
        from custody.spark.packaging import submit_options
        from custody.spark.submit import spark_conf
        from custody.workspace import read_report, report_place

        if self.selected == "False":
            raise AirflowSkipException(f"{self.step}: not selected by the parameters of this run")
        folder = repository_folder()
        run_id = context["run_id"]
        file, first = job_of(self.step)
        self.application = str(jobs_folder() / file)
        identity = ["--run-id", run_id, "--attempt", attempt_name(context)]
        self.application_args = [*first, "--repository", str(folder), *identity, *filter(None, self.arguments)]
        own = {**spark_conf(self._master(), job=self.step), **submit_options(load_settings(folder).spark_library)}
        self.conf = {**own, **(self.conf or {})}
        self.env_vars = {**submit_environment(), **(self.env_vars or {})}
        with driver_failures(self.step):
            super().execute(context)
        report = read_report(*report_place(load_settings(folder)), run_id, self.step)
        self.log.info("report: %s", report.line())
        wrote(*report.files)
        return as_dict(report)

    def _get_hook(self) -> SparkSubmitHook:
        hook = super()._get_hook()
        # In `client` mode the driver is a process here. On Kubernetes the provider would give them to a driver's pod
        # alone, and on YARN to the master of the application as well, whose node may have its Java elsewhere.
        hook._env = self.env_vars  # it has no other way in
        if hook._connection["deploy_mode"] != "cluster":
            hook._env_vars = None
        return hook

    def _master(self) -> str:
        try:
            connection = BaseHook.get_connection(self._conn_id)
        except AirflowNotFoundException as error:
            raise ConfigurationError(
                f"connection {self._conn_id!r}: expected one of type spark, found none. Define it in Airflow, or set "
                """AIRFLOW_CONN_SPARK_DEFAULT='{"conn_type": "spark", "host": "local[*]"}'."""
            ) from error
        return connection.host or ""


class CommitOperator(SparkStepOperator):
    """Submits the step `commit`, and adds an event of the asset for what became live since the last such event.

    The last event is read from Airflow, which keeps it together with the task's success. So a try whose worker died
    after the commit costs no event, and a run that commits nothing makes none.
    """

    def __init__(self, **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's signature
        # The asset itself is no outlet, for it would get an event from every success; the alias gets what is added.
        super().__init__(step="commit", inlets=[commits()], outlets=[commits_of_a_run()], **kwargs)

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # the provider's has no result
        """Submit, wait, add the event if there is one, and return the report."""
        from custody.config import load_settings
        from custody.rollover import new_logs_since

        report = super().execute(context)
        asset = commits()
        newest = context["inlet_events"][asset].ascending(False).limit(_EVENTS_LOOKED_AT)
        settings = load_settings(repository_folder())
        news = new_logs_since(settings, told_revisions(str(settings.root), (event.extra for event in newest)))
        if news is not None:
            self.log.info("told: %s", news)
            context["outlet_events"][commits_of_a_run()].add(asset, extra=as_dict(news))
        return report


def told_revisions(repository: str, extras: Iterable[Mapping[str, Any] | None]) -> dict[str, int]:
    """Return the revisions of the newest event about a repository; events that people made on the page have none."""
    ours = (extra for extra in extras if extra and extra.get("repository") == repository and "revisions" in extra)
    return next((dict(extra["revisions"]) for extra in ours), {})


def attempt_name(context: Context) -> str:
    """Return the name of a task's attempt, `<dag>/<run>/<task>/<try>`."""
    task = context["ti"]
    return f"{task.dag_id}/{task.run_id}/{task.task_id}/{task.try_number}"
