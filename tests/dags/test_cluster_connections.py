"""What the connections of docs/clusters.md make of the submit of a step, by Airflow's own provider."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dags.operator_submit import CONNECTIONS, MASTERS, operator_submit

KEPT = "of-the-drivers-environment"


@pytest.mark.parametrize(("connection", "master"), list(zip(CONNECTIONS, MASTERS, strict=True)), ids=MASTERS)
def test_a_submit_in_client_mode_has_its_cluster_and_this_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connection: str, master: str
) -> None:
    (tmp_path / "custody.toml").write_text('[spark]\nlibrary = "custody.zip"\n')
    (tmp_path / "custody.zip").touch()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEPT)
    command, environment = operator_submit(tmp_path, connection, step="index", airflow_home=tmp_path)
    assert command[command.index("--master") + 1] == master
    assert command[command.index("--deploy-mode") + 1] == "client" if "--deploy-mode" in command else master[0] == "s"
    assert any(part.startswith("spark.submit.pyFiles=") and part.endswith("custody.zip") for part in command)
    # The driver is a process here: its Java, its Spark and its Python are those of this installation,
    assert {"JAVA_HOME", "SPARK_HOME", "PYSPARK_PYTHON"} <= environment.keys()
    # which are nothing to a container of the cluster: a node's Java may lie elsewhere.
    assert not any(part.startswith(("spark.yarn.appMasterEnv.", "spark.kubernetes.driverEnv.")) for part in command)
    assert environment["AWS_SECRET_ACCESS_KEY"] == KEPT
    assert not any(KEPT in part for part in command)
    if master.startswith("k8s"):
        assert "spark.kubernetes.namespace=custody" in command
        # A driver behind a host's loopback is reached by no pod.
        assert not any(part.startswith("spark.driver.host=") for part in command)
