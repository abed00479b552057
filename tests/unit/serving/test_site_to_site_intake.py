"""The intake of Site-to-Site: a packet of many events is stored as columns, and becomes what rows become."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from custody.clock import ManualClock
from custody.errors import BackpressureError
from custody.ingest.ingest import BatchDelivery, Delivery, DeliveryReport, Ingest
from custody.repository import Repository
from custody.serving import site_to_site_intake
from custody.serving.event_intake import EventIntake
from custody.serving.site_to_site_intake import EventStore, IngestStore, IntakeStore, PacketIntake
from tests.nifi_client import attributes
from tests.unit.capture.json_documents import document

EVENTS = 200


@contextmanager
def port(root: Path, kind: str) -> Iterator[tuple[Repository, PacketIntake]]:
    repository = Repository.open(root) if root.exists() else Repository.create(root)
    with repository.ingest() as ingest, EventIntake(ingest, 8) as shared:
        store: EventStore = IngestStore(ingest) if kind == "own" else IntakeStore(shared)
        yield (
            repository,
            PacketIntake(repository.settings, store, repository.quarantine, ManualClock(1_772_409_600_000)),
        )


def packet(first: int, *others: dict[str, Any]) -> bytes:
    events = [document("SEND", eventOrdinal=number) for number in range(first, first + EVENTS)]
    return json.dumps([*events, *others]).encode()


ODD = (
    {"eventOrdinal": 7},  # no type
    document("FORK", eventOrdinal=5000, childIds=[], parentIds=[]),  # stored with a warning
    document("SEND", eventOrdinal=3, entitySize=999),  # contradicts the one before
)


@pytest.mark.parametrize("kind", ["own", "shared"])
def test_columns_and_rows_of_a_packet_become_the_same(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for name, columns_from in (("columns", 1), ("rows", 1 << 30)):
        monkeypatch.setattr(site_to_site_intake, "_COLUMNS_FROM", columns_from)
        with port(tmp_path / name, kind) as (repository, intake):
            for content in (packet(0), packet(EVENTS // 2, *ODD), packet(0, *ODD)):
                intake.take(attributes(), io.BufferedReader(io.BytesIO(content)))
            counts = intake.stored, intake.repeated, intake.rejected, intake.kept
            entries = [(entry.code, entry.index, entry.severity) for entry in repository.quarantine.entries()]
            found.append((counts, sorted(entries, key=str), list(repository.events(0, 1000))))
    assert found[0] == found[1]
    assert found[0][0] == (EVENTS * 3 // 2 + 1, EVENTS * 3 // 2 + 1, 4, 0)


@pytest.mark.parametrize(("events", "kind"), [(EVENTS, BatchDelivery), (3, Delivery)])
def test_a_packet_of_a_few_events_is_stored_with_those_of_others(
    tmp_path: Path, events: int, kind: type[Delivery], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Delivery] = []
    stored = Ingest.deliveries

    def noted(ingest: Ingest, some: Sequence[Delivery]) -> list[DeliveryReport | BackpressureError]:
        taken.extend(some)
        return stored(ingest, some)

    monkeypatch.setattr(Ingest, "deliveries", noted)
    content = json.dumps([document("SEND", eventOrdinal=number) for number in range(events)]).encode()
    with port(tmp_path / "r", "shared") as (_, intake):
        intake.take(attributes(), io.BufferedReader(io.BytesIO(content)))
        assert intake.stored == events
    assert [(type(delivery), delivery.pieces) for delivery in taken] == [(kind, events)]
