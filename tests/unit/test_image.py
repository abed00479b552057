"""The image and the containers as far as they can be looked at without a container engine.

`make lint` runs hadolint and the schema of compose files over them; here is what neither can know.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.image import ROOT, run_steps_of, variables_of

PROJECT = "/usr/local/airflow"
LOOPBACK = re.compile(r"^127\.0\.0\.1:\d+:\d+$")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.override.yml").read_text(encoding="utf-8"))
    return loaded


@pytest.fixture(scope="module")
def services(compose: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = compose["services"]
    return found


def test_every_command_of_the_dockerfile_is_shell_that_can_be_read() -> None:
    steps = run_steps_of(ROOT / "Dockerfile")
    assert len(steps) == 4
    for step in steps:
        subprocess.run(["bash", "-n", "-c", step], check=True)
        for path in re.findall(rf"{PROJECT}/([\w/.]+)", step):
            assert path in ("repository", "include", "plugins", "dags", "spark_jobs"), "the rest comes with the project"


def test_variables_of_the_image_name_folders_of_the_project() -> None:
    variables = variables_of(ROOT / "Dockerfile")
    for folder in variables["PYTHONPATH"].split(":"):
        assert (ROOT / folder.removeprefix(PROJECT).lstrip("/")).is_dir()


def test_nothing_is_published_beyond_this_machine(services: dict[str, Any]) -> None:
    published = {name: port for name, service in services.items() for port in service.get("ports", [])}
    assert set(published) == {"spark-master", "object-store"}
    for port in published.values():
        assert LOOPBACK.match(port)
    for service in services.values():
        assert "network_mode" not in service
        assert service.get("networks", ["airflow"]) == ["airflow"]


def test_spark_s_parts_run_the_project_s_own_image_and_only_when_asked_for(services: dict[str, Any]) -> None:
    for name in ("spark-master", "spark-worker"):
        assert services[name]["image"] == "${CUSTODY_IMAGE:-custody:local}"
        assert services[name]["profiles"] == ["spark"]
    address = services["spark-worker"]["command"][-1]
    host, port = re.fullmatch(r"spark://([\w-]+):(\d+)", address).groups()  # type: ignore[union-attr]
    assert host in services
    options = services["spark-master"]["command"]
    assert options[options.index("--host") + 1] == host
    assert options[options.index("--port") + 1] == port


def test_what_a_worker_reads_and_writes_lies_where_the_scheduler_has_it(services: dict[str, Any]) -> None:
    def mounts(name: str) -> dict[str, str]:
        return {target: source for source, target, *_ in (item.split(":") for item in services[name]["volumes"])}

    scheduler, worker = mounts("scheduler"), mounts("spark-worker")
    assert scheduler.items() <= worker.items()
    # The Astro CLI mounts include/ into its own containers only.
    assert set(worker) - set(scheduler) == {f"{PROJECT}/include"}
    assert services["scheduler"]["environment"]["SPARK_LOCAL_HOSTNAME"] == "scheduler"


def test_every_volume_is_declared_and_every_image_is_pinned(compose: dict[str, Any], services: dict[str, Any]) -> None:
    named = {item.split(":")[0] for service in services.values() for item in service.get("volumes", [])}
    assert {name for name in named if not name.startswith(".")} == set(compose["volumes"])
    foreign = {
        service["image"]
        for service in services.values()
        if "CUSTODY_IMAGE" not in service.get("image", "CUSTODY_IMAGE")
    }
    assert foreign
    for image in foreign:
        assert re.fullmatch(r"[\w.]+/[\w/.-]+:\d+(\.\d+)+", image), image


def test_the_example_environment_fits_the_containers(services: dict[str, Any]) -> None:
    lines = (ROOT / ".env.example").read_text(encoding="utf-8").splitlines()
    values = [line.lstrip("#").partition("=") for line in lines if re.match(r"^#\w+=", line)]
    example = {name: shlex.split(value)[0] for name, _, value in values}
    store = services["object-store"]
    endpoint = re.fullmatch(r"http://([\w-]+):(\d+)", example["AWS_ENDPOINT_URL"])
    assert endpoint
    assert endpoint[1] in services
    assert endpoint[2] == store["ports"][0].split(":")[-1]
    bucket = next(option for option in store["command"] if option.startswith("-bucket="))
    assert example["CUSTODY__REPOSITORY__STORE"].startswith(f"s3://{bucket.removeprefix('-bucket=')}/")
    for service in (store, services["spark-worker"]):
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            assert service["environment"][name] == f"${{{name}:-{example[name]}}}"
    for name in ("AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP", "AWS_REGION"):
        assert services["spark-worker"]["environment"][name] == f"${{{name}:-{example[name]}}}"
    profiles = {profile for service in services.values() for profile in service.get("profiles", [])}
    assert {value for name, _, value in values if name == "COMPOSE_PROFILES"} == profiles
