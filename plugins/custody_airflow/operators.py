"""One step of custody as one spark-submit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook, Context
from airflow.sdk.exceptions import AirflowNotFoundException

from custody.errors import ConfigurationError
from custody_airflow.environment import repository_folder
from custody_airflow.sensors import as_dict


class SparkStepOperator(SparkSubmitOperator):
    """Submits the Spark job of a step and returns its report as XCom.

    :param step: name of the step; the file of that name in `spark_jobs/` is submitted.
    :param arguments: further arguments of the job (templated).

    Java, Spark and Python come from the environment that Airflow runs in, with flags for a quick start. The master
    comes from the connection, which has to exist: without it the provider would submit to YARN.

    The job is told which attempt it is: should an earlier driver of this task have outlived its supervisor, the later
    try takes the work over, and the earlier one ends with exit code 19.
    """

    template_fields = (*SparkSubmitOperator.template_fields, "arguments")

    def __init__(self, *, step: str, arguments: Sequence[str] = (), **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's signature
        kwargs.setdefault("name", f"custody-{step}")
        super().__init__(application=f"{step}.py", **kwargs)
        self.step = step
        self.arguments = list(arguments)

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # the provider's has no result
        """Submit, wait, and return the report that the job left."""
        # Not when the module is imported: the library loads Arrow, which the parser of DAG files has no use for.
        from custody.config import load_settings
        from custody.rollover import read_report
        from custody.spark.run import jobs_folder
        from custody.spark.submit import spark_conf, submit_environment
        from custody.vfs import PosixFileSystem

        folder = repository_folder()
        run_id = context["run_id"]
        self.application = str(jobs_folder() / f"{self.step}.py")
        identity = ["--run-id", run_id, "--attempt", attempt_name(context)]
        self.application_args = ["--repository", str(folder), *identity, *self.arguments]
        self.conf = {**spark_conf(self._master()), **(self.conf or {})}
        self.env_vars = {**submit_environment(), **(self.env_vars or {})}
        super().execute(context)
        report = read_report(PosixFileSystem(), load_settings(folder).runs, run_id, self.step)
        self.log.info("report: %s", report.line())
        return as_dict(report)

    def _master(self) -> str:
        try:
            connection = BaseHook.get_connection(self._conn_id)
        except AirflowNotFoundException as error:
            raise ConfigurationError(
                f"connection {self._conn_id!r}: expected one of type spark, found none. Define it in Airflow, or set "
                """AIRFLOW_CONN_SPARK_DEFAULT='{"conn_type": "spark", "host": "local[*]"}'."""
            ) from error
        return connection.host or ""


def attempt_name(context: Context) -> str:
    """Return the name of a task's attempt, `<dag>/<run>/<task>/<try>`."""
    task = context["ti"]
    return f"{task.dag_id}/{task.run_id}/{task.task_id}/{task.try_number}"
