"""Run by `astro dev parse`: every DAG file must be importable, without any outside state.

It differs from the file that the Astro CLI generates: that one asks Airflow for an argument that
version 3.3 no longer has. Connections and variables are not replaced by made-up ones and there is no
database, because a DAG of this project reads nothing while it is parsed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]
DAGS = PROJECT / "dags"
EXCEPTIONS = Path(__file__).with_name("dag_integrity_exceptions.txt")

# Airflow's own warnings are not this project's errors.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def import_errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The broken DAG files and why; none of those that are excused."""
    # Set before the first import of Airflow, which reads it once.
    os.environ.setdefault("AIRFLOW_HOME", str(tmp_path_factory.mktemp("airflow")))
    from airflow.dag_processing.dagbag import DagBag

    lines = EXCEPTIONS.read_text(encoding="utf-8").splitlines()
    excused = {line.strip() for line in lines if line.strip() and not line.startswith("#")}
    errors = DagBag(DAGS).import_errors
    shown = {os.path.relpath(file, PROJECT): text for file, text in errors.items()}
    return {file: text for file, text in shown.items() if file not in excused}


@pytest.mark.parametrize("file", sorted(DAGS.glob("**/*.py")), ids=lambda file: file.name)
def test_dag_file_can_be_imported(file: Path, import_errors: dict[str, str]) -> None:
    """A file that cannot is shown with its traceback."""
    name = os.path.relpath(file, PROJECT)
    if name in import_errors:
        pytest.fail(f"{name} cannot be imported:\n{import_errors[name]}", pytrace=False)
