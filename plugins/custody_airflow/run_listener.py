"""The listener of Airflow's runs: each start and end becomes an event in a spool, in a few milliseconds.

It never fails a task or a run, and never waits for a server or a repository. A disk that does not answer costs a
process some seconds once, and nothing after that. What goes wrong is a warning in the log and counted in Airflow's
metrics; the reconciliation finds in Airflow's database what was lost.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from airflow.listeners import hookimpl

from custody.airflow_runs.run_events import FAILED, RUNNING, SKIPPED, SUCCESS, RunFacts, end_events, start_events
from custody.client.spool import Spool
from custody_airflow.environment import run_deployment, run_spool
from custody_airflow.written import taken_files

LOST_METRIC = "custody.run_events_lost"
SECONDS_MAX = 2.0
"""So long an append may take; normally it is some milliseconds."""
_BYTES_MAX = 256 << 20
_SEGMENTS_MAX = 10_000
_LOGGER = logging.getLogger(__name__)


@hookimpl
def on_task_instance_running(previous_state: Any, task_instance: Any) -> None:  # noqa: ANN401 - Airflow's own objects
    """Keep the start of a try; one that was deferred starts again, which is the same event."""
    _keep(lambda: start_events(task_facts(task_instance, RUNNING)))


@hookimpl
def on_task_instance_success(previous_state: Any, task_instance: Any) -> None:  # noqa: ANN401
    """Keep the end of a try that succeeded."""
    _keep(lambda: end_events(task_facts(task_instance, SUCCESS)), is_last=_is_in_task(task_instance))


@hookimpl
def on_task_instance_failed(previous_state: Any, task_instance: Any, error: Any) -> None:  # noqa: ANN401
    """Keep the end of a try that failed, whether or not there will be another one."""
    _keep(lambda: end_events(task_facts(task_instance, FAILED)), is_last=_is_in_task(task_instance))


@hookimpl
def on_task_instance_skipped(previous_state: Any, task_instance: Any) -> None:  # noqa: ANN401
    """Keep the end of a try that was skipped."""
    _keep(lambda: end_events(task_facts(task_instance, SKIPPED)), is_last=_is_in_task(task_instance))


@hookimpl
def on_dag_run_running(dag_run: Any, msg: str) -> None:  # noqa: ANN401
    """Keep the start of a run."""
    _keep(lambda: start_events(dag_run_facts(dag_run, RUNNING)))


@hookimpl
def on_dag_run_success(dag_run: Any, msg: str) -> None:  # noqa: ANN401
    """Keep the end of a run that succeeded."""
    _keep(lambda: end_events(dag_run_facts(dag_run, SUCCESS)))


@hookimpl
def on_dag_run_failed(dag_run: Any, msg: str) -> None:  # noqa: ANN401
    """Keep the end of a run that failed."""
    _keep(lambda: end_events(dag_run_facts(dag_run, FAILED)))


def task_facts(instance: Any, state: str) -> RunFacts:  # noqa: ANN401
    """Return what Airflow says of a try of a task."""
    task = getattr(instance, "task", None)
    run = _run_of(instance)
    has_ended = state != RUNNING
    return RunFacts(
        deployment=run_deployment(),
        dag_id=instance.dag_id,
        run_id=instance.run_id,
        run_after=run.run_after,
        state=state,
        start=instance.start_date,
        # Airflow gives no end to a try that skips itself.
        end=(instance.end_date or datetime.now(UTC)) if has_ended else None,
        task_id=instance.task_id,
        map_index=instance.map_index if instance.map_index is not None else -1,
        try_number=instance.try_number,
        operator=None if task is None else getattr(task, "task_type", type(task).__name__),
        inlets=_uris(getattr(task, "inlets", None) or ()),
        outlets=_outlets(instance, task) if state == SUCCESS else (),
        files=taken_files(getattr(instance, "id", None)) if has_ended else (),
        log_url=getattr(instance, "log_url", None),
        host=getattr(instance, "hostname", None) or None,
        logical_date=run.logical_date,
        run_type=str(getattr(run.run_type, "value", run.run_type)),
    )


def dag_run_facts(run: Any, state: str) -> RunFacts:  # noqa: ANN401
    """Return what Airflow says of a run of a DAG."""
    return RunFacts(
        deployment=run_deployment(),
        dag_id=run.dag_id,
        run_id=run.run_id,
        run_after=run.run_after,
        state=state,
        start=run.start_date,
        end=run.end_date,
        logical_date=run.logical_date,
        run_type=str(getattr(run.run_type, "value", run.run_type)),
    )


def _run_of(instance: Any) -> Any:  # noqa: ANN401
    """Return the run of a try: in the process of a task it is in its context, elsewhere a row beside it."""
    run = getattr(instance, "dag_run", None)
    return run if run is not None else instance.get_template_context()["dag_run"]


def _is_in_task(instance: Any) -> bool:  # noqa: ANN401
    """Whether this is the process of the task, which ends with the try."""
    return hasattr(instance, "_ti_context_from_server")


def _outlets(instance: Any, task: Any) -> tuple[str, ...]:  # noqa: ANN401
    """Return what a try wrote: the assets that it names, and those that it added to its aliases."""
    named = _uris(getattr(task, "outlets", None) or ())
    # A row of the database has no context without questions to it, and a mark by hand writes nothing.
    if not _is_in_task(instance):
        return named
    added = [
        event.dest_asset_key.uri
        for accessor in list(instance.get_template_context()["outlet_events"].values())
        for event in accessor.asset_alias_events
    ]
    return tuple(dict.fromkeys((*named, *added)))


def _uris(items: Any) -> tuple[str, ...]:  # noqa: ANN401
    # Aliases and references have no URI before the run.
    uris = (getattr(item, "uri", None) for item in items)
    return tuple(dict.fromkeys(uri for uri in uris if isinstance(uri, str)))


class _Losses:
    """What this process could not keep, and the append that did not come back."""

    def __init__(self) -> None:
        self.events = 0
        self.stuck: threading.Thread | None = None

    def count(self, folder: Path, reason: object) -> None:
        """Say and count that an event was lost."""
        self.events += 1
        _LOGGER.warning(
            "custody: an event of this run could not be kept in %s (%d lost in this process; the reconciliation finds "
            "them): %s",
            folder,
            self.events,
            reason,
        )
        # Imported when it is needed, which is never.
        from airflow.sdk.observability import stats

        stats.incr(LOST_METRIC)


_losses = _Losses()


def _keep(events: Callable[[], list[dict[str, object]]], *, is_last: bool = False) -> None:
    folder = run_spool()
    if folder is None:
        return
    begun = time.perf_counter()
    # Whatever it is: provenance must never cost a run.
    try:
        try:
            told = events()
            if told:
                _append(folder, told, is_last=is_last)
            _LOGGER.debug("custody: %d events kept in %.1f ms", len(told), (time.perf_counter() - begun) * 1000)
        except Exception as error:  # noqa: BLE001
            _losses.count(folder, error)
    except Exception:
        _LOGGER.debug("custody: a lost event could not be counted", exc_info=True)


def _append(folder: Path, events: list[dict[str, object]], *, is_last: bool) -> None:
    """Append in a thread: a disk that does not answer holds that thread, and neither a task nor the scheduler.

    With the last event of a process its files are closed: Airflow waits for up to five seconds for a process that
    closed its sockets and has not quite ended.
    """
    if _losses.stuck is not None and _losses.stuck.is_alive():
        raise TimeoutError("an append before it has not come back yet")
    errors: list[Exception] = []

    def append() -> None:
        try:
            spool = _spool(folder, os.getpid())
            try:
                spool.append(events)
            finally:
                if is_last:
                    spool.close()
                    _spool.cache_clear()
        except Exception as error:  # noqa: BLE001 - it is told by the thread that waits
            errors.append(error)

    worker = threading.Thread(target=append, name="custody-run-events", daemon=True)
    worker.start()
    worker.join(SECONDS_MAX)
    if worker.is_alive():
        _losses.stuck = worker
        raise TimeoutError(f"the disk did not answer within {SECONDS_MAX:g} seconds")
    if errors:
        raise errors[0]


@lru_cache(maxsize=1)
def _spool(folder: Path, _pid: int) -> Spool:
    # By process: a child that was forked must not write to the segment of its parent.
    return Spool(folder, "airflow", bytes_max=_BYTES_MAX, segments_max=_SEGMENTS_MAX)
