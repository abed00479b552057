"""Imports that Airflow repeats again and again are small: DAG files and plugins load no Arrow, Spark or Whoosh."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
HEAVY = {"pyspark", "pyarrow", "whoosh", "numpy", "pandas", "duckdb", "obstore"}
# What the DAG processor, the triggerer and the API server do: every DAG file, and every module of the plugins.
PARSE = """
import json, runpy, sys
from importlib import import_module
from pathlib import Path

project = Path(sys.argv[1])
for file in sorted((project / "dags").glob("*.py")):
    runpy.run_path(str(file))
for file in sorted((project / "plugins").rglob("*.py")):
    name = ".".join(file.relative_to(project / "plugins").with_suffix("").parts)
    import_module(name.removesuffix(".__init__"))
print(json.dumps(sorted(sys.modules)))
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The modules of a fresh interpreter that has read all DAG files and plugins."""
    path = os.pathsep.join([str(PROJECT / "plugins"), str(PROJECT / "include")])
    home = str(tmp_path_factory.mktemp("airflow"))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PARSE, str(PROJECT)],
        env={**os.environ, "PYTHONPATH": path, "AIRFLOW_HOME": home},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_no_heavy_library_is_loaded(loaded: set[str]) -> None:
    assert {"airflow.sdk", "custody_airflow.triggers", "custody_airflow.operators"} <= loaded
    assert HEAVY & loaded == set()
