"""Reconciliation: events of runs that the listener lost, from what Airflow itself knows of its runs.

A listener is not called for a task whose process was killed, for a try that begins and ends in the triggerer, and while
its spool is full. Airflow's database knows them all. A pass asks for what changed since the last one, window by window,
makes the events that the listener would have made, and sends all of them: those that are stored count as repeated. The
cursor follows a window when all of it was taken, so a pass that was killed does its last window again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

import msgspec

from custody.airflow_runs.airflow_api import AirflowApi, RunEntry, TryEntry
from custody.airflow_runs.run_events import FAILED, RUNNING, SKIPPED, SUCCESS, RunFacts, end_events, start_events
from custody.client.spool_delivery import BATCH_BYTES, Receipt, Sender
from custody.clock import Clock, SystemClock
from custody.errors import ConfigurationError, InvalidInputError
from custody.format.framing import DocumentFormat
from custody.vfs import FileSystem, PosixFileSystem
from custody.workspace import ReportPlace, reports_of_run

CURSOR = "reconciled"
LOCK = "reconciliation.lock"
WINDOW_MS = 3_600_000
"""What changed in so much time is asked for at once."""
SETTLE_MS = 60_000
"""The newest changes wait: a transaction of Airflow's may commit what it dated before."""
OVERLAP_MS = 300_000
"""So much of the last pass is looked at again: clocks of Airflow's machines differ."""
FIRST_MS = 24 * 3_600_000
"""How far a first pass looks back."""
_RUNS_REMEMBERED = 256

_STATES: Mapping[str, str] = {
    "success": SUCCESS,
    "failed": FAILED,
    "up_for_retry": FAILED,
    "skipped": SKIPPED,
    "running": RUNNING,
    "deferred": RUNNING,
    "up_for_reschedule": RUNNING,
    "restarting": RUNNING,
}
"""What a state of Airflow's says of a try; other states say that it has not begun."""


class RunCursor(msgspec.Struct, frozen=True, kw_only=True):
    """How far a deployment was reconciled."""

    deployment: str
    until_ms: int


CURSOR_FORMAT = DocumentFormat(
    b"CUSTARC\x01",
    1,
    msgspec.json.Decoder(RunCursor),
    "cursor of a reconciliation",
    "how far runs were reconciled",
    "Remove the file and name the beginning with --since; what is delivered again counts as repeated.",
)


class ReconciliationReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a pass came to."""

    windows: int = 0
    runs: int = 0
    tries: int = 0
    stored: int = 0
    """Events that had been lost."""
    repeated: int = 0
    rejected: int = 0
    """Events in the quarantine."""
    until_ms: int = 0
    """Up to here changes were looked at."""


class Reconciliation:
    """Brings the events of one Airflow up to what it knows of its runs.

    Args:
        api: of the Airflow.
        sender: takes the events.
        folder: keeps the cursor; that of the spool.
        deployment: the name of this Airflow in events.
        reports: where the reports of a repository lie whose steps this Airflow runs: which files they wrote. None
            where it is not here.
        settle_ms: the newest changes wait so long for the next pass.
        clock: says what time it is where Airflow does not.
        fs: where the folders lie.
        progress: called with the events sent so far.
    """

    def __init__(
        self,
        api: AirflowApi,
        sender: Sender,
        folder: Path,
        *,
        deployment: str,
        reports: ReportPlace | Path | None = None,
        settle_ms: int = SETTLE_MS,
        clock: Clock | None = None,
        fs: FileSystem | None = None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._api = api
        self._sender = sender
        self._folder = Path(folder)
        self._deployment = deployment
        self._settle_ms = settle_ms
        self._clock = clock or SystemClock()
        self._fs: FileSystem = fs or PosixFileSystem()
        self._reports = ReportPlace(self._fs, reports) if isinstance(reports, Path) else reports
        self._progress = progress
        self._report = ReconciliationReport()
        self._inlets: dict[tuple[str, str], list[str]] | None = None
        self._files_of_run = lru_cache(maxsize=_RUNS_REMEMBERED)(self._read_files_of_run)

    def run(self, since_ms: int | None = None) -> ReconciliationReport:
        """Do one pass, from the last one's end on, or from another moment.

        Raises:
            LockedError: another process reconciles.
            ConfigurationError: the cursor is one of another deployment; or as `AirflowApi`.
            CorruptionError, FormatVersionError: the cursor cannot be read; or as `AirflowApi`.
            CustodyError: Airflow does not answer, or the events were not taken; all windows before stay done.
        """
        self._fs.make_directory(self._folder)
        with self._fs.lock(self._folder / LOCK):
            end = (self._api.now_ms() or self._clock.now_ms()) - self._settle_ms
            begin = self._begin(end) if since_ms is None else since_ms
            self._report = ReconciliationReport(until_ms=begin)
            self._inlets = None
            self._files_of_run.cache_clear()
            while begin < end:
                upto = min(begin + WINDOW_MS, end)
                self._send(self._events(_moment(begin), _moment(upto)))
                self._move(upto)
                begin = upto
        return self._report

    def _begin(self, end: int) -> int:
        cursor = read_cursor(self._folder, self._fs)
        if cursor is None:
            return end - FIRST_MS
        if cursor.deployment != self._deployment:
            raise ConfigurationError(
                f"{self._folder / CURSOR}: expected the cursor of the deployment {self._deployment!r}, found that of "
                f"{cursor.deployment!r}. Give each Airflow a spool of its own, or name the beginning with --since."
            )
        return cursor.until_ms - OVERLAP_MS

    def _move(self, upto: int) -> None:
        cursor = RunCursor(deployment=self._deployment, until_ms=upto)
        self._fs.write_durably(self._folder / CURSOR, CURSOR_FORMAT.encode(cursor))
        self._report = msgspec.structs.replace(self._report, windows=self._report.windows + 1, until_ms=upto)

    def _send(self, events: Iterator[dict[str, object]]) -> None:
        batch = bytearray()
        for event in events:
            batch += msgspec.json.encode(event) + b"\n"
            if len(batch) >= BATCH_BYTES:
                self._hand_over(bytes(batch))
                batch.clear()
        if batch:
            self._hand_over(bytes(batch))

    def _hand_over(self, lines: bytes) -> None:
        try:
            receipt = self._sender.send(lines)
        except InvalidInputError:
            # One of them is at fault, or they are too many for that server: the others go on.
            pieces = lines.splitlines(keepends=True)
            if len(pieces) == 1:
                raise
            half = len(pieces) // 2
            self._hand_over(b"".join(pieces[:half]))
            self._hand_over(b"".join(pieces[half:]))
            return
        self._count(receipt)

    def _count(self, receipt: Receipt) -> None:
        before = self._report
        self._report = msgspec.structs.replace(
            before,
            stored=before.stored + receipt.stored,
            repeated=before.repeated + receipt.repeated,
            rejected=before.rejected + receipt.rejected,
        )
        self._progress(self._report.stored + self._report.repeated + self._report.rejected)

    def _events(self, begin: datetime, end: datetime) -> Iterator[dict[str, object]]:
        """Yield the events of everything that changed in a window."""
        for runs in self._api.runs(begin, end):
            self._report = msgspec.structs.replace(self._report, runs=self._report.runs + len(runs))
            for run in runs:
                yield from _events_of(self._facts_of_run(run))
        written: dict[tuple[str, str, str, int], list[str]] | None = None
        for page in self._api.tries(begin, end):
            for newest in page:
                tries = list(self._tries(newest))
                self._report = msgspec.structs.replace(self._report, tries=self._report.tries + len(tries))
                if written is None and any(facts.state == SUCCESS for facts in tries):
                    written = self._written(begin, end)
                for facts in tries:
                    yield from _events_of(self._complete(facts, written or {}))

    def _facts_of_run(self, run: RunEntry) -> RunFacts:
        return RunFacts(
            deployment=self._deployment,
            dag_id=run.dag_id,
            run_id=run.dag_run_id,
            run_after=run.run_after,
            state=_STATES.get(run.state, ""),
            start=run.start_date,
            end=run.end_date,
            logical_date=run.logical_date,
            run_type=run.run_type,
        )

    def _tries(self, newest: TryEntry) -> Iterator[RunFacts]:
        """Yield the tries of a task that have begun: of its newest one, and of those before."""
        # A task that waits for its next try has the number of the last one, and its times in the history only.
        is_alone = newest.try_number <= 1 and newest.state != "up_for_retry"
        for entry in [newest] if is_alone else self._api.tries_of(newest):
            state = _STATES.get(entry.state or "")
            # What the scheduler decided without a try, such as a skip, has the number 0.
            if state is None or entry.try_number < 1 or newest.run_after is None:
                continue
            yield RunFacts(
                deployment=self._deployment,
                dag_id=entry.dag_id,
                run_id=entry.dag_run_id,
                run_after=newest.run_after,
                state=state,
                start=entry.start_date,
                end=entry.end_date,
                task_id=entry.task_id,
                map_index=entry.map_index,
                try_number=entry.try_number,
                operator=entry.operator,
                log_url=self._api.log_url(entry),
                host=entry.hostname or None,
                logical_date=newest.logical_date,
            )

    def _complete(self, facts: RunFacts, written: Mapping[tuple[str, str, str, int], Sequence[str]]) -> RunFacts:
        """Return what a successful try read and wrote besides."""
        if facts.state != SUCCESS or facts.task_id is None:
            return facts
        attempt = f"{facts.dag_id}/{facts.run_id}/{facts.task_id}/{facts.try_number}"
        return replace(
            facts,
            inlets=self._inlets_of(facts.dag_id, facts.task_id),
            outlets=written.get((facts.dag_id, facts.run_id, facts.task_id, facts.map_index), ()),
            files=self._files_of_run(facts.run_id).get(attempt, ()),
        )

    def _inlets_of(self, dag_id: str, task_id: str) -> Sequence[str]:
        if self._inlets is None:
            self._inlets = {}
            for asset in self._api.assets():
                for task in asset.consuming_tasks:
                    self._inlets.setdefault((task.dag_id, task.task_id), []).append(asset.uri)
        return self._inlets.get((dag_id, task_id), ())

    def _written(self, begin: datetime, end: datetime) -> dict[tuple[str, str, str, int], list[str]]:
        """Return the assets that tries wrote which changed last in a window.

        A try may have ended in the window before, and have been changed since, by a note or a mark.
        """
        before = _moment(int(begin.timestamp() * 1000) - WINDOW_MS)
        written: dict[tuple[str, str, str, int], list[str]] = {}
        for event in self._api.asset_events(before, end):
            if event.uri and event.source_dag_id and event.source_run_id and event.source_task_id:
                key = (event.source_dag_id, event.source_run_id, event.source_task_id, event.source_map_index)
                written.setdefault(key, []).append(event.uri)
        return written

    def _read_files_of_run(self, run_id: str) -> dict[str, tuple[str, ...]]:
        """Return what custody's own steps wrote in a run, by the name of the attempt."""
        if self._reports is None:
            return {}
        reports = reports_of_run(*self._reports, run_id)
        return {report.attempt: report.files for report in reports if report.attempt is not None}


def read_cursor(folder: Path, fs: FileSystem | None = None) -> RunCursor | None:
    """Return how far a spool's deployment was reconciled; None where it never was.

    Raises:
        CorruptionError, FormatVersionError: the file cannot be read.
    """
    fs = fs or PosixFileSystem()
    path = folder / CURSOR
    return CURSOR_FORMAT.decode(fs.read(path), path) if fs.exists(path) else None


def _events_of(facts: RunFacts) -> list[dict[str, object]]:
    has_ended = facts.state in (SUCCESS, FAILED, SKIPPED)
    return [*start_events(facts), *(end_events(facts) if has_ended else ())]


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
