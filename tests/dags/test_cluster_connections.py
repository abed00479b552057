"""What the connections of docs/clusters.md make of the submit of a step, by Airflow's own provider."""

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
KEPT = "of-the-drivers-environment"


class _Submitted(Exception):
    """Carries what would have been started: no cluster is there."""


def submitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connection: str) -> tuple[list[str], dict[str, str]]:
    """Return the command line and the environment of the submit of a step."""
    (tmp_path / "custody.toml").write_text('[spark]\nlibrary = "custody.zip"\n')
    (tmp_path / "custody.zip").touch()
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.setenv("CUSTODY_REPOSITORY", str(tmp_path))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", connection)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEPT)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    from airflow.providers.apache.spark.hooks import spark_submit

    from custody_airflow.operators import SparkStepOperator

    # Of a package that only a cluster needs. In `client` mode nothing is asked of it; it has to be there.
    monkeypatch.setattr(spark_submit, "kube_client", object(), raising=False)

    def record(command: list[str], **more: Any) -> None:
        raise _Submitted(command, more.get("env") or {})

    operator = SparkStepOperator(task_id="index", step="index")
    monkeypatch.setattr(subprocess, "Popen", record)
    task = SimpleNamespace(dag_id="provenance_rollover", run_id="r", task_id="index", try_number=1)
    with pytest.raises(_Submitted) as caught:
        operator.execute({"run_id": "r", "ti": task})  # type: ignore[typeddict-item]
    command, environment = caught.value.args
    return command, environment


@pytest.mark.parametrize(("connection", "master"), list(zip(CONNECTIONS, MASTERS, strict=True)), ids=MASTERS)
def test_a_submit_in_client_mode_has_its_cluster_and_this_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connection: str, master: str
) -> None:
    command, environment = submitted(tmp_path, monkeypatch, connection)
    assert command[command.index("--master") + 1] == master
    assert command[command.index("--deploy-mode") + 1] == "client" if "--deploy-mode" in command else master[0] == "s"
    assert any(part.startswith("spark.submit.pyFiles=") and part.endswith("custody.zip") for part in command)
    # The driver is a process here: its Java, its Spark and its Python are those of this installation.
    assert {"JAVA_HOME", "SPARK_HOME", "PYSPARK_PYTHON"} <= environment.keys()
    assert environment["AWS_SECRET_ACCESS_KEY"] == KEPT
    assert not any(KEPT in part for part in command)
    if master.startswith("k8s"):
        assert "spark.kubernetes.namespace=custody" in command
        # A driver behind a host's loopback is reached by no pod.
        assert not any(part.startswith("spark.driver.host=") for part in command)
