"""Settings of a local Airflow: its environment variables, its secrets, its ports.

All its state is in one folder, its AIRFLOW_HOME. Secrets are generated at the first start, are readable by the owner
only, and stay the same afterwards, so that a login outlives a restart.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import util
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from custody.errors import ConfigurationError
from custody.extras import install_command
from custody.spark.environment import submit_environment

USER = "admin"
LOOPBACK = "127.0.0.1"
ADOPT_SECONDS = 60
"""How often the scheduler looks for tasks that a dead one left queued; Airflow's default is 300."""
SPARK_POOL = "custody_spark"
"""The pool of Spark drivers; the DAGs use it only where their environment says that it was made."""
_LOCK_SECONDS = 60
"""How long SQLite waits for its one writer; five seconds, its default, are less than a commit on a busy disk takes."""
_IDLE = {
    # A file that was changed is read at once all the same; each look at one that was not costs CPU for nothing.
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
    "AIRFLOW__DAG_PROCESSOR__PRINT_STATS_INTERVAL": "600",
    # Nothing here collects metrics: their queries would be a fifth of what an idle scheduler does.
    "AIRFLOW__SCHEDULER__POOL_METRICS_INTERVAL": "600",
    "AIRFLOW__SCHEDULER__TI_METRICS_INTERVAL": "600",
    "AIRFLOW__SCHEDULER__DAGRUN_METRICS_INTERVAL": "600",
    # Twice as long as by default, and far below what counts as dead. A task that ends is seen a second later.
    "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "2",
    "AIRFLOW__SCHEDULER__JOB_HEARTBEAT_SEC": "10",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "10",
    "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "10",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "30",
}
"""What keeps an Airflow cheap that has nothing to do; docs/airflow.md gives the same to deployments."""
_SQLITE_ARGUMENTS = "custody_local.sqlite.CONNECT_ARGUMENTS"


@dataclass(frozen=True, slots=True)
class Secrets:
    """The keys and the one password of a local Airflow."""

    password: str
    fernet_key: str
    jwt_secret: str
    api_secret: str


@dataclass(frozen=True, slots=True)
class Pool:
    """An Airflow pool of the project's `airflow_settings.yaml`."""

    name: str
    slots: int
    description: str


def load_secrets(home: Path) -> Secrets:
    """Read the secrets of an Airflow home, or make them."""
    path = home / "secrets.json"
    if not path.exists():
        generated = {
            "password": secrets.token_urlsafe(15),
            "fernet_key": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
            "jwt_secret": secrets.token_urlsafe(64),
            "api_secret": secrets.token_urlsafe(32),
        }
        write_private(path, json.dumps(generated))
    stored = Secrets(**json.loads(path.read_text(encoding="utf-8")))
    write_private(passwords_file(home), json.dumps({USER: stored.password}))
    return stored


def passwords_file(home: Path) -> Path:
    """The file in which Airflow's simple authentication looks passwords up."""
    return home / "passwords.json"


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, at no time otherwise, and never half."""
    draft = path.with_name(f".{path.name}-{os.getpid()}")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(text)
    draft.replace(path)


def choose_port(port: int | None) -> int:
    """Return a port of this host that nobody listens on: `port`, or any when it is None.

    Raises:
        ConfigurationError: `port` is taken.
    """
    with socket.socket() as probe:
        # As the server will do it: a port whose last connection is just closing is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port or 0))
        except OSError as error:
            raise ConfigurationError(
                f"port {port} of {LOOPBACK}: expected a free one, got: {error}. "
                f"Give another port, or none to have one chosen."
            ) from error
        return int(probe.getsockname()[1])


def read_pools(project: Path) -> list[Pool]:
    """The pools that the project declares for Astro, so that both ways to run it know the same."""
    path = project / "airflow_settings.yaml"
    if not path.is_file():
        return []
    declared = yaml.safe_load(path.read_text(encoding="utf-8"))["airflow"].get("pools") or []
    return [
        Pool(pool["pool_name"], int(pool["pool_slot"]), pool.get("pool_description") or "")
        for pool in declared
        if pool.get("pool_name")
    ]


def check_database(url: str) -> str:
    """Return the URL of a database, if Airflow can reach it with the drivers that are installed.

    Raises:
        ConfigurationError: it is another kind of database, or a driver is missing.
    """
    if url.startswith("sqlite:///"):
        return url
    if not url.startswith("postgresql"):
        raise ConfigurationError(
            f"database {url.partition(':')[0]}: expected postgresql+psycopg2://user:password@host:port/name, or none."
        )
    # The server of the web page uses the second one, whatever the URL says.
    if missing := [name for name in ("psycopg2", "asyncpg") if util.find_spec(name) is None]:
        raise ConfigurationError(f"PostgreSQL: {', '.join(missing)} not installed. Run: {install_command('postgres')}")
    return url


def airflow_environment(
    project: Path,
    home: Path,
    *,
    port: int,
    master: str,
    parallelism: int,
    environ: Mapping[str, str],
    database: str | None = None,
) -> dict[str, str]:
    """Return the whole environment of the local Airflow's processes; `database` is a URL, SQLite without one."""
    url = f"http://{LOOPBACK}:{port}"
    keys = load_secrets(home)
    # An Airflow that the user has configured elsewhere must not shine through, its database least of all.
    result = {key: value for key, value in environ.items() if not key.startswith("AIRFLOW__")}
    result |= submit_environment(environ)
    if SPARK_POOL in {pool.name for pool in read_pools(project)}:
        result["CUSTODY_SPARK_POOL"] = SPARK_POOL
    python_path = [str(project / "include"), environ.get("PYTHONPATH")]
    connection = check_database(database or f"sqlite:///{home}/airflow.db?timeout={_LOCK_SECONDS}")
    if connection.startswith("sqlite"):
        result["AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS"] = _SQLITE_ARGUMENTS
    return result | {
        "PYTHONPATH": os.pathsep.join(part for part in python_path if part),
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": connection,
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs" / "tasks"),
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        # Each worker is a process that always runs; one Spark driver fills two cores anyway.
        "AIRFLOW__CORE__PARALLELISM": str(parallelism),
        # The tasks that a killed scheduler left in its queue go to the next one after a minute, not five.
        "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": str(ADOPT_SECONDS),
        "AIRFLOW__CORE__DAGS_FOLDER": str(project / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(project / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "AIRFLOW__CORE__FERNET_KEY": keys.fernet_key,
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords_file(home)),
        "AIRFLOW__API__HOST": LOOPBACK,
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": url,
        # Loopback and one user, who shall read what failed, and not an id to look for.
        "AIRFLOW__API__EXPOSE_STACKTRACE": "True",
        "AIRFLOW__API__SECRET_KEY": keys.api_secret,
        "AIRFLOW__API_AUTH__JWT_SECRET": keys.jwt_secret,
        # Five seconds by default: on a busy machine a task would fail because its first question is not answered.
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": str(2 * _LOCK_SECONDS),
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
        **_IDLE,
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": master}),
        # Whom `provenance_runs` asks for runs that the listener lost.
        "AIRFLOW_CONN_CUSTODY_AIRFLOW_API": json.dumps(
            {"conn_type": "http", "host": LOOPBACK, "port": port, "login": USER, "password": keys.password}
        ),
    }
