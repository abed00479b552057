"""The submit of a step that the operator of the DAGs would start for a connection of docs/clusters.md."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

CONNECTIONS = re.findall(
    r"AIRFLOW_CONN_SPARK_DEFAULT='(\{.*?\})'",
    (Path(__file__).resolve().parents[2] / "docs" / "clusters.md").read_text(encoding="utf-8"),
    re.DOTALL,
)
MASTERS = ("spark://master:7077", "yarn", "k8s://https://api.example.com:6443")


class _Submitted(Exception):
    """Carries what would have been started."""


def operator_submit(
    root: Path, connection: str, *, step: str, run_id: str = "r", airflow_home: Path
) -> tuple[list[str], dict[str, str]]:
    """Return the command line and the environment that Airflow's provider starts for a step of a repository."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_HOME", str(airflow_home))
        patch.setenv("CUSTODY_REPOSITORY", str(root))
        patch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", connection)
        patch.delenv("SPARK_HOME", raising=False)
        from airflow.providers.apache.spark.hooks import spark_submit

        from custody_airflow.operators import SparkStepOperator

        # Of a package that only a cluster needs. In `client` mode nothing is asked of it; it has to be there.
        patch.setattr(spark_submit, "kube_client", object(), raising=False)

        def record(command: list[str], **more: Any) -> None:
            raise _Submitted(command, more.get("env") or {})

        operator = SparkStepOperator(task_id=step, step=step)
        patch.setattr(subprocess, "Popen", record)
        task = SimpleNamespace(dag_id="provenance_rollover", run_id=run_id, task_id=step, try_number=1)
        with pytest.raises(_Submitted) as caught:
            operator.execute({"run_id": run_id, "ti": task})  # type: ignore[typeddict-item]
    command, environment = caught.value.args
    return command, environment
