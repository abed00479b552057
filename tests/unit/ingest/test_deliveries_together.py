"""Deliveries of many senders that are read together: what becomes of each is what would become of it as rows."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from custody.capture import CaptureLimits, Context, Format, SplitText, split_text
from custody.capture.custody_json import batch_ordinals
from custody.errors import BackpressureError
from custody.ingest import ingest as module
from custody.ingest.ingest import DeliveryReport, UnreadDelivery
from custody.model import Event
from custody.repository import Repository
from tests.unit.capture.sample_inputs import lines, own_event, run_event

LIMITS = CaptureLimits(1 << 20, 1 << 30)


def delivery(documents: list[Any], origin: str, node: str | None = None, key: str | None = None) -> UnreadDelivery:
    """What a sender delivers: events of runs if the first one is, else custody's own."""
    format = Format.OPENLINEAGE if documents and "run" in documents[0] else Format.CUSTODY
    data = lines(documents)
    text = split_text(data, LIMITS, format, Context(node, is_numbered=key is None))
    if key is not None:
        text = SplitText(format, text.pieces, text.context, batch_ordinals(key, len(text.pieces), None))
    return UnreadDelivery(origin=origin, format=format, outcomes=(), size=len(data), node=node, text=text)


def some_event(random: Random, source: str) -> dict[str, object]:
    """An event of a source that has few, so that many are repeated, and some say something else than before."""
    changes: dict[str, object] = {"source_node": source, "source_ordinal": random.randrange(60)}
    number = random.random()
    if number < 0.04:
        changes["file_size"] = -1
    elif number < 0.08:
        changes["details"] = "something else"
    elif number < 0.16:
        changes["transit_uri"] = None  # a warning
    return own_event(int(str(changes["source_ordinal"])), **changes)


def some_deliveries(random: Random, turn: int) -> list[UnreadDelivery]:
    made = []
    for sender in range(random.randrange(1, 6)):
        count = random.randrange(0, 40)
        # Mostly of its own, so that what two senders say of one event does not depend on who comes first.
        source = f"source {sender}"
        kind = random.random()
        if kind < 0.6:
            made.append(delivery([some_event(random, source) for _ in range(count)], f"/events/{sender}"))
        elif kind < 0.75:
            documents = [own_event(random.randrange(20)) for _ in range(count)]
            made.append(delivery(documents, f"/events/{sender}", f"node {sender % 2}", f"key {turn % 3}/{sender}"))
        else:
            runs = [run_event("START", 1000 * sender + random.randrange(30)) for _ in range(count)]
            made.append(delivery(runs, f"/lineage/{sender}"))
    return made


def without_ids(reports: list[DeliveryReport | BackpressureError]) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for report in reports:
        assert isinstance(report, DeliveryReport)
        counts = report.counts
        ids = None if counts.first_event_id is None else "ids"
        refused = sorted((piece.index or 0, piece.offset, piece.code, piece.key) for piece in report.refused)
        numbers = (counts.read, counts.stored, counts.repeated, counts.retold, counts.rejected, counts.warned)
        found.append((counts.file, *numbers, ids, refused, len(counts.problems)))
    return found


def contents(repository: Repository) -> list[str]:
    def told(event: Event) -> str:
        fields = {name: getattr(event, name) for name in Event.__struct_fields__ if name != "event_id"}
        return json.dumps(fields, default=str, sort_keys=True)

    return sorted(map(told, repository.events(0, 100_000)))


@pytest.mark.parametrize("seed", range(12))
def test_what_becomes_of_each_is_what_becomes_of_rows(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for name, columns_from in (("columns", 1), ("usual", 64), ("rows", 1 << 30)):
        monkeypatch.setattr(module, "_COLUMNS_FROM", columns_from)
        random = Random(seed)  # noqa: S311 - no secret
        repository = Repository.create(tmp_path / name)
        with repository.ingest() as ingest:
            reports = [without_ids(ingest.deliveries(some_deliveries(random, turn))) for turn in range(5)]
        entries = sorted((entry.key, entry.severity, entry.file) for entry in repository.quarantine.entries())
        found.append((reports, contents(repository), entries))
    assert found[0] == found[2]
    assert found[1] == found[2]


def test_ids_of_a_report_are_those_of_its_events(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "r")
    with repository.ingest() as ingest:
        made = [
            delivery([own_event(n, source_node=f"s{sender}", source_ordinal=n) for n in range(50)], f"/{sender}")
            for sender in range(3)
        ]
        made.insert(1, delivery([], "/none"))
        reports = ingest.deliveries(made)
        assert all(isinstance(report, DeliveryReport) for report in reports)
        ids = [(r.counts.first_event_id, r.counts.last_event_id) for r in reports if isinstance(r, DeliveryReport)]
        assert ids == [(0, 49), (None, None), (50, 99), (100, 149)]
    assert [event.source_node for event in repository.events(0, 1000)] == ["s0"] * 50 + ["s1"] * 50 + ["s2"] * 50


def test_one_who_sends_copies_does_not_send_the_others_the_slow_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow: list[int] = []
    stored = module.Ingest._store

    def noted(self: module.Ingest, accepted: Any, store: Any) -> None:
        slow.append(len(accepted))
        stored(self, accepted, store)

    monkeypatch.setattr(module.Ingest, "_store", noted)
    repository = Repository.create(tmp_path / "r")
    good = [own_event(n, source_node="good", source_ordinal=n) for n in range(100)]
    copies = [own_event(n % 5, source_node="bad", source_ordinal=n % 5) for n in range(10)]
    with repository.ingest() as ingest:
        [first, second] = ingest.deliveries([delivery(good, "/good"), delivery(copies, "/bad")])
    assert isinstance(first, DeliveryReport)
    assert isinstance(second, DeliveryReport)
    assert (first.counts.stored, second.counts.stored, second.counts.repeated) == (100, 5, 5)
    assert slow == [10]


@pytest.mark.parametrize("columns_from", [1, 1 << 30])
def test_an_event_whose_warning_finds_no_room_is_stored_when_it_comes_again(
    tmp_path: Path, columns_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_COLUMNS_FROM", columns_from)
    warned = [own_event(n, source_node="a", source_ordinal=n, transit_uri=None, details="x" * 900) for n in range(70)]
    Repository.create(tmp_path / "r")
    monkeypatch.setenv("CUSTODY__REPOSITORY__QUARANTINE_BYTES_MAX", str(1 << 16))
    with Repository.open(tmp_path / "r").ingest() as ingest:
        [report] = ingest.deliveries([delivery(warned, "/a")])
        assert isinstance(report, BackpressureError)
    monkeypatch.delenv("CUSTODY__REPOSITORY__QUARANTINE_BYTES_MAX")
    repository = Repository.open(tmp_path / "r")
    with repository.ingest() as ingest:
        [again] = ingest.deliveries([delivery(warned, "/a")])
        assert isinstance(again, DeliveryReport)
        assert again.counts.stored + again.counts.repeated == 70
    assert len(list(repository.quarantine.entries())) == 70
    assert len(list(repository.events(0, 1000))) == 70
