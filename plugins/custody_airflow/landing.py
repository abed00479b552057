"""The sensor of `provenance_ingest`: waits for files of events that landed in an interval, until they are complete.

The library is imported only when a task runs: a DAG file, which is parsed every few seconds, has no use for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, Context
from airflow.sdk.exceptions import AirflowSkipException
from airflow.triggers.base import BaseTrigger, TriggerEvent

from custody_airflow.environment import repository_folder
from custody_airflow.failures import permanent_failures
from custody_airflow.triggers import SharedLooks

if TYPE_CHECKING:
    from custody.landing import Interval

_LOOKS: SharedLooks[dict[str, Any]] = SharedLooks()
START = "{{ params.start or (data_interval_start if data_interval_start is defined and data_interval_start else '') }}"
END = "{{ params.end or (data_interval_end if data_interval_end is defined and data_interval_end else '') }}"
"""The interval of a run: of its form, else of its schedule; a run by hand has neither."""


class LandingSensor(BaseSensorOperator):
    """Succeeds when files of an interval wait to be ingested, skips the run when there are none.

    A scheduled run begins where the last successful one ended: intervals that were missed while the DAG was paused, or
    Airflow was down, are made up. Where all files are still being written to, it waits as long as `timeout` allows;
    then the task fails, and the next run begins here again.

    :param start: start of the interval (templated).
    :param end: its end (templated).
    :param wait_seconds: how long to wait for files when there are none (templated); 0 looks once. Waiting is
        deferred to the triggerer and holds no worker.
    """

    template_fields = ("start", "end", "wait_seconds")

    def __init__(self, *, start: str = START, end: str = END, wait_seconds: str | int = 0, **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's signature
        super().__init__(**kwargs)
        self.start = start
        self.end = end
        self.wait_seconds = wait_seconds

    @permanent_failures()
    def execute(self, context: Context) -> dict[str, Any]:
        """Look once, then wait in the triggerer if need be; return the interval and what waits in it."""
        interval = interval_of(self.start, self.end, context["dag_run"].run_after)
        interval = with_missed(interval, context, is_named=bool(context["params"].get("start")))
        folder = repository_folder()
        files = look(folder, interval)
        seconds = int(self.wait_seconds)
        # What is still being written to holds nothing else back: the next run takes it.
        if not files["files"] and (files["writing"] or seconds > 0):
            self.log.info("%s: %s", interval, files)
            self.defer(
                trigger=LandingTrigger(
                    str(folder), files["start"], files["end"], time.time() + seconds, self.poke_interval
                ),
                method_name="resume",
                timeout=timedelta(seconds=self.timeout),
            )
        return self.resume(context, files)

    def resume(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Return the files that this sensor or its trigger found."""
        if not event["files"]:
            raise AirflowSkipException(f"no files from {event['start']} to {event['end']}: nothing to ingest")
        self.log.info("waiting: %s", event)
        return event


class LandingTrigger(BaseTrigger):
    """Fires once the files of an interval are whole, or when none came in time; holds paths and numbers only."""

    def __init__(self, repository: str, start: str, end: str, until: float, poke_seconds: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow types its triggers in parts
        self.repository = repository
        self.start = start
        self.end = end
        self.until = until
        self.poke_seconds = poke_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments that Airflow's database keeps of this trigger."""
        arguments = ("repository", "start", "end", "until", "poke_seconds")
        name = f"{type(self).__module__}.{type(self).__qualname__}"
        return name, {key: getattr(self, key) for key in arguments}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look again and again; the event is the last result."""
        from custody.landing import Interval

        interval = Interval.parse(self.start, self.end)
        about = (self.repository, self.start, self.end)
        while True:
            files = await _LOOKS.ask(about, lambda: look(Path(self.repository), interval), self.poke_seconds / 2)
            if files["files"] or (not files["writing"] and time.time() >= self.until):
                yield TriggerEvent(files)
                return
            await asyncio.sleep(self.poke_seconds)


def interval_of(start: str, end: str, run_after: datetime) -> Interval:
    """Return the interval of a run; a run that names none gets the hour before it and its own.

    Raises:
        InvalidInputError: start or end is no instant.
    """
    from custody.landing import Interval, parse_instant

    first = parse_instant(start) if start else run_after.replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
    last = parse_instant(end) if end else max(first, run_after)
    return Interval.parse(first.isoformat(), last.isoformat())


def with_missed(interval: Interval, context: Context, *, is_named: bool) -> Interval:
    """Return the interval of a scheduled run from the end of the last successful one on; of other runs as it is."""
    from custody.landing import Interval

    if is_named or context["dag_run"].run_type != "scheduled":
        return interval
    ended = context.get("prev_data_interval_end_success")
    return interval if ended is None else Interval(min(interval.start, ended.astimezone(UTC)), interval.end)


def look(repository: Path, interval: Interval) -> dict[str, Any]:
    """Return how many files wait and how many are being written to, with the interval; sizes in bytes."""
    from custody.clock import SystemClock
    from custody.config import load_settings
    from custody.landing import landed_files
    from custody.vfs import PosixFileSystem

    files = landed_files(PosixFileSystem(), load_settings(repository), interval, SystemClock().now_ms())
    waiting = [file for file in files if file.waits]
    return {
        "start": interval.start.isoformat(),
        "end": interval.end.isoformat(),
        "files": len(waiting),
        "bytes": sum(file.bytes for file in waiting),
        "writing": sum(not file.is_quiet for file in files),
    }
