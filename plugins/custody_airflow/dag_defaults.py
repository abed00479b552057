"""Defaults of all DAGs of custody: retries, time-outs, owner, and the parameter to take work over."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import Context, Param

from custody_airflow.environment import FIRST_DAY

TAKE_OVER_PARAM = Param(
    False,
    type="boolean",
    title="Take the work over",
    description="From an attempt that lives but hangs; it ends as superseded. Otherwise tasks wait for it, then fail.",
)
TAKE_OVER = "{{ '--take-over' if params.take_over else '' }}"
"""The argument of a job that takes the work over, or none."""

_RETRIES = 2
_LOG = logging.getLogger(__name__)


def say_error(context: Context) -> None:
    """Write why a try of a task failed as a line of its log: Airflow's own line hides it in folded details."""
    error = context.get("exception")
    if error:
        _LOG.error("%s: %s", type(error).__name__, error)


def dag_defaults(
    *tags: str,
    run_hours: int,
    task_hours: int,
    retry_delay: timedelta = timedelta(seconds=30),
    priority: int = 1,
    max_active_runs: int = 1,
    since: datetime = FIRST_DAY,
    catchup: bool = False,
) -> dict[str, Any]:
    """Return the arguments that all DAGs share, with the differences that are given.

    Args:
        tags: more tags.
        run_hours: a run that takes longer has failed.
        task_hours: a try of a task that takes longer has failed.
        retry_delay: how long a failed task waits for its next try.
        priority: which DAG's tasks go first when a pool is full; a larger number goes first.
        max_active_runs: how many runs may go on at once; 1 where one run is one pass over the repository.
        since: the start of the first interval.
        catchup: whether missed intervals are made up.
    """
    return {
        "start_date": since,
        "catchup": catchup,
        "max_active_runs": max_active_runs,
        "dagrun_timeout": timedelta(hours=run_hours),
        "tags": ["custody", "provenance", *tags],
        "default_args": {
            "owner": "custody",
            "retries": _RETRIES,
            "retry_delay": retry_delay,
            "execution_timeout": timedelta(hours=task_hours),
            "on_failure_callback": say_error,
            "on_retry_callback": say_error,
            "priority_weight": priority,
            # The DAG's number as it is; by default Airflow adds those of the tasks downstream.
            "weight_rule": "absolute",
        },
    }
