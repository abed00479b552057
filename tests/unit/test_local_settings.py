"""Settings of a local Airflow: its database, and the pool of Spark drivers where it makes one."""

from __future__ import annotations

from importlib import util
from pathlib import Path

import pytest

from custody.errors import ConfigurationError
from custody_local.settings import SPARK_POOL, airflow_environment, check_database

ROOT = Path(__file__).parents[2]
POSTGRES = "postgresql+psycopg2://airflow:secret@127.0.0.1:5432/airflow"


def environment(project: Path, home: Path, database: str | None = None) -> dict[str, str]:
    return airflow_environment(
        project, home, port=8080, master="local[1]", parallelism=1, environ={}, database=database
    )


def test_without_a_database_it_is_sqlite_in_its_own_folder(tmp_path: Path) -> None:
    url = environment(ROOT, tmp_path)["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
    assert url == f"sqlite:///{tmp_path}/airflow.db?timeout=60"


def test_a_postgresql_is_used_where_its_drivers_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(util, "find_spec", lambda _name: object())
    assert check_database(POSTGRES) == POSTGRES


def test_a_driver_that_is_missing_is_named_with_a_remedy_and_the_password_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(util, "find_spec", lambda name: object() if name == "psycopg2" else None)
    with pytest.raises(ConfigurationError, match=r"asyncpg not installed. Run: pip install 'asyncpg") as caught:
        check_database(POSTGRES)
    assert "secret" not in str(caught.value)


def test_another_kind_of_database_is_refused_without_its_password() -> None:
    with pytest.raises(ConfigurationError, match="database mysql: expected postgresql") as caught:
        check_database("mysql://airflow:secret@127.0.0.1/airflow")
    assert "secret" not in str(caught.value)


def test_the_pool_of_spark_drivers_is_named_only_where_it_is_made(tmp_path: Path) -> None:
    assert environment(ROOT, tmp_path)["CUSTODY_SPARK_POOL"] == SPARK_POOL
    (tmp_path / "airflow_settings.yaml").write_text("airflow:\n  pools:\n    - pool_name: other\n      pool_slot: 1\n")
    assert "CUSTODY_SPARK_POOL" not in environment(tmp_path, tmp_path)
