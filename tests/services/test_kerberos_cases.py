"""`custody ngsi check` on a real HDFS with Kerberos, by REST and by RPC, in all modes: by password and by keytab."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from custody.errors import ConfigurationError
from tests.services import reading
from tests.services.secured import PASSWORD, USER, Secured, missing, proof, secured_hdfs

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing() or "all is here")]
MODES = ("MOD-18", "MOD-02", "MOD-03", "MOD-04", "MOD-22")
"""One of json-row, json-column, csv-row, csv-column, parquet."""
CASES = (*MODES, "BAT-12", "PAR-76")
"""Also one that appends, and one that says itself that Kerberos is wanted, by another user."""
WRONG = "hush-not-this-one"
BASE = "/scratch"


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5_CONFIG", "/nowhere")
        with secured_hdfs(tmp_path_factory.mktemp("secured")) as running:
            yield running


def check(scheme: str, up: Secured, *before: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command as people do: a process, which is told by its environment."""
    port = up.hdfs.rpc if scheme == "hdfs" else up.hdfs.web
    named = [part for case in CASES for part in ("--case", case)]
    command = [sys.executable, "-c", "from custody.cli.main import main; main()", *before, "ngsi", "check"]
    command += ["--end-to-end", "--base-uri", f"{scheme}://127.0.0.1:{port}{BASE}", *named]
    done = subprocess.run(
        command,
        env={**os.environ, "HADOOP_CONF_DIR": str(up.hdfs.conf), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert PASSWORD not in done.stdout + done.stderr
    assert WRONG not in done.stdout + done.stderr
    assert list(reading.files(up.hdfs.web, BASE, proof(up))) == []
    return done


def by_password(up: Secured, password: str = PASSWORD) -> Mapping[str, str]:
    return {
        "CUSTODY__NGSI__KRB5_AUTH": "true",
        "CUSTODY__NGSI__KRB5_USER": USER,
        "CUSTODY__NGSI__KRB5_PASSWORD": password,
        "CUSTODY__NGSI__KRB5_CONF_FILE": str(up.kdc.conf),
    }


def assert_all_came_out(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(CASES)} as expected, 0 not" in done.stdout


@pytest.mark.parametrize("scheme", ["webhdfs", pytest.param("hdfs", marks=pytest.mark.spark)])
def test_cases_come_out_by_the_environment(up: Secured, scheme: str) -> None:
    assert_all_came_out(check(scheme, up, **by_password(up)))


@pytest.mark.parametrize("scheme", ["webhdfs", pytest.param("hdfs", marks=pytest.mark.spark)])
def test_cases_come_out_by_the_settings_of_a_repository(up: Secured, scheme: str, tmp_path: Path) -> None:
    quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    (tmp_path / "custody.toml").write_text(
        f'[ngsi]\nkrb5_auth = true\nkrb5_user = "{USER}"\nkrb5_password = "{quoted}"\n'
        f'krb5_conf_file = "{up.kdc.conf}"\n'
    )
    assert_all_came_out(check(scheme, up, "-r", str(tmp_path)))


@pytest.mark.spark
def test_cases_come_out_by_rpc_with_the_keytab_that_spark_has(up: Secured, tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        f"spark.kerberos.principal robot\nspark.kerberos.keytab {up.keytab}\n"
    )
    spark = {"SPARK_CONF_DIR": str(tmp_path), "KRB5_CONFIG": str(up.kdc.conf)}
    # The settings want a user and a password; these are refused, so it was the keytab.
    assert_all_came_out(check("hdfs", up, **{**by_password(up, WRONG), **spark}))


@pytest.mark.parametrize("scheme", ["webhdfs", pytest.param("hdfs", marks=pytest.mark.spark)])
def test_a_wrong_password_ends_the_command_with_what_to_do(up: Secured, scheme: str) -> None:
    done = check(scheme, up, **by_password(up, WRONG))
    assert done.returncode == ConfigurationError.exit_code, done.stderr
    assert f"Kerberos: expected a login of {USER}" in done.stderr
    assert "Correct ngsi.krb5_user and ngsi.krb5_password" in done.stderr


@pytest.mark.spark
def test_rpc_without_the_configuration_of_the_cluster_says_so(up: Secured, tmp_path: Path) -> None:
    done = check("hdfs", up, **{**by_password(up), "HADOOP_CONF_DIR": str(tmp_path)})
    assert done.returncode == ConfigurationError.exit_code
    assert "expected dfs.namenode.kerberos.principal" in done.stderr
    assert "Set HADOOP_CONF_DIR" in done.stderr
