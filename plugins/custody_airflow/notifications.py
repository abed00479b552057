"""The sensor and the watch of `ngsi_to_hdfs`: notifications that the sink has not written, and batches that are due.

The library is imported only when a task runs: a DAG file, which is parsed every few seconds, has no use for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from airflow.sdk.exceptions import AirflowSkipException
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from custody_airflow.environment import ngsi_watch
from custody_airflow.sensors import WorkSensor
from custody_airflow.triggers import WorkTrigger

_LOG = logging.getLogger(__name__)


class BatchWatch(BaseEventTrigger):
    """Fires when a batch of the sink is due; holds only a path and two numbers.

    The library says when that is: the watch sleeps until then, or until something fills the batch. While a run or a
    follower has the sink it keeps quiet. Nothing has to be remembered: a batch that is still due after a restart of the
    triggerer is reported again, and a run that finds nothing is skipped.

    :param repository: its folder.
    :param poke_seconds: how often it looks for new notifications.
    :param again_seconds: a batch that still waits after this time is reported again.
    """

    def __init__(self, repository: str, poke_seconds: float, again_seconds: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow types its triggers in parts
        self.repository = repository
        self.poke_seconds = poke_seconds
        self.again_seconds = again_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments that Airflow's database keeps of this trigger."""
        name = f"{type(self).__module__}.{type(self).__qualname__}"
        arguments = ("repository", "poke_seconds", "again_seconds")
        return name, {key: getattr(self, key) for key in arguments}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look again and again; fire once for each batch that is due."""
        reported_ms, reported_at = -1, 0.0
        while True:
            # Reading journals blocks; in the event loop it would hold up all other triggers.
            due_ms = await asyncio.to_thread(self._look)
            now = time.time()
            wait = self.poke_seconds
            if due_ms is not None and due_ms > now * 1000:
                wait = min(wait, due_ms / 1000 - now)
            elif due_ms is not None and (due_ms != reported_ms or now - reported_at >= self.again_seconds):
                reported_ms, reported_at = due_ms, now
                yield TriggerEvent({"repository": self.repository, "due_ms": due_ms})
            await asyncio.sleep(wait)

    def _look(self) -> int | None:
        """Return when the next batch is due, None where none waits or somebody has the sink."""
        from custody.errors import CustodyError
        from custody.ngsi_sink.opening import next_batch_due_ms, sink_holder
        from custody.repository import Repository

        try:
            opened = Repository.open(Path(self.repository))
            if opened.settings.ngsi.hdfs_username is None or sink_holder(opened) is not None:
                return None
            return next_batch_due_ms(opened)
        except CustodyError:
            # A disk that is gone may come back; Airflow would restart a failed trigger every second.
            _LOG.exception("%s: cannot look for notifications; looking again", self.repository)
            return None


class NotificationTrigger(WorkTrigger):
    """Fires once notifications wait in a repository."""

    nothing = "no notifications wait and nothing was submitted again: nothing to write"

    @staticmethod
    def look(repository: Path) -> dict[str, Any] | None:
        """Return what waits for the sink: counts, and whether there is a sink."""
        from custody.ngsi_sink.opening import FOLLOWER, sink_backlog, sink_holder
        from custody.ngsi_sink.tables import PendingTables
        from custody.repository import Repository
        from custody.spark.hive import hive_folder
        from custody.vfs import PosixFileSystem

        opened = Repository.open(repository)
        # As the task behind it will: where batches are watched, journals count.
        backlog = sink_backlog(opened, with_journals=ngsi_watch() is not None)
        # Tables of batches that are written: Hive was away then.
        tables = PendingTables(PosixFileSystem(), hive_folder(opened.settings))
        pending = len(tables.all()) if opened.settings.ngsi.hive else 0
        if not (backlog.is_any or pending):
            return None
        holder = sink_holder(opened)
        is_followed = holder is not None and holder.task.startswith(f"{FOLLOWER}/")
        return {
            "notifications": backlog.notifications,
            "again": backlog.resubmitted,
            "unfinished": backlog.unfinished,
            **({"tables": pending} if pending else {}),
            "is_configured": opened.settings.ngsi.hdfs_username is not None,
            **({"is_followed": True} if is_followed else {}),
        }


class NotificationSensor(WorkSensor):
    """Succeeds when live notifications or tables wait for the sink, or work was broken off; skips the run otherwise."""

    trigger_class = NotificationTrigger

    def result(self, event: dict[str, Any]) -> dict[str, Any]:
        """Return what waits; the run is skipped where the settings configure no sink."""
        if not event["is_configured"]:
            raise AirflowSkipException("ngsi.hdfs_username is not set: the repository has no sink. See docs/ngsi.md.")
        if event.get("is_followed"):
            raise AirflowSkipException("a follower has the sink (custody ngsi persist --follow): it does the work.")
        return super().result(event)
