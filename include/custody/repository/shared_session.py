"""`custody.session`: one session over the queues of a repository, from any code that has only its folder.

The sessions of a process share its open queues and one writer slot: the first session opens them, the last one that
ends closes them. Airflow's name for the task that runs is read from its environment, so nothing here knows Airflow.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from custody.errors import ConfigurationError
from custody.flow import Component
from custody.flowfile_repository import QueueSession
from custody.repository.flow import Flow
from custody.repository.repository import Repository

_DAG, _TASK, _RUN = "AIRFLOW_CTX_DAG_ID", "AIRFLOW_CTX_TASK_ID", "AIRFLOW_CTX_DAG_RUN_ID"
_REPOSITORY = "CUSTODY_REPOSITORY"


@contextmanager
def session(
    repository: str | Path | Repository | None = None,
    component: Component | str | None = None,
    *,
    wait_seconds: float | None = None,
) -> Iterator[QueueSession]:
    """Do a piece of work with FlowFiles of queues: it is committed at the end of the block, or undone when it raises.

    Args:
        repository: its folder; without one, that of the environment variable `CUSTODY_REPOSITORY`.
        component: who works; a text is its id and its type. Within a task of Airflow it is `DAG.TASK` by default, in
            the process group of the run.
        wait_seconds: how long to wait for a writer slot, where the process holds none yet.

    Raises:
        ConfigurationError: repository or component are neither given nor in the environment.
        NotFoundError: there is no repository.
        LockedError: live processes hold all writer slots.
        BackpressureError, InvalidInputError, StorageError: the commit was refused; see `QueueSession.commit`.
    """
    chosen = _component(component)
    opened = repository if isinstance(repository, Repository) else Repository.open(_folder(repository))
    with _shared_flow(opened, wait_seconds) as flow, flow.session(chosen) as work:
        yield work


def airflow_component(environment: Mapping[str, str]) -> Component | None:
    """Return the task of Airflow that an environment names, None outside of tasks."""
    dag_id, task_id = environment.get(_DAG), environment.get(_TASK)
    if not dag_id or not task_id:
        return None
    return Component(
        id=f"{dag_id}.{task_id}",
        type="AirflowTask",
        name=task_id,
        process_group_id=environment.get(_RUN) or None,
        process_group_name=dag_id,
    )


class _SharedFlow:
    """The queues of one repository, open in this process as long as somebody uses them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.flow: Flow | None = None
        self.closing = ExitStack()


_guard = threading.Lock()
_shared: dict[tuple[int, str], _SharedFlow] = {}
"""By process and folder: a forked process must not use what its parent has open."""


@contextmanager
def _shared_flow(repository: Repository, wait_seconds: float | None) -> Iterator[Flow]:
    with _guard:
        shared = _shared.setdefault((os.getpid(), str(repository.settings.root)), _SharedFlow())
    with shared.lock:
        if shared.flow is None:
            shared.flow = shared.closing.enter_context(repository.flowfiles(wait_seconds=wait_seconds))
        flow = shared.flow
        shared.users += 1
    try:
        yield flow
    finally:
        with shared.lock:
            shared.users -= 1
            if not shared.users:
                shared.flow = None
                shared.closing.close()


def _component(given: Component | str | None) -> Component:
    if isinstance(given, str):
        return Component(id=given, type=given)
    component = given or airflow_component(os.environ)
    if component is None:
        raise ConfigurationError(
            f"component: expected one, or a task of Airflow that {_DAG} and {_TASK} name, got neither. "
            "Give a Component, or a text."
        )
    return component


def _folder(given: str | Path | None) -> Path:
    folder = given or os.environ.get(_REPOSITORY)
    if not folder:
        raise ConfigurationError(f"repository: expected a folder, or one in {_REPOSITORY}, got neither.")
    return Path(folder)
