"""A Spark cluster as docker-compose.override.yml describes it: its own commands, on this machine's loopback address."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from custody.recovery import STEPS
from custody.repository import Repository
from custody.spark.environment import submit_environment
from custody.spark.submit import step_command
from custody_local.settings import choose_port
from tests.image import ROOT
from tests.support import INCLUDE, append, event

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EVENTS = [event(number) for number in range(50)]


@pytest.fixture
def environ() -> dict[str, str]:
    """What the containers have besides Spark's own: one import name everywhere, and a name to be found by."""
    here = {**os.environ, "PYTHONPATH": str(INCLUDE), "SPARK_LOCAL_HOSTNAME": "localhost"}
    here["CUSTODY__SPARK__DRIVER_BYTES_MAX"] = "0"  # fifty events are no work for a cluster
    return {**here, **submit_environment(here)}


@pytest.fixture
def master(environ: dict[str, str], tmp_path: Path) -> Iterator[str]:
    """The address of a master that has a worker."""
    services = yaml.safe_load((ROOT / "docker-compose.override.yml").read_text(encoding="utf-8"))["services"]
    port, master_page, worker_page = (str(choose_port(None)) for _ in range(3))
    here = {"spark-master": "localhost", "spark-worker": "localhost", "/tmp/spark": str(tmp_path / "work")}
    with ExitStack() as running:
        for name, page in (("spark-master", master_page), ("spark-worker", worker_page)):
            command = [here.get(part, part) for part in services[name]["command"]]
            command = [re.sub(r"^spark://.*$", f"spark://localhost:{port}", part) for part in command]
            command = [{"7077": port, "8080": page, "8081": page}.get(part, part) for part in command]
            command[0] = str(Path(sys.prefix) / "bin" / command[0])
            own = services[name].get("environment", {}) if name == "spark-master" else {}
            with (tmp_path / f"{name}.log").open("wb") as log:
                process = subprocess.Popen(
                    command,
                    env={**environ, **own},
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            running.callback(process.wait)
            running.callback(os.killpg, process.pid, signal.SIGKILL)
        wait_for_worker(f"http://localhost:{master_page}/json/", tmp_path)
        yield f"spark://localhost:{port}"


def wait_for_worker(url: str, folder: Path) -> None:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - this machine
                if json.load(answer)["aliveworkers"] == 1:
                    return
        except OSError:
            pass
        time.sleep(0.5)
    pytest.fail("\n".join(log.read_text() for log in folder.glob("spark-*.log")))


def test_the_steps_of_a_rollover_run_on_the_cluster(
    repository: Repository, master: str, environ: dict[str, str]
) -> None:
    append(repository, EVENTS)
    arguments = ["--repository", str(repository.settings.root)]
    command = step_command("all", arguments, master=master, environ=environ)
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    reports = {json.loads(line)["step"]: json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")}
    assert set(reports) == set(STEPS)
    assert all(report["failed"] == 0 for report in reports.values())
    assert repository.search("", limit=1).total == len(EVENTS)
    assert repository.status().pending.sealed_groups == 0
