"""The listener of Airflow's runs: each start and end becomes an event in a spool, in a few milliseconds.

It never fails a task or a run, and never waits for a server or a repository: what goes wrong is a warning in the log.
The spool is delivered by `custody spool deliver`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from airflow.listeners import hookimpl

from custody.client import Spool
from custody_airflow.environment import run_deployment, run_spool
from custody_airflow.run_events import RunFacts, end_events, start_events

_LOGGER = logging.getLogger(__name__)


@hookimpl
def on_task_instance_running(previous_state: Any, task_instance: Any) -> None:  # noqa: ANN401 - Airflow's own objects
    """Keep the start of a try."""
    _keep(lambda: start_events(task_facts(task_instance, "running")))


@hookimpl
def on_task_instance_success(previous_state: Any, task_instance: Any) -> None:  # noqa: ANN401
    """Keep the end of a try that succeeded."""
    _keep(lambda: end_events(task_facts(task_instance, "success")))


@hookimpl
def on_task_instance_failed(previous_state: Any, task_instance: Any, error: Any) -> None:  # noqa: ANN401
    """Keep the end of a try that failed, whether or not there will be another one."""
    _keep(lambda: end_events(task_facts(task_instance, "failed")))


@hookimpl
def on_task_instance_skipped(previous_state: Any, task_instance: Any) -> None:  # noqa: ANN401
    """Keep the end of a try that was skipped."""
    _keep(lambda: end_events(task_facts(task_instance, "skipped")))


@hookimpl
def on_dag_run_running(dag_run: Any, msg: str) -> None:  # noqa: ANN401
    """Keep the start of a run."""
    _keep(lambda: start_events(dag_run_facts(dag_run, "running")))


@hookimpl
def on_dag_run_success(dag_run: Any, msg: str) -> None:  # noqa: ANN401
    """Keep the end of a run that succeeded."""
    _keep(lambda: end_events(dag_run_facts(dag_run, "success")))


@hookimpl
def on_dag_run_failed(dag_run: Any, msg: str) -> None:  # noqa: ANN401
    """Keep the end of a run that failed."""
    _keep(lambda: end_events(dag_run_facts(dag_run, "failed")))


def task_facts(instance: Any, state: str) -> RunFacts:  # noqa: ANN401
    """Return what Airflow says of a try of a task."""
    task = getattr(instance, "task", None)
    return RunFacts(
        deployment=run_deployment(),
        dag_id=instance.dag_id,
        run_id=instance.run_id,
        state=state,
        start=instance.start_date,
        end=instance.end_date,
        task_id=instance.task_id,
        map_index=instance.map_index if instance.map_index is not None else -1,
        try_number=instance.try_number,
        operator=None if task is None else type(task).__name__,
        inlets=_uris(task, "inlets"),
        outlets=_uris(task, "outlets"),
        log_url=getattr(instance, "log_url", None),
    )


def dag_run_facts(run: Any, state: str) -> RunFacts:  # noqa: ANN401
    """Return what Airflow says of a run of a DAG."""
    return RunFacts(run_deployment(), run.dag_id, run.run_id, state, run.start_date, run.end_date)


def _uris(task: Any, name: str) -> tuple[str, ...]:  # noqa: ANN401
    # Aliases and references have no URI before the run.
    uris = (getattr(item, "uri", None) for item in getattr(task, name, None) or ())
    return tuple(dict.fromkeys(uri for uri in uris if isinstance(uri, str)))


def _keep(events: Callable[[], list[dict[str, object]]]) -> None:
    folder = run_spool()
    if folder is None:
        return
    try:
        told = events()
        if told:
            _spool(folder, os.getpid()).append(told)
    # Whatever it is: provenance must never cost a run.
    except Exception as error:  # noqa: BLE001
        _LOGGER.warning("custody: an event of this run could not be kept in %s: %s", folder, error)


@lru_cache(maxsize=1)
def _spool(folder: Path, _pid: int) -> Spool:
    # By process: a child that was forked must not write to the segment of its parent.
    return Spool(folder, "airflow")
