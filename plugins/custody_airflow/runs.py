"""Operators that bring events of Airflow's own runs into the repository: those of the spool, and those that were lost.

They run in the task's own process: what they do takes a second, and Spark's start takes several.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook, BaseOperator, Context
from airflow.sdk.exceptions import AirflowNotFoundException, AirflowSkipException

from custody_airflow.environment import RUN_SPOOL_VARIABLE, repository_folder, run_deployment, run_spool
from custody_airflow.failures import permanent_failures
from custody_airflow.sensors import as_dict

if TYPE_CHECKING:
    from custody.airflow_runs import AirflowApi

API_CONNECTION = "custody_airflow_api"
_SLOT_SECONDS = 60.0
"""How long a task waits for a free writer slot."""


class DeliverRunsOperator(BaseOperator):
    """Delivers the spool of the listener into the repository, each event once; returns the counts."""

    @permanent_failures()
    def execute(self, context: Context) -> dict[str, Any]:
        """Deliver what waits; another process that delivers just now does the same."""
        # Not when the module is imported: the library loads Arrow, which the parser of DAG files has no use for.
        from custody.client import SpoolDelivery
        from custody.client.spool import IDENTITY
        from custody.errors import LockedError
        from custody.repository import Repository
        from custody.repository.spool_sender import sender_into

        spool = _spool()
        if not (spool / IDENTITY).exists():
            raise AirflowSkipException(f"{spool}: no event of a run was kept yet")
        with sender_into(Repository.open(repository_folder()), spool, wait_seconds=_SLOT_SECONDS) as sender:
            try:
                summary = SpoolDelivery(spool, sender).deliver()
            except LockedError as error:
                raise AirflowSkipException(f"another process delivers: {error}") from error
        self.log.info("delivered: %s", summary)
        return as_dict(summary)


class ReconcileRunsOperator(BaseOperator):
    """Adds events of runs that the listener lost, from Airflow's REST API; returns the counts.

    :param since: an instant to look from, instead of from where the last pass ended (templated).
    :param settle_seconds: the newest changes wait so long for the next pass (templated).

    Address, user and password are those of the connection `custody_airflow_api`; without it the task is skipped.
    """

    template_fields = ("since", "settle_seconds")

    def __init__(self, *, since: str = "", settle_seconds: str | int = 60, **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's signature
        super().__init__(**kwargs)
        self.since = since
        self.settle_seconds = settle_seconds

    @permanent_failures()
    def execute(self, context: Context) -> dict[str, Any]:
        """Do one pass."""
        from custody.airflow_runs import Reconciliation
        from custody.landing import parse_instant
        from custody.repository import Repository
        from custody.repository.spool_sender import sender_into
        from custody.workspace import report_place

        spool, api = _spool(), _api()
        since_ms = int(parse_instant(self.since).timestamp() * 1000) if self.since else None
        repository = Repository.open(repository_folder())
        with sender_into(repository, spool, wait_seconds=_SLOT_SECONDS) as sender:
            report = Reconciliation(
                api,
                sender,
                spool,
                deployment=run_deployment(),
                reports=report_place(repository.settings),
                settle_ms=int(self.settle_seconds) * 1000,
            ).run(since_ms)
        api.close()
        self.log.info("%d events of runs had been lost: %s", report.stored, report)
        return as_dict(report)


def _spool() -> Path:
    spool = run_spool()
    if spool is None:
        raise AirflowSkipException(f"{RUN_SPOOL_VARIABLE}: names no spool, so no events of runs are kept")
    return spool


def _api() -> AirflowApi:
    from custody.airflow_runs import AirflowApi, Credentials

    try:
        connection = BaseHook.get_connection(API_CONNECTION)
    except AirflowNotFoundException as error:
        raise AirflowSkipException(
            f"connection {API_CONNECTION!r}: not defined, so nothing is reconciled. Define one of type http with the "
            "address of this Airflow, and a user who may read runs, tasks and assets."
        ) from error
    host, port = connection.host or "", f":{connection.port}" if connection.port else ""
    url = f"{host}{port}" if "://" in host else f"{connection.schema or 'http'}://{host}{port}"
    return AirflowApi(url, Credentials(user=connection.login or "", password=connection.password or ""))
