"""The scenario of a reconciliation: Airflow and the server lose nothing, passes break off anywhere and go on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import msgspec

from custody.airflow_runs import AirflowApi, Reconciliation
from custody.airflow_runs.airflow_api import RunEntry, TryEntry
from custody.client.spool_delivery import Receipt
from custody.vfs import FileSystem
from tests.crash.enumeration import Scenario

FOLDER = Path("/spool")
BEGIN = datetime(2026, 3, 2, tzinfo=UTC)
HOURS = 3


@dataclass
class Told:
    """What Airflow knows, by the hour in which it changed, and what the server has taken."""

    hours: int = 0
    taken: dict[int, str] = field(default_factory=dict)

    def copy(self) -> Told:
        return Told(self.hours, dict(self.taken))


class KnownRuns:
    """An Airflow in which a run of each hour ended in that hour."""

    def __init__(self, told: Told) -> None:
        self._told = told

    def now_ms(self) -> int:
        return int((BEGIN + timedelta(hours=self._told.hours)).timestamp() * 1000)

    def runs(self, begin: datetime, end: datetime) -> Iterator[list[RunEntry]]:
        for hour in range(self._told.hours):
            changed = BEGIN + timedelta(hours=hour, minutes=30)
            if begin <= changed < end:
                yield [
                    RunEntry(
                        dag_id="sales",
                        dag_run_id=f"run-{hour}",
                        run_after=changed,
                        state="success",
                        start_date=changed,
                        end_date=changed,
                    )
                ]

    def tries(self, begin: datetime, end: datetime) -> Iterator[list[TryEntry]]:
        return iter(())


class Server:
    """Knows events by their ordinals."""

    def __init__(self, told: Told) -> None:
        self._taken = told.taken

    def send(self, lines: bytes) -> Receipt:
        events = [msgspec.json.decode(line) for line in lines.splitlines()]
        before = len(self._taken)
        for event in events:
            known = f"{event['updated_attributes']['airflow.run_id']} {event['event_type']}"
            assert self._taken.setdefault(event["source_ordinal"], known) == known
        stored = len(self._taken) - before
        return Receipt(stored, len(events) - stored)


def reconcile(fs: FileSystem, told: Told) -> None:
    api = cast("AirflowApi", KnownRuns(told))
    Reconciliation(api, Server(told), FOLDER, deployment="airflow", settle_ms=0, fs=fs).run()


def expected(hours: int) -> list[str]:
    return sorted(f"run-{hour} {kind}" for hour in range(hours) for kind in ("CREATE", "DROP"))


class Reconciling(Scenario[Told]):
    """Every run that Airflow knew of has its events once, whatever crashed."""

    def new_record(self) -> Told:
        return Told()

    def copy(self, record: Told) -> Told:
        return record.copy()

    def run(self, fs: FileSystem, record: Told) -> None:
        for _ in range(HOURS):
            record.hours += 1
            reconcile(fs, record)

    def check(self, fs: FileSystem, record: Told) -> None:
        pass  # what is owed is asked of the next pass

    def use(self, fs: FileSystem, record: Told) -> None:
        record.hours = max(record.hours, 1) + 1
        reconcile(fs, record)
        assert sorted(record.taken.values()) == expected(record.hours)
