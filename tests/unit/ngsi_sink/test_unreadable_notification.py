"""A notification that the receiver could not read is submitted again: its events have its body, so the sink has it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from custody.clock import ManualClock
from custody.ngsi import http_notification as arrivals
from custody.ngsi.http_notification import Accepts, Arrival, Refusal, read_arrival
from custody.quarantine import bad_piece
from custody.repository import Repository
from tests.support import run_steps
from tests.unit.ngsi.notification_records import attribute
from tests.unit.ngsi_sink.sink_repository import HEADERS, NOW_MS, bench, files, opened, receive, settings

URL = "http://localhost/notify"
"""Where the notifications of `receive` are posted to."""
LD = json.dumps(
    {
        "id": "urn:ngsi-ld:Notification:1",
        "type": "Notification",
        "notifiedAt": "2026-03-01T00:00:00Z",
        "data": [{"id": "urn:ngsi-ld:Bench:1", "type": "Bench", "seats": {"type": "Property", "value": 4}}],
    }
).encode()
TWO = json.dumps({"subscriptionId": "1", "data": [{"id": "A", "type": "Bench", "wood": attribute("oak")}, {"id": ""}]})


def repository(root: Path) -> Repository:
    root.mkdir()
    return Repository(settings(root), clock=ManualClock(NOW_MS))


def written(found: Repository) -> dict[str, bytes]:
    """The files after a rollover and a run of the sink."""
    run_steps(found.settings)
    with opened(found) as job:
        job.run(until_ms=2**53)
    return files(found)


def keep(found: Repository, body: bytes) -> str:
    """Put what could not be read into the quarantine, as the receiver does; return the key."""
    told = {**HEADERS, "fiware-correlator": f"{NOW_MS}-0"}
    read = read_arrival(Arrival(body, told, URL, "192.0.2.1", NOW_MS), Accepts.of(found.settings.ngsi))
    [rejected] = read.rejected
    if read.events:
        receive(found, [body])
    entry = found.quarantine.add(
        bad_piece(
            rejected.raw,
            severity=rejected.problem.severity,
            code=rejected.problem.code,
            message=rejected.problem.message,
            file=URL,
            index=None,
            offset=0,
            node=None,
            received_ms=NOW_MS,
            format="ngsi",
        )
    )
    return entry.key


@pytest.mark.parametrize("body", [bench(1), LD], ids=["NGSIv2", "NGSI-LD with a time of its own"])
def test_what_can_be_read_by_now_is_written_as_if_it_had_been_at_once(
    body: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = repository(tmp_path / "at once")
    receive(at_once, [body])
    later = repository(tmp_path / "later")
    with monkeypatch.context() as old:  # a custody that does not know this kind of notification yet
        old.setattr(arrivals, "judge_body", lambda *_: Refusal(400, "bad-value", "unknown"))
        key = keep(later, body)
    with later.ingest() as work:
        report = work.resubmit(key)
    assert (report.stored, report.rejected) == (1, 0)
    assert list(later.quarantine.entries()) == []
    [event] = later.events()
    assert later.content(event).read() == body
    assert event.updated_attributes["mime.type"] == "application/json"
    assert event.transit_uri == URL
    assert len(written(at_once)) == 1
    assert written(later) == written(at_once)


def test_entities_that_were_stored_at_once_are_repetitions_and_are_written_once(tmp_path: Path) -> None:
    found = repository(tmp_path / "found")
    key = keep(found, TWO.encode())
    with found.ingest() as work:
        report = work.resubmit(key)
    assert (report.repeated, report.stored, report.rejected) == (1, 0, 1)
    assert [entry.key for entry in found.quarantine.entries()] == [key]
    assert [data.count(b"\n") for data in written(found).values()] == [1]
