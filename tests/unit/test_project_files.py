"""The files around the code agree with each other."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from packaging.requirements import Requirement

from custody_local.settings import SPARK_POOL

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[a-z,]+\])?==([^\s;]+)")


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(lines: list[str]) -> dict[str, set[str]]:
    """The exact versions that a list of requirements allows, by package."""
    found: dict[str, set[str]] = {}
    for line in lines:
        if match := PIN.match(line):
            found.setdefault(normal(match[1]), set()).add(match[2])
    return found


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    loaded: dict[str, Any] = tomllib.loads(text("pyproject.toml"))["project"]
    return loaded


@pytest.fixture(scope="module")
def image() -> dict[str, set[str]]:
    """What requirements.txt puts into the image."""
    return pins(text("requirements.txt").splitlines())


def wanted_in_image(project: dict[str, Any]) -> list[Requirement]:
    extras = project["optional-dependencies"]
    wanted = [Requirement(line) for line in project["dependencies"] + extras["spark"] + extras["airflow"]]
    # Airflow itself is what the image is, and it brings its web server along.
    return [one for one in wanted if one.name not in ("apache-airflow", "fastapi", "uvicorn")]


def test_image_gets_all_that_the_project_needs_and_nothing_else(
    project: dict[str, Any], image: dict[str, set[str]]
) -> None:
    assert set(image) == {normal(one.name) for one in wanted_in_image(project)}


def test_image_has_versions_that_the_project_allows(project: dict[str, Any], image: dict[str, set[str]]) -> None:
    for one in wanted_in_image(project):
        assert all(version in one.specifier for version in image[normal(one.name)]), one


def test_project_leaves_other_packages_their_versions(project: dict[str, Any]) -> None:
    """Exact versions in a package's metadata keep it out of environments that have others."""
    exact = {"Whoosh-Reloaded", "pyspark", "pyspark-client"}
    extras = {name: lines for name, lines in project["optional-dependencies"].items() if name != "dev"}
    for line in [*project["dependencies"], *chain.from_iterable(extras.values())]:
        one = Requirement(line)
        assert one.name in exact or {clause.operator for clause in one.specifier} == {">="}, line


def test_image_takes_its_versions_from_the_lock(image: dict[str, set[str]]) -> None:
    locked = pins(text("requirements.lock").splitlines())
    for name, versions in image.items():
        assert versions <= locked[name], name


def test_lock_pins_what_the_project_allows(project: dict[str, Any]) -> None:
    locked = pins(text("requirements.lock").splitlines())
    extras = project["optional-dependencies"]
    for line in [*project["dependencies"], *chain.from_iterable(extras.values())]:
        one = Requirement(line)
        versions = locked[normal(one.name)]
        assert versions, line
        assert all(version in one.specifier for version in versions), line


def test_lock_names_a_hash_for_every_package() -> None:
    packages = re.split(r"\n(?=\S)", text("requirements.lock").strip())
    assert [package.split()[0] for package in packages if "--hash=sha256:" not in package] == []


def test_pyspark_and_its_client_are_of_one_version(image: dict[str, set[str]]) -> None:
    locked = pins(text("requirements.lock").splitlines())
    assert image["pyspark"] == image["pyspark-client"] == locked["pyspark"]
    assert locked["pyspark"] == locked["pyspark-client"]


def test_java_comes_from_the_package_list_and_the_dockerfile_adds_no_other() -> None:
    packages = text("packages.txt").split()
    java = [name for name in packages if re.fullmatch(r"openjdk-(\d+)-jre-headless", name)]
    assert len(java) == 1
    assert int(java[0].split("-")[1]) >= 17
    assert "procps" in packages
    for word in ("apt-get", "openjdk", "JAVA_HOME"):
        assert word not in text("Dockerfile")


def test_dockerfile_starts_from_the_airflow_and_a_python_of_the_project(
    project: dict[str, Any],
) -> None:
    match = re.search(r"^FROM \S+/runtime:(\d+\.\d+)-\d+-python-(\d+\.\d+)$", text("Dockerfile"), re.M)
    assert match, "FROM must name a runtime with its Python"
    airflow = pins(text("requirements.lock").splitlines())["apache-airflow"]
    assert {version.rsplit(".", 1)[0] for version in airflow} == {match[1]}
    assert match[2] in ("3.11", "3.12")
    assert project["requires-python"] == ">=3.11,<3.13"


def test_dockerfile_makes_custody_importable() -> None:
    assert "PYTHONPATH=/usr/local/airflow/include" in text("Dockerfile")


def test_containers_and_image_mean_the_same_repository_folder() -> None:
    loaded = yaml.safe_load(text("docker-compose.override.yml"))
    folder = loaded["x-custody"]["environment"]["CUSTODY_REPOSITORY"]
    assert f"CUSTODY_REPOSITORY={folder}\n" in text("Dockerfile")
    assert f"--group=0 {folder}\n" in text("Dockerfile")
    for name in ("scheduler", "triggerer", "api-server", "dag-processor"):
        service = loaded["services"][name]
        assert service["environment"]["CUSTODY_REPOSITORY"] == folder
        assert f"repository:{folder}" in service["volumes"]
        assert any(mount.startswith("./spark_jobs:") for mount in service["volumes"])


def test_airflow_settings_name_the_spark_connection_and_its_pool() -> None:
    settings = yaml.safe_load(text("airflow_settings.yaml"))["airflow"]
    connections = {entry["conn_id"]: entry for entry in settings["connections"]}
    assert connections["spark_default"]["conn_type"] == "spark"
    assert connections["spark_default"]["conn_host"] == "local[*]"
    pools = {entry["pool_name"]: entry["pool_slot"] for entry in settings["pools"]}
    assert pools == {SPARK_POOL: 2}
    # Named in the file that only `astro dev start` reads, as it reads the settings: elsewhere nobody made the pool.
    compose = yaml.safe_load(text("docker-compose.override.yml"))
    assert compose["x-custody"]["environment"]["CUSTODY_SPARK_POOL"] == SPARK_POOL
    assert "CUSTODY_SPARK_POOL" not in text("Dockerfile")


def test_settings_file_is_not_ignored_by_git() -> None:
    ignored = [line.strip() for line in text(".gitignore").splitlines()]
    assert "airflow_settings.yaml" not in ignored


def test_every_pool_that_a_dag_names_is_declared() -> None:
    declared = yaml.safe_load(text("airflow_settings.yaml"))["airflow"]["pools"]
    names = {entry["pool_name"] for entry in declared}
    folders = [ROOT / "dags", ROOT / "plugins"]
    for file in (file for folder in folders for file in folder.rglob("*.py")):
        used = set(re.findall(r"""\bpool=["']([\w-]+)["']""", file.read_text(encoding="utf-8")))
        assert used <= names, file


def test_packages_of_plugins_are_not_imported_file_by_file() -> None:
    ignored = text("plugins/.airflowignore").splitlines()
    packages = [file.parent for file in (ROOT / "plugins").glob("*/__init__.py")]
    assert {f"{folder.name}/" for folder in packages} <= set(ignored)


def test_make_help_lists_every_target() -> None:
    targets = set(re.findall(r"^([a-z]+):", text("Makefile"), re.M))
    phony = re.search(r"^\.PHONY: (.*)$", text("Makefile"), re.M)
    assert phony
    assert set(phony[1].split()) == targets
    make = shutil.which("make")
    if make is None:
        pytest.skip("no make on this machine")
    shown = subprocess.run([make, "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(re.findall(r"^  make ([a-z]+) ", shown.stdout, re.M)) == targets


@pytest.mark.parametrize(
    ("target", "command", "code"), [("help", "true", 0), ("help", "false", 1), ("no-target", "true", 2)]
)
def test_a_target_beside_a_command_is_shown_and_fails_loudly(target: str, command: str, code: int) -> None:
    done = subprocess.run([ROOT / ".ci/beside", target, command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert f"make {target}, beside the above:" in done.stdout
    assert (f"make {target} FAILED" in done.stderr) == (target != "help")


@pytest.mark.parametrize("script", ["run", "environment", "uv", "beside"])
def test_scripts_can_be_started_and_stop_at_the_first_error(script: str) -> None:
    path = ROOT / ".ci" / script
    assert os.access(path, os.X_OK)
    assert "\nset -euo pipefail\n" in path.read_text(encoding="utf-8")
    subprocess.run(["bash", "-n", path], check=True)


def test_python_that_does_not_fit_is_refused_with_a_remedy(tmp_path: Path) -> None:
    wrong = tmp_path / "python"
    wrong.write_text("#!/bin/sh\nexit 1\n")
    wrong.chmod(0o755)
    shutil.copytree(ROOT / ".ci", tmp_path / "project" / ".ci")
    script = tmp_path / "project" / ".ci" / "environment"
    done = subprocess.run([script, wrong], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "3.11 or 3.12" in done.stderr
    assert "make env PYTHON=" in done.stderr
    assert not (tmp_path / "project" / ".venv").exists()


def test_license_is_the_one_that_the_project_names(project: dict[str, Any]) -> None:
    assert project["license"] == "Apache-2.0"
    assert "Version 2.0, January 2004" in text("LICENSE")
    assert "END OF TERMS AND CONDITIONS" in text("LICENSE")
