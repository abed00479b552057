"""The sensor of `ngsi_to_hdfs`: waits for notifications that the sink has not written.

The library is imported only when a task runs: a DAG file, which is parsed every few seconds, has no use for it.
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
        from custody.ngsi_sink.opening import sink_backlog
        from custody.ngsi_sink.tables import PendingTables
        from custody.repository import Repository
        from custody.spark.hive import hive_folder
        from custody.vfs import PosixFileSystem

        opened = Repository.open(repository)
        backlog = sink_backlog(opened)
        # Tables of batches that are written: Hive was away then.
        tables = PendingTables(PosixFileSystem(), hive_folder(opened.settings))
        pending = len(tables.all()) if opened.settings.ngsi.hive else 0
        if not (backlog.is_any or pending):
            return None
        return {
            "notifications": backlog.notifications,
            "again": backlog.resubmitted,
            "unfinished": backlog.unfinished,
            **({"tables": pending} if pending else {}),
            "is_configured": opened.settings.ngsi.hdfs_username is not None,
        }


class NotificationSensor(WorkSensor):
    """Succeeds when live notifications or tables wait for the sink, or work was broken off; skips the run otherwise."""

    trigger_class = NotificationTrigger
    nothing = "no notifications wait and nothing was submitted again: nothing to write"

    def resume(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Return what waits; the run is skipped where the settings configure no sink."""
        if not event["is_configured"]:
            raise AirflowSkipException("ngsi.hdfs_username is not set: the repository has no sink. See docs/ngsi.md.")
        return super().resume(context, event)
