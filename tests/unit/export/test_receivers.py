"""Receivers: what a real server on the other end gets, and what its answers mean."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from custody.capture import Accepted, read_file
from custody.config import ExportTarget
from custody.errors import ConfigurationError
from custody.export.http_receiver import HttpReceiver
from custody.export.kafka_receiver import KafkaReceiver
from custody.export.openlineage_receiver import OpenLineageReceiver, as_run_event
from custody.export.receiver import EventBatch, RefusedError, UnavailableError
from custody.export.site_to_site import SiteToSiteReceiver, base_address
from custody.lease import Attempt
from custody.model import Event, to_batch
from custody.repository import Repository
from tests.support import append, event, sample, unnumbered
from tests.unit.capture.sample_inputs import dataset, run_event
from tests.unit.export.receivers import NifiPort, http_inbox
from tests.unit.export.test_export_run import box, made
from tests.unit.lineage.pipeline import taken_in

TOKEN = "s3cret"  # noqa: S105 - of nobody


def batch(events: list[Event], first: int = 0) -> EventBatch:
    return EventBatch("main", pa.Table.from_batches([to_batch(events, first)]))


def target(url: str, kind: str = "http", **more: object) -> ExportTarget:
    return ExportTarget.model_validate({"kind": kind, "url": url, "timeout_seconds": 2.0, **more})


def test_http_gets_arrays_as_nifi_writes_them_and_custody_reads_them_back() -> None:
    events = sample(50)
    with http_inbox() as inbox:
        receiver = HttpReceiver("box", target(f"{inbox.url}/take?x=1", token=TOKEN))
        receiver.deliver(batch(events, 7))
        receiver.close()
        [(method, path, headers, body)] = inbox.requests
    assert (method, path) == ("POST", "/take?x=1")
    assert headers["idempotency-key"] == "box/main/7-56"
    assert headers["authorization"] == f"Bearer {TOKEN}"
    read = [item.event for item in read_file(body, event_bytes_max=1 << 20) if isinstance(item, Accepted)]
    assert unnumbered(read) == unnumbered(events)


def test_what_custodys_own_producers_did_is_read_back_by_another_custody_and_once(tmp_path: Path) -> None:
    events = [event(number, source_node=None, source_ordinal=None, source_format="custody") for number in range(20)]
    with http_inbox() as inbox:
        receiver = HttpReceiver("box", target(f"{inbox.url}/take"))
        receiver.deliver(batch(events))
        receiver.close()
        [(*_, body)] = inbox.requests
    file = tmp_path / "events.json"
    file.write_bytes(body)
    other = Repository.create(tmp_path / "other")
    with other.ingest() as work:
        reports = [work.file(file), work.file(file)]
    assert [(report.stored, report.repeated, report.rejected) for report in reports] == [(20, 0, 0), (0, 20, 0)]


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, RefusedError),
        (413, RefusedError),
        (422, RefusedError),
        (401, ConfigurationError),
        (403, ConfigurationError),
        (404, ConfigurationError),
        (301, ConfigurationError),
        (429, UnavailableError),
        (500, UnavailableError),
        (503, UnavailableError),
    ],
)
def test_a_status_says_whose_fault_it_is(status: int, error: type[Exception], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with http_inbox(
        lambda *_: (status, {"Location": "http://127.0.0.1:9/", "Retry-After": "3"}, b"because\x1b[2J")
    ) as inbox:
        with pytest.raises(error, match=f"got {status}: because") as caught:
            HttpReceiver("box", target(f"{inbox.url}/e?key={TOKEN}", token=TOKEN)).deliver(batch([event(1)]))
        assert len(inbox.requests) == 1  # a redirect is not followed
    assert TOKEN not in str(caught.value)
    assert "\x1b" not in str(caught.value)
    if isinstance(caught.value, UnavailableError):
        assert caught.value.retry_seconds == 3
    assert TOKEN not in "".join(record.getMessage() for record in caplog.records if record.name.startswith("custody"))


def test_nobody_who_answers_is_somebody_to_wait_for() -> None:
    with http_inbox() as inbox:
        gone = inbox.url
    with pytest.raises(UnavailableError, match="expected an answer"):
        HttpReceiver("box", target(gone)).deliver(batch([event(1)]))


def test_site_to_site_delivers_packets_as_the_reporting_task_does() -> None:
    events = sample(30)
    port = NifiPort()
    with http_inbox(port.answer) as inbox:
        port.peers_url = inbox.url
        receiver = SiteToSiteReceiver("box", target(f"{inbox.url}/nifi", "site-to-site"))
        receiver.deliver(batch(events[:20]))
        receiver.deliver(batch(events[20:], 20))
        receiver.close()
        requests = [(method, path.partition("?")[0].rpartition("/")[2]) for method, path, _, _ in inbox.requests]
    # Discovered once; a transaction is begun, filled, and committed.
    assert [method for method, _ in requests] == ["GET", "GET", *["POST", "POST", "DELETE"] * 2]
    assert port.open == {}
    read = [item.event for _, data in port.packets for item in read_file(data, event_bytes_max=1 << 20)]  # type: ignore[union-attr]
    assert unnumbered(read) == unnumbered(events)
    attributes, _ = port.packets[0]
    assert attributes["reporting.task.type"] == "SiteToSiteProvenanceReportingTask"
    assert attributes["mime.type"] == "application/json"
    assert attributes["reporting.task.transaction.id"] == "main/0-19"


def test_site_to_site_counts_nothing_before_the_transaction_is_confirmed() -> None:
    port = NifiPort(checksum_error=1)
    with http_inbox(port.answer) as inbox:
        port.peers_url = inbox.url
        receiver = SiteToSiteReceiver("box", target(inbox.url, "site-to-site"))
        with pytest.raises(UnavailableError, match="checksum"):
            receiver.deliver(batch([event(1)]))
        assert (port.packets, port.open) == ([], {})
        port.checksum_error = 0
        receiver.deliver(batch([event(1)]))
        assert len(port.packets) == 1


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (503, 201, UnavailableError),
        (503, 202, UnavailableError),
        (500, 250, UnavailableError),
        (404, 200, ConfigurationError),
        (403, 240, ConfigurationError),
    ],
)
def test_site_to_site_understands_refusals(status: int, code: int, error: type[Exception]) -> None:
    port = NifiPort(at_begin=(status, code))
    with http_inbox(port.answer) as inbox:
        port.peers_url = inbox.url
        with pytest.raises(error):
            SiteToSiteReceiver("box", target(inbox.url, "site-to-site")).deliver(batch([event(1)]))


def test_site_to_site_names_the_ports_that_are_there() -> None:
    port = NifiPort(port="other")
    with http_inbox(port.answer) as inbox:
        port.peers_url = inbox.url
        with pytest.raises(ConfigurationError, match="input port 'provenance', got other"):
            SiteToSiteReceiver("box", target(inbox.url, "site-to-site")).deliver(batch([event(1)]))


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://n:8080", "http://n:8080/nifi-api"),
        ("http://n:8080/", "http://n:8080/nifi-api"),
        ("https://n/nifi", "https://n/nifi-api"),
        ("https://n/nifi-api/", "https://n/nifi-api"),
        ("https://n/t/x/nifi", "https://n/t/x/nifi-api"),
        ("https://n/other", "https://n/other/nifi-api"),
    ],
)
def test_the_address_of_a_nifi_is_that_of_its_api(url: str, base: str) -> None:
    assert base_address(url) == base


def test_openlineage_gets_a_run_an_event() -> None:
    events = [
        event(1, event_type="RECEIVE", transit_uri="https://user:pw@shop.example/orders?key=1", component_name="Fetch"),
        event(2, event_type="FORK", child_uuids=("c1", "c2"), component_name=None),
        event(3, event_type="JOIN", parent_uuids=("c1", "c2")),
        event(4, event_type="SEND", transit_uri="s3://bucket/a/b.csv"),
        event(5, event_type="DROP"),
    ]
    with http_inbox() as inbox:
        receiver = OpenLineageReceiver(target(inbox.url, "openlineage"))
        receiver.deliver(batch(events))
        receiver.deliver(batch(events[:1]))
        receiver.close()
        paths = {path for _, path, _, _ in inbox.requests}
        runs = [json.loads(body) for _, _, _, body in inbox.requests]
    assert paths == {"/api/v1/lineage"}
    assert runs[0] == runs[5]  # told twice, known by the id of its run
    assert runs[0]["inputs"] == [{"namespace": "https://shop.example", "name": "orders"}]
    assert "pw" not in json.dumps(runs[0]["inputs"])
    own = [{"namespace": "custody", "name": event(1).flowfile_uuid}]
    assert runs[0]["outputs"] == own
    assert [item["name"] for item in runs[1]["outputs"]] == ["c1", "c2"]
    assert [item["name"] for item in runs[2]["inputs"]] == ["c1", "c2"]
    assert runs[3]["outputs"] == [{"namespace": "s3://bucket", "name": "a/b.csv"}]
    assert runs[4]["outputs"] == []
    assert runs[1]["job"]["name"] == "GenerateFlowFile"
    assert runs[0]["run"]["facets"]["custody_event"]["eventId"] == 0


@pytest.mark.parametrize("uri", ["", "no uri", "http://[broken", "file:///a/b", "urn:x:y", "jms://q name/ä"])
def test_openlineage_takes_any_transit_uri(uri: str) -> None:
    document = as_run_event(event(1, event_type="SEND", transit_uri=uri), "main")
    assert json.loads(json.dumps(document))["eventType"] == "COMPLETE"


def test_openlineages_own_events_are_forwarded_as_they_came() -> None:
    facets = {"facets": {"schema": {"fields": [{"name": "id", "type": "LONG"}]}, "size": {"bytes": 1e300}}}
    told = [
        run_event("START", 1, inputs=[dataset("seed")]),
        run_event("FAIL", 1, outputs=[{**dataset("tree"), **facets}], total=12345678901234567890),
        {"eventTime": "2026-03-04T05:06:07Z", "dataset": dataset("tree"), "producer": "x", "schemaURL": "y"},
        {"eventTime": "2026-03-04T05:06:08Z", "job": {"namespace": "n", "name": "j"}, "producer": "x"},
    ]
    events = [*taken_in(*told), event(7, event_type="SEND")]
    with http_inbox() as inbox:
        receiver = OpenLineageReceiver(target(inbox.url, "openlineage"))
        receiver.deliver(batch(events))
        receiver.close()
        bodies = [body for *_, body in inbox.requests]
    assert list(map(json.loads, bodies[:-1])) == told
    assert b"12345678901234567890" in bodies[1], "digits are those that came"
    assert json.loads(bodies[-1])["job"]["namespace"] == "custody"


def test_files_may_be_parquet(tmp_path: Path) -> None:
    repository = made(tmp_path / "r", format="parquet")
    append(repository, [event(number) for number in range(9)])
    with box(repository).started(Attempt.new("test")) as run:
        run.deliver_waiting()
    [file] = (repository.settings.root / "out" / "main").iterdir()
    assert pq.read_table(file).column("event_id").to_pylist() == list(range(9))


def test_a_broker_that_is_away_is_waited_for_and_settings_that_break_the_promise_are_refused() -> None:
    receiver = KafkaReceiver("box", target("127.0.0.1:9", "kafka", timeout_seconds=1.0))
    with pytest.raises(UnavailableError, match=r"Kafka topic 'provenance' at 127\.0\.0\.1:9"):
        receiver.deliver(batch([event(1)]))
    with pytest.raises(ConfigurationError, match="'acks'"):
        KafkaReceiver("box", target("h:1", "kafka", options={"acks": "0"}))
    with pytest.raises(ConfigurationError, match="librdkafka"):
        KafkaReceiver("box", target("h:1", "kafka", options={"no.such.option": "0"})).deliver(batch([event(1)]))
