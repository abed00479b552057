"""Settings of the deployment, from Airflow's environment: the repository, the schedules, the pool."""

from __future__ import annotations

import math
import os
import re
from datetime import UTC, datetime
from pathlib import Path

from custody.errors import ConfigurationError

REPOSITORY_VARIABLE = "CUSTODY_REPOSITORY"
SCHEDULE_VARIABLE = "CUSTODY_ROLLOVER_SCHEDULE"
WATCH_VARIABLE = "CUSTODY_ROLLOVER_WATCH"
RETENTION_SCHEDULE_VARIABLE = "CUSTODY_RETENTION_SCHEDULE"
MAINTENANCE_SCHEDULE_VARIABLE = "CUSTODY_MAINTENANCE_SCHEDULE"
HANDOFF_BOUND_VARIABLE = "CUSTODY_HANDOFF_BOUND"
REPLAY_SCHEDULE_VARIABLE = "CUSTODY_REPLAY_SCHEDULE"
NGSI_SCHEDULE_VARIABLE = "CUSTODY_NGSI_SCHEDULE"
NGSI_WATCH_VARIABLE = "CUSTODY_NGSI_WATCH"
INGEST_SCHEDULE_VARIABLE = "CUSTODY_INGEST_SCHEDULE"
INGEST_SINCE_VARIABLE = "CUSTODY_INGEST_SINCE"
NGSI_MOUNT_VARIABLE = "CUSTODY_NGSI_MOUNT"
SERVE_MOUNT_VARIABLE = "CUSTODY_SERVE_MOUNT"
RUN_SPOOL_VARIABLE = "CUSTODY_RUN_SPOOL"
RUN_DEPLOYMENT_VARIABLE = "CUSTODY_RUN_DEPLOYMENT"
RUNS_SCHEDULE_VARIABLE = "CUSTODY_RUNS_SCHEDULE"
SPARK_POOL_VARIABLE = "CUSTODY_SPARK_POOL"
FIRST_DAY = datetime(2026, 1, 1, tzinfo=UTC)
DEFAULT_POOL = "default_pool"
_MOUNT = re.compile(r"(?:/[A-Za-z0-9._~-]+)+")
_AIRFLOWS_OWN = ("/api/v2", "/ui", "/execution", "/auth", "/pluginsv2")
"""Beginnings of paths under which Airflow mounts no plugin."""
_EVERY_MINUTE = "* * * * *"
_EVERY_TEN_MINUTES = "*/10 * * * *"
_EVERY_HOUR = "0 * * * *"
_EVERY_DAY = "0 0 * * *"
# Small logs of the last hour become one: a search pays for each shard.
_BETWEEN_HOURS = "40 * * * *"
_AN_HOUR = "3600"


def repository_folder() -> Path:
    """Return the repository's folder, named by the deployment and by nobody else: it is no parameter of a run.

    Raises:
        ConfigurationError: CUSTODY_REPOSITORY is not set.
    """
    named = os.environ.get(REPOSITORY_VARIABLE)
    if not named:
        raise ConfigurationError(
            f"{REPOSITORY_VARIABLE}: expected the folder of the repository in Airflow's environment, found nothing. "
            "Set it and restart Airflow; `custody init FOLDER` makes a repository."
        )
    return Path(named)


def spark_pool() -> str:
    """Return the pool of Spark drivers; Airflow's own pool where the deployment names none.

    A task of a pool that does not exist is never started, and Airflow says so in its log only. So the pool is used only
    where the deployment names it.
    """
    return os.environ.get(SPARK_POOL_VARIABLE, "").strip() or DEFAULT_POOL


def rollover_schedule() -> str | None:
    """Return the cron schedule of the rollover; an empty variable means that only people trigger it."""
    return _schedule(SCHEDULE_VARIABLE, _EVERY_MINUTE)


def rollover_watch() -> float | None:
    """Return how often the triggerer looks for journals, in seconds; None where only a schedule starts the rollover.

    Raises:
        ConfigurationError: CUSTODY_ROLLOVER_WATCH is no number of seconds above 0.
    """
    return _seconds(WATCH_VARIABLE)


def ngsi_watch() -> float | None:
    """Return how often the triggerer looks whether a batch of the NGSI sink is due, in seconds; None where it does not.

    Raises:
        ConfigurationError: CUSTODY_NGSI_WATCH is no number of seconds above 0.
    """
    return _seconds(NGSI_WATCH_VARIABLE)


def ngsi_mount() -> str | None:
    """Return the path of Airflow's API server below which notifications are taken; None where they are not.

    Raises:
        ConfigurationError: CUSTODY_NGSI_MOUNT is no path, or one of Airflow's own.
    """
    return _mount(NGSI_MOUNT_VARIABLE, "/custody/ngsi")


def serve_mount() -> str | None:
    """Return the path of Airflow's API server below which the doors of `serve.doors` are; None where they are not.

    Raises:
        ConfigurationError: CUSTODY_SERVE_MOUNT is no path, or one of Airflow's own.
    """
    return _mount(SERVE_MOUNT_VARIABLE, "/custody")


def run_spool() -> Path | None:
    """Return the spool that events of Airflow's own runs go to; None where none are kept."""
    named = os.environ.get(RUN_SPOOL_VARIABLE, "").strip()
    return Path(named) if named else None


def run_deployment() -> str:
    """Return the name of this Airflow in the source of such events; two Airflows of one repository need two names."""
    return os.environ.get(RUN_DEPLOYMENT_VARIABLE, "").strip() or "airflow"


def runs_schedule() -> str | None:
    """Return the cron schedule by which events of Airflow's runs are delivered and reconciled; None: not by itself.

    Without a spool there are none.
    """
    return None if run_spool() is None else _schedule(RUNS_SCHEDULE_VARIABLE, _EVERY_TEN_MINUTES)


def ingest_schedule() -> str | None:
    """Return the cron schedule of the ingest's intervals; an empty variable means that only people trigger it."""
    return _schedule(INGEST_SCHEDULE_VARIABLE, _EVERY_HOUR)


def ngsi_schedule() -> str | None:
    """Return the cron schedule of the NGSI sink's intervals; an empty variable leaves it to commits and people."""
    return _schedule(NGSI_SCHEDULE_VARIABLE, _EVERY_HOUR)


def retention_schedule() -> str | None:
    """Return the cron schedule of the retention; an empty variable means that only people trigger it."""
    return _schedule(RETENTION_SCHEDULE_VARIABLE, _EVERY_HOUR)


def replay_schedule() -> str | None:
    """Return the cron schedule of the replay, whose intervals a backfill takes; empty means that there is none."""
    return _schedule(REPLAY_SCHEDULE_VARIABLE, _EVERY_DAY)


def maintenance_schedule() -> str | None:
    """Return the cron schedule of the maintenance; an empty variable means that only people trigger it."""
    return _schedule(MAINTENANCE_SCHEDULE_VARIABLE, _BETWEEN_HOURS)


def handoff_bound() -> float | None:
    """Return for how many seconds something may wait for its hand-over; None where the maintenance does not look.

    Raises:
        ConfigurationError: CUSTODY_HANDOFF_BOUND is no number of seconds above 0.
    """
    return _seconds(HANDOFF_BOUND_VARIABLE, _AN_HOUR)


def ingest_since() -> tuple[datetime, bool]:
    """Return the instant of the first interval, and whether those that were missed since then are made up.

    Raises:
        ConfigurationError: CUSTODY_INGEST_SINCE is no date.
    """
    named = os.environ.get(INGEST_SINCE_VARIABLE, "").strip()
    if not named:
        return FIRST_DAY, False
    try:
        since = datetime.fromisoformat(named)
    except ValueError as error:
        raise ConfigurationError(
            f"{INGEST_SINCE_VARIABLE}: expected a date such as 2026-11-10, got {named!r}. "
            "Correct it and restart Airflow."
        ) from error
    return since.replace(tzinfo=UTC) if since.tzinfo is None else since, True


def _mount(variable: str, example: str) -> str | None:
    named = os.environ.get(variable, "").strip()
    if not named:
        return None
    if not _MOUNT.fullmatch(named) or named.startswith(_AIRFLOWS_OWN):
        raise ConfigurationError(
            f"{variable}: expected a path such as {example} that is not Airflow's own, got {named!r}. "
            "Correct it and restart Airflow."
        )
    return named


def _seconds(variable: str, otherwise: str = "") -> float | None:
    named = os.environ.get(variable, otherwise).strip()
    if not named:
        return None
    try:
        seconds = float(named)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise ConfigurationError(
            f"{variable}: expected seconds above 0, such as 1, got {named!r}. Correct it and restart Airflow."
        )
    return seconds


def _schedule(variable: str, otherwise: str) -> str | None:
    return os.environ.get(variable, otherwise).strip() or None
