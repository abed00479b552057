"""DAGs as Airflow reads them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DAGS = Path(__file__).resolve().parents[2] / "dags"


@pytest.fixture
def load_dag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Returns a DAG as it is under an environment."""
    os.environ.setdefault("AIRFLOW_HOME", str(tmp_path))
    from airflow.dag_processing.dagbag import DagBag

    def loaded(dag_id: str, **environment: str) -> Any:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        bag = DagBag(DAGS / f"{dag_id}.py")
        assert bag.import_errors == {}
        return bag.dags[dag_id]

    return loaded
