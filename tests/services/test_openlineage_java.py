"""The Java client of OpenLineage, as Spark, Flink and Hive have it, against the server."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from custody.repository import Repository
from custody.serving.access import Scope
from custody.spark.java import find_java
from tests.services.jars import jars
from tests.unit.serving.serve_process import Served, served, token

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
RUNS = 5
WITH_TOKENS = {"CUSTODY__SERVE__TOKEN_FILE": "tokens"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("java") / "repository"
    Repository.create(root)
    return root


@pytest.fixture(scope="module")
def key(root: Path) -> str:
    return token(root, "spark", Scope.APPEND)["authorization"].split()[1]


@pytest.fixture(scope="module")
def at(root: Path, key: str) -> Iterator[Served]:
    assert key
    with served(root, "--quiet", **WITH_TOKENS) as server:
        yield server


def emit(url: str, key: str, compression: str) -> subprocess.CompletedProcess[str]:
    """Run the producer from its source, as a Java with a compiler can."""
    java = find_java(os.environ).executable
    path = ":".join(map(str, jars(HERE / "openlineage.jars")))
    command = [str(java), "-cp", path, str(HERE / "OpenLineageProducer.java"), url, key, compression, str(RUNS)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize(
    ("path", "compression"), [("", "plain"), ("", "gzip"), ("/openlineage", "gzip"), ("/api/v1/lineage", "plain")]
)
def test_what_the_java_client_emits_is_stored_once_at_each_documented_url(
    at: Served, root: Path, key: str, path: str, compression: str
) -> None:
    done = emit(f"{at.url}{path}", key, compression)
    assert done.stdout.strip().endswith("emitted"), done.stdout + done.stderr
    documents = [json.loads(event.extra or "")["openlineage"] for event in Repository.open(root).events()]
    # The same events each time: the later ones are repetitions.
    assert len(documents) == 2 * RUNS + 2
    assert sorted(str(one.get("eventType")) for one in documents) == sorted(["START", "COMPLETE"] * RUNS + ["None"] * 2)
    assert [one["dataset"]["name"] for one in documents if "dataset" in one] == ["näss pot"]
    assert list(Repository.open(root).quarantine.entries()) == []


def test_a_wrong_key_is_an_error_that_the_client_sees(at: Served) -> None:
    done = emit(at.url, "custody_wrong-key-of-a-client", "plain")
    assert "emitted" not in done.stdout
    assert "401" in done.stderr
