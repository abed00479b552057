"""custody in Airflow: its doors, its pages and the NGSI receiver in the API server, and the listener of runs."""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from custody_airflow.environment import ngsi_mount, repository_folder, run_spool, serve_mount


def _applications() -> list[dict[str, Any]]:
    """Return what the API server mounts: nothing is imported where nothing is mounted."""
    receiver, doors = ngsi_mount(), serve_mount()
    if receiver is None and doors is None:
        return []
    from custody_airflow.receiving import mounted, mounted_doors

    # The longer path first: the API server asks its applications in this order.
    applications = []
    if receiver is not None:
        app = mounted(repository_folder())
        applications.append({"name": "custody NGSI receiver", "url_prefix": receiver, "app": app})
    if doors is not None:
        applications.append({"name": "custody", "url_prefix": doors, "app": mounted_doors(repository_folder())})
    return sorted(applications, key=lambda application: -len(application["url_prefix"]))


def _listeners() -> list[Any]:
    """Return the listener of runs, where the deployment names a spool for their events."""
    if run_spool() is None:
        return []
    from custody_airflow import run_listener

    return [run_listener]


def _pages() -> list[dict[str, Any]]:
    """Return the entries of Airflow's page that show custody's own; paths are relative to Airflow's."""
    doors = serve_mount()
    if doors is None:
        return []
    folder = f"{doors.removeprefix('/')}/ui"
    run = f"{folder}/run.html?dag_id={{DAG_ID}}&run_id={{RUN_ID}}"
    task = f"{run}&task_id={{TASK_ID}}&map_index={{MAP_INDEX}}"
    framed = {"name": "Provenance", "href": f"{folder}/search.html", "url_route": "provenance"}
    # In a frame no link leads outward and no tab opens: the same page once more, alone.
    alone = {"name": "Provenance, full page", "href": f"{folder}/search.html"}
    of_run = {"name": "Provenance", "href": run, "url_route": "provenance-run", "destination": "dag_run"}
    of_task = {"name": "Provenance", "href": task, "url_route": "provenance-task", "destination": "task_instance"}
    in_menu = {"destination": "nav", "category": "browse"}
    return [{**framed, **in_menu}, {**alone, **in_menu}, of_run, of_task]


class CustodyPlugin(AirflowPlugin):
    """Mounted at `CUSTODY_SERVE_MOUNT` and `CUSTODY_NGSI_MOUNT`; docs/serve.md and docs/receiver.md say how."""

    name = "custody"
    fastapi_apps = _applications()
    external_views = _pages()
    listeners = _listeners()
