"""Room `airflow_runs`: runs of Airflow's DAGs and tasks as events, and what was lost of them, from Airflow's REST API.

It knows Airflow by what it says over HTTP, and imports nothing of it. The listener in the plugin makes the same events
from what it hears in a task's process; `run_events` loads next to nothing for it.
"""

from typing import TYPE_CHECKING

from custody.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from custody.airflow_runs.airflow_api import AirflowApi, Credentials
    from custody.airflow_runs.reconciliation import Reconciliation, ReconciliationReport, read_cursor
    from custody.airflow_runs.run_events import RunFacts, asset_uuid, end_events, start_events

__all__ = [
    "AirflowApi",
    "Credentials",
    "Reconciliation",
    "ReconciliationReport",
    "RunFacts",
    "asset_uuid",
    "end_events",
    "read_cursor",
    "start_events",
]


if not TYPE_CHECKING:  # a checker would take every name for one that is here
    _MODULES = {
        "custody.airflow_runs.airflow_api": ["AirflowApi", "Credentials"],
        "custody.airflow_runs.reconciliation": ["Reconciliation", "ReconciliationReport", "read_cursor"],
        "custody.airflow_runs.run_events": ["RunFacts", "asset_uuid", "end_events", "start_events"],
    }
    __getattr__ = lazy_exports(__name__, _MODULES)
