"""Sessions of Spark are built in one place, and statements are told in one place, where nothing is replaced in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from custody.spark import archive
from custody.spark.session import PLAIN_SQL, run_statement
from custody.spark.submit import spark_conf

PROJECT = Path(__file__).resolve().parents[3]
BUILDING = re.compile(r"SparkSession\s*\.\s*builder|SparkSession\(|SparkContext\(|\.newSession\(")
TELLING = re.compile(r"(?:session|spark)\.sql\(|\.selectExpr\(")
SUBSTITUTE = "spark.sql.variable.substitute"


def found(pattern: re.Pattern[str]) -> dict[str, int]:
    files = [file for room in ("include", "dags", "plugins", "spark_jobs") for file in (PROJECT / room).rglob("*.py")]
    assert len(files) > 200
    counts = {file.name: len(pattern.findall(file.read_text())) for file in files}
    return {name: count for name, count in counts.items() if count}


def test_sessions_are_built_and_statements_told_in_one_place() -> None:
    # The archive's job runs in an interpreter without custody, and tells its session nothing.
    assert found(BUILDING) == {"session.py": 1, "archive.py": 1}
    assert "sql(" not in archive._WARM_UP
    assert found(TELLING) == {"session.py": 1}


def test_every_submit_says_that_nothing_is_replaced() -> None:
    assert PLAIN_SQL[SUBSTITUTE] == "false"
    for master in ("local[2]", "spark://example.org:7077"):
        assert spark_conf(master, {"JAVA_HOME": ""})[SUBSTITUTE] == "false"


class Session:
    """What `run_statement` needs of a session that somebody else built; Spark itself is asked in tests/spark."""

    def __init__(self) -> None:
        self.settings = {SUBSTITUTE: "true"}
        self.told: list[tuple[str, dict[str, str]]] = []
        self.conf = self

    def get(self, key: str, otherwise: str) -> str:
        return self.settings.get(key, otherwise)

    def set(self, key: str, value: str) -> None:
        self.settings[key] = value

    def sql(self, statement: str) -> None:
        self.told.append((statement, dict(self.settings)))


def test_a_session_that_replaces_is_told_not_to_before_it_hears_a_statement() -> None:
    session = Session()
    run_statement(session, "create table `${env:HOME}`")
    assert session.told == [("create table `${env:HOME}`", {SUBSTITUTE: "false"})]


@pytest.mark.parametrize("room", ["include", "dags", "plugins", "spark_jobs"])
def test_no_file_turns_it_on_again(room: str) -> None:
    files = [file for file in (PROJECT / room).rglob("*") if file.suffix in (".py", ".conf", ".toml", ".yaml", ".yml")]
    said = [file for file in files if "variable.substitute" in file.read_text()]
    # Who starts a session of Spark, and who opens one at a HiveServer2: both turn it off.
    assert sorted(file.name for file in said) == (["hive_server.py", "session.py"] if room == "include" else [])
    for file in said:
        ends = re.findall(r"variable\.substitute\"?(?:: \"|=)([a-z]+)", file.read_text())
        assert set(ends) == {"false"}, file
