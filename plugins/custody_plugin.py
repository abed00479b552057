"""custody in Airflow's API server: the NGSI receiver, where the deployment names a path for it."""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from custody_airflow.environment import ngsi_mount, repository_folder


def _applications() -> list[dict[str, Any]]:
    """Return what the API server mounts: nothing is imported where nothing is mounted."""
    prefix = ngsi_mount()
    if prefix is None:
        return []
    from custody_airflow.receiving import mounted

    return [{"name": "custody NGSI receiver", "url_prefix": prefix, "app": mounted(repository_folder())}]


class CustodyPlugin(AirflowPlugin):
    """Mounted at `CUSTODY_NGSI_MOUNT`; `docs/receiver.md` says how it is used."""

    name = "custody"
    fastapi_apps = _applications()
