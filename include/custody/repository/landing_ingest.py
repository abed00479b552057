"""Landing ingest: files from landing folders become acknowledged events, and the ledger records it.

The ledger spares a second look at a file. It is no promise: an event is known by its identity, so a file that is taken
twice is stored once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from functools import partial

from custody.clock import Clock
from custody.errors import CustodyError
from custody.ingest.ingest import FileReport, Ingest
from custody.landing import Interval, LandedFile, LandingLedger, LedgerEntry, landed_files
from custody.repository.repository import Repository
from custody.workspace import UnitReport

_log = logging.getLogger(__name__)


def waiting_files(repository: Repository, interval: Interval) -> list[LandedFile]:
    """Return the files of an interval that wait to be ingested; raises as `landed_files` does."""
    workspace = repository.workspace()
    files = landed_files(workspace.fs, repository.settings, interval, workspace.clock.now_ms())
    return [file for file in files if file.waits]


def shares(files: Sequence[LandedFile], count: int) -> list[list[LandedFile]]:
    """Deal files out to at most `count` workers, so that each gets about as many bytes; each keeps their order."""
    dealt: list[list[int]] = [[] for _ in range(min(count, len(files)))]
    sizes = [0] * len(dealt)
    # The largest files first, each to the worker that has least: small ones then fill the gaps.
    for place in sorted(range(len(files)), key=lambda place: -files[place].bytes):
        least = sizes.index(min(sizes))
        dealt[least].append(place)
        sizes[least] += files[place].bytes
    return [[files[place] for place in sorted(places)] for places in dealt]


def ingest_landed(repository: Repository, files: Sequence[LandedFile], run_id: str | None) -> list[UnitReport]:
    """Ingest files one after the other, and return a report of each; one that fails does not stop the others.

    Doing it again stores nothing twice: an event is known by its identity, whatever the ledger says. Where no writer
    slot comes free, every file's report has that as its error.

    Durability: the events of a file are acknowledged before the ledger says that it was taken.
    """
    workspace = repository.workspace()
    ledger = LandingLedger(workspace.fs, repository.settings.landed)
    node = repository.settings.landing.node
    reports: list[UnitReport] = []
    try:
        with repository.ingest(wait_seconds=repository.settings.landing.writer_wait_seconds) as work:
            ingest_one = partial(_ingest_one, work, ledger, clock=workspace.clock, node=node, run_id=run_id)
            reports = [ingest_one(file) for file in files]
    except CustodyError as error:
        # Where the error came after the last file, as the slot was released, it counts for that one.
        remaining = files[len(reports) :] or files[-1:]
        reports.extend(_failed(file, error) for file in remaining)
    return reports


def _ingest_one(
    work: Ingest, ledger: LandingLedger, file: LandedFile, *, clock: Clock, node: str | None, run_id: str | None
) -> UnitReport:
    started = time.monotonic()
    try:
        report = work.file(file.path, node=node)
        # Behind the acknowledgement: a crash in between costs a second reading, which stores nothing twice.
        ledger.add(file.path, _entry(file, report, clock.now_ms(), run_id))
    except CustodyError as error:
        _log.exception("%s", file.file)
        return _failed(file, error)
    _log.info("%s: %s", file.file, _note(report))
    seconds = round(time.monotonic() - started, 3)
    return UnitReport(unit=file.file, events=report.stored, bytes_in=file.bytes, seconds=seconds, note=_note(report))


def _failed(file: LandedFile, error: CustodyError) -> UnitReport:
    return UnitReport(unit=file.file, error=f"{type(error).__name__}: {error}")


def _entry(file: LandedFile, report: FileReport, now_ms: int, run_id: str | None) -> LedgerEntry:
    return LedgerEntry(
        file=file.file,
        # Size and time as the scan saw them: a file that grew while it was read is taken again.
        bytes=file.bytes,
        modified_ms=file.modified_ms,
        writer=report.writer,
        read=report.read,
        stored=report.stored,
        repeated=report.repeated,
        rejected=report.rejected,
        taken_ms=now_ms,
        run_id=run_id,
    )


def _note(report: FileReport) -> str:
    waiting = f", {report.rejected} in the quarantine" if report.rejected else ""
    return f"{report.read} read, {report.stored} stored, {report.repeated} repeated{waiting}"
