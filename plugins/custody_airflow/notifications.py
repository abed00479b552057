"""The sensor of `ngsi_to_hdfs`: do notifications wait for the sink?

The library is imported when a task runs: a DAG file that is parsed every few seconds has no use for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException

from custody_airflow.sensors import WorkSensor
from custody_airflow.triggers import WorkTrigger


class NotificationTrigger(WorkTrigger):
    """Fires once notifications wait in a repository."""

    @staticmethod
    def look(repository: Path) -> dict[str, Any] | None:
        """Return what waits for the sink: counts, and whether there is a sink."""
        from custody.ngsi_sink.persist import sink_backlog
        from custody.repository import Repository

        opened = Repository.open(repository)
        found = sink_backlog(opened)
        if not found.is_any:
            return None
        return {
            "notifications": found.notifications,
            "again": found.resubmitted,
            "unfinished": found.unfinished,
            "is_configured": opened.settings.ngsi.hdfs_username is not None,
        }


class NotificationSensor(WorkSensor):
    """Succeeds when live notifications wait for the sink, or work of it was broken off; skips the run otherwise."""

    trigger_class = NotificationTrigger
    nothing = "no notifications wait and nothing was submitted again: nothing to write"

    def resume(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Return what waits; without a sink there is nobody to write it."""
        if not event["is_configured"]:
            raise AirflowSkipException("ngsi.hdfs_username is not set: the repository has no sink. See docs/ngsi.md.")
        return super().resume(context, event)
