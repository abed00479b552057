"""The input port for NiFi over HTTP: what its answers are, and what is on disk when they are given."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from custody.clock import ManualClock
from custody.config import load_settings
from custody.errors import BackpressureError
from custody.repository import Repository
from custody.serving.access import Tokens
from custody.serving.site_to_site_door import SiteToSiteDoor
from custody.serving.site_to_site_intake import IngestStore, PacketIntake
from custody.vfs import PosixFileSystem
from tests.nifi_client import attributes, compressed, packed
from tests.unit.capture.sample_inputs import avro_file, payloads

VERSION = {"x-nifi-site-to-site-protocol-version": "1"}
TOKEN = "a-token-of-the-file"  # noqa: S105 - of nobody


Answer = Any
"""The test client brings a class of its own for answers, whatever httpx is installed."""


class Port:
    """A port in this process."""

    def __init__(self, root: Path, clock: ManualClock, tokens: Tokens | None = None) -> None:
        self.repository = Repository.open(root)
        self._held = self.repository.ingest()
        self.intake = PacketIntake(
            self.repository.settings, IngestStore(self._held.__enter__()), self.repository.quarantine, clock
        )
        self.door = SiteToSiteDoor(self.repository.settings, self.intake, PosixFileSystem(), clock, tokens=tokens)
        app = FastAPI()
        app.router.routes.extend(self.door.routes())
        self.client = TestClient(app, base_url="http://nifi.example:8443", headers=VERSION)

    def close(self) -> None:
        self.door.close()
        self._held.__exit__(None, None, None)

    @property
    def port_id(self) -> str:
        return str(self.client.get("/nifi-api/site-to-site").json()["controller"]["inputPorts"][0]["id"])

    def begin(self) -> Answer:
        return self.client.post(f"/nifi-api/data-transfer/input-ports/{self.port_id}/transactions")

    def staged(self, *packets: bytes, **headers: str) -> str:
        """The address of a transaction whose packets were sent."""
        url = f"/nifi-api{self.begin().headers['location']}"
        answer = self.client.post(f"{url}/flow-files", content=b"".join(packets), headers=headers)
        assert answer.status_code == 202, answer.text
        return url

    def confirm(self, url: str) -> Answer:
        return self.client.delete(url, params={"responseCode": 12})

    def deliver(self, *packets: bytes) -> Answer:
        return self.confirm(self.staged(*packets))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_772_409_600_000)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    Repository.create(tmp_path / "r")
    return tmp_path / "r"


@contextmanager
def opened(root: Path, clock: ManualClock, tokens: Tokens | None = None) -> Iterator[Port]:
    port = Port(root, clock, tokens)
    try:
        yield port
    finally:
        port.close()


@pytest.fixture
def port(root: Path, clock: ManualClock) -> Iterator[Port]:
    with opened(root, clock) as held:
        yield held


def packet(events: list[dict[str, Any]], kind: str = "SiteToSiteProvenanceReportingTask") -> bytes:
    return packed(attributes(kind), json.dumps(events).encode())


def result(answer: Answer) -> tuple[int, int, int]:
    """Status, code and number of packets; a result has three keys and no other."""
    document = answer.json()
    assert set(document) == {"flowFileSent", "responseCode", "message"}
    return answer.status_code, document["responseCode"], document["flowFileSent"]


def ordinals(port: Port) -> list[int | None]:
    return [item.source_ordinal for item in port.repository.events(0, 100_000)]


def entries(port: Port) -> list[tuple[str, str]]:
    return [(entry.code, entry.file) for entry in port.repository.quarantine.entries()]


def test_discovery_names_the_port_and_the_address_that_was_asked(port: Port) -> None:
    controller = port.client.get("/nifi-api/site-to-site").json()["controller"]
    assert controller["remoteSiteHttpListeningPort"] == 8443
    assert (controller["remoteSiteListeningPort"], controller["siteToSiteSecure"]) == (None, False)
    assert controller["outputPorts"] == []
    assert [(item["name"], item["state"]) for item in controller["inputPorts"]] == [("provenance", "RUNNING")]
    [peer] = port.client.get("/nifi-api/site-to-site/peers").json()["peers"]
    assert peer == {"hostname": "nifi.example", "port": 8443, "secure": False, "flowFileCount": 0}


def test_behind_a_proxy_its_address_is_named(root: Path, clock: ManualClock) -> None:
    (root / "custody.toml").write_text(
        '[site_to_site]\nadvertised_host = "proxy"\nadvertised_port = 443\nadvertised_tls = "yes"\n'
    )
    with opened(root, clock) as port:
        [peer] = port.client.get("/nifi-api/site-to-site/peers").json()["peers"]
        controller = port.client.get("/nifi-api/site-to-site").json()["controller"]
    assert peer == {"hostname": "proxy", "port": 443, "secure": True, "flowFileCount": 0}
    assert (controller["remoteSiteHttpListeningPort"], controller["siteToSiteSecure"]) == (443, True)


def test_a_transaction_is_begun_with_the_headers_that_clients_insist_on(port: Port) -> None:
    answer = port.begin()
    assert result(answer) == (201, 1, 0)
    assert answer.headers["location"].startswith(f"/data-transfer/input-ports/{port.port_id}/transactions/")
    assert answer.headers["x-location-uri-intent"] == "transaction-url"
    assert answer.headers["x-nifi-site-to-site-protocol-version"] == "1"
    assert answer.headers["x-nifi-site-to-site-server-transaction-ttl"] == "30"


def test_the_checksum_is_a_number_and_nothing_else(port: Port) -> None:
    data = packet(payloads(2))
    url = f"/nifi-api{port.begin().headers['location']}"
    answer = port.client.post(f"{url}/flow-files", content=data)
    assert (answer.status_code, answer.text) == (202, str(zlib.crc32(data)))


def test_events_are_stored_when_the_confirmation_is_answered_and_not_before(port: Port) -> None:
    url = port.staged(packet(payloads(3)))
    assert ordinals(port) == []
    assert result(port.confirm(url)) == (200, 13, 1)
    assert len(ordinals(port)) == 3


def test_the_same_confirmation_has_the_same_answer_also_after_a_restart(root: Path, clock: ManualClock) -> None:
    with opened(root, clock) as port:
        url = port.staged(packet(payloads(3)), packet(payloads(2)))
        first = port.confirm(url)
        assert (result(first), port.confirm(url).content) == ((200, 13, 2), first.content)
    with opened(root, clock) as port:
        assert port.confirm(url).content == first.content
        assert (port.intake.stored, len(ordinals(port))) == (0, 3)


def test_what_was_staged_before_a_restart_can_be_confirmed_after_it(root: Path, clock: ManualClock) -> None:
    with opened(root, clock) as port:
        url = port.staged(packet(payloads(3)))
    with opened(root, clock) as port:
        assert result(port.confirm(url)) == (200, 13, 1)
        assert len(ordinals(port)) == 3


def test_a_batch_that_comes_again_with_other_names_and_limits_is_stored_once(port: Port) -> None:
    events = payloads(6)
    assert result(port.deliver(packet(events[:4])))[1] == 13
    looked_up = {
        "componentName": "renamed by a user",
        "processGroupId": "00000000-0000-4000-8000-00000000abcd",
        "processGroupName": None,
        "application": "another flow",
        "actorHostname": "moved.example",
        "platform": "nifi-2",
    }
    again = [{**item, "eventId": f"anew-{number}", **looked_up} for number, item in enumerate(events)]
    for item in again[::2]:
        del item["processGroupName"]
    assert result(port.deliver(packet(again[:5])))[1] == 13
    assert result(port.deliver(packet(again[2:])))[1] == 13
    assert sorted(ordinals(port), key=str) == sorted((item["eventOrdinal"] for item in events), key=str)
    assert (port.intake.stored, port.intake.repeated, port.intake.rejected) == (6, 7, 0)
    assert entries(port) == []
    # The first one counts: a component has the name that it had when the event was first told.
    told = {item.source_ordinal: item.component_name for item in port.repository.events()}
    assert [told[item["eventOrdinal"]] for item in events[:4]] == [item["componentName"] for item in events[:4]]


def test_a_nifi_that_numbers_from_the_start_again_is_kept_whole_and_once(port: Port) -> None:
    first = payloads(6)
    second = [
        {
            **event,
            "eventId": f"of-the-second-life-{place}",
            "entityId": f"flowfile-{place}",
            "timestampMillis": event["timestampMillis"] + 86_400_000,
        }
        for place, event in enumerate(first)
    ]
    for events in (first, second, second, first):
        assert result(port.deliver(packet(events)))[1] == 13
    assert (port.intake.stored, port.intake.repeated, port.intake.rejected) == (12, 12, 0)
    assert sorted(ordinals(port), key=str) == sorted((event["eventOrdinal"] for event in first + second), key=str)
    assert entries(port) == []


def test_an_event_that_says_something_else_is_a_contradiction_all_the_same(port: Port) -> None:
    [event] = payloads(1)
    port.deliver(packet([event]))
    assert result(port.deliver(packet([{**event, "entitySize": event["entitySize"] + 1}])))[1] == 13
    assert entries(port) == [("contradiction", f"site-to-site/{attributes()['reporting.task.uuid']}")]


@pytest.mark.parametrize("kind", ["Bulletin", "Status", "Metrics"])
def test_what_is_no_provenance_is_confirmed_and_kept_as_a_whole(port: Port, kind: str) -> None:
    data = packet([{"bulletinId": 5, "bulletinMessage": "x"}], f"SiteToSite{kind}ReportingTask")
    for _ in range(2):
        assert result(port.deliver(data)) == (200, 13, 1)
    [entry] = port.repository.quarantine.entries()
    assert entry.code == "not-provenance"
    assert f"SiteToSite{kind}ReportingTask" in entry.message
    assert json.loads(port.repository.quarantine.raw(entry.key)) == [{"bulletinId": 5, "bulletinMessage": "x"}]
    assert (ordinals(port), port.intake.kept) == ([], 2)


@pytest.mark.parametrize("content", [b"", b"no json", b'[{"eventOrdinal": 1}, 5]', b"\xff\xfe", b"[" * 5000])
def test_what_cannot_be_read_is_confirmed_so_that_it_holds_nobody_up(port: Port, content: bytes) -> None:
    assert result(port.deliver(packed(attributes(), content))) == (200, 13, 1)
    assert result(port.deliver(packet(payloads(1)))) == (200, 13, 1)
    assert len(ordinals(port)) == 1
    assert entries(port)


def test_avro_of_a_record_writer_is_provenance_too(port: Port) -> None:
    names = {**attributes(), "mime.type": "application/avro-binary"}
    assert result(port.deliver(packed(names, avro_file(payloads(4))))) == (200, 13, 1)
    assert len(ordinals(port)) == 4


def test_a_packet_without_attributes_of_a_task_is_read_as_provenance(port: Port) -> None:
    assert result(port.deliver(packed({}, json.dumps(payloads(2)).encode()))) == (200, 13, 1)
    assert len(ordinals(port)) == 2


def test_compressed_packets_have_the_checksum_of_their_plain_bytes(port: Port) -> None:
    data = packet(payloads(50))
    url = port.staged(compressed(data, 1000), compressed(data, 1000), **{"x-nifi-site-to-site-use-compression": "true"})
    assert result(port.confirm(url)) == (200, 13, 2)
    assert (port.intake.stored, port.intake.repeated) == (50, 50)


@pytest.mark.parametrize("code", [15, 19])
def test_what_is_canceled_is_gone(port: Port, code: int) -> None:
    url = port.staged(packet(payloads(1)))
    assert result(port.client.delete(url, params={"responseCode": code})) == (200, 15, 0)
    assert result(port.confirm(url))[:2] == (404, 250)
    assert ordinals(port) == []


def test_a_transaction_lives_as_long_as_its_sender_gives_signs(port: Port, clock: ManualClock) -> None:
    url = port.staged(packet(payloads(1)))
    clock.advance(29_000)
    assert result(port.client.put(url)) == (200, 10, 0)
    clock.advance(29_000)
    assert result(port.confirm(url)) == (200, 13, 1)
    other = port.staged(packet(payloads(1)))
    clock.advance(30_000)
    assert result(port.client.put(other))[:2] == (404, 250)


def test_requests_at_the_wrong_time_or_in_other_words_are_refused(port: Port) -> None:
    url = port.staged(packet(payloads(1)))
    empty = f"/nifi-api{port.begin().headers['location']}"
    transactions = f"/nifi-api/data-transfer/input-ports/{port.port_id}/transactions"
    other = "/nifi-api/data-transfer/input-ports/some-other-port/transactions"
    client = port.client
    answers = {
        "another port": client.post(other),
        "another port of a transaction": client.put(f"{other}/x"),
        "a second body": client.post(f"{url}/flow-files", content=packet([])),
        "no packet": client.post(f"{empty}/flow-files", content=b""),
        "no code": client.delete(url),
        "an unknown code": client.delete(url, params={"responseCode": "13"}),
        "an unknown transaction": client.put(f"{transactions}/..%2F..%2Fetc"),
        "no version": client.post(transactions, headers={"x-nifi-site-to-site-protocol-version": ""}),
        "an old version": client.post(transactions, headers={"x-nifi-site-to-site-protocol-version": "0"}),
        "a later version": client.post(transactions, headers={"x-nifi-site-to-site-protocol-version": "7"}),
    }
    assert answers.pop("an unknown transaction").status_code == 404
    assert {name: result(answer)[:2] for name, answer in answers.items()} == {
        "another port": (404, 200),
        "another port of a transaction": (404, 200),
        "a second body": (400, 250),
        "no packet": (400, 250),
        "no code": (400, 250),
        "an unknown code": (400, 250),
        "no version": (400, 250),
        "an old version": (400, 250),
        "a later version": (201, 1),
    }
    assert {item.headers["x-nifi-site-to-site-protocol-version"] for item in answers.values()} == {"1"}
    assert result(port.confirm(url)) == (200, 13, 1)


def test_bytes_that_are_no_packets_end_the_transaction_with_words(port: Port) -> None:
    url = f"/nifi-api{port.begin().headers['location']}"
    answer = port.client.post(f"{url}/flow-files", content=b"\xff" * 100)
    assert result(answer)[:2] == (400, 250)
    assert "expected 0 to 25000 attributes" in answer.json()["message"]
    assert answer.headers["connection"] == "close"
    assert result(port.confirm(url))[:2] == (404, 250)


def test_too_many_transactions_are_refused_before_the_transfer(root: Path, clock: ManualClock) -> None:
    (root / "custody.toml").write_text("[site_to_site]\ntransactions_max = 2\n")
    with opened(root, clock) as port:
        assert [result(port.begin())[:2] for _ in range(3)] == [(201, 1), (201, 1), (503, 202)]
        [refused] = [item.value for item in port.door.metrics() if item.labels == (("outcome", "refused"),)]
        assert refused == 1


def test_while_nothing_can_be_stored_transactions_are_refused_early(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, data = port.staged(packet(payloads(1))), packet(payloads(1))

    def full(*_: object, **__: object) -> None:
        raise BackpressureError("too much waits to be rolled over")

    with monkeypatch.context() as patched:
        patched.setattr(port.intake, "take", full)
        assert result(port.confirm(url))[:2] == (503, 250)
    assert port.door.ready() == "too much waits to be rolled over"
    assert result(port.begin())[:2] == (503, 202)
    # The one that waits may be confirmed again, and shows that things are well.
    assert result(port.confirm(url)) == (200, 13, 1)
    assert port.door.ready() is None
    assert result(port.deliver(data)) == (200, 13, 1)


def test_a_token_in_the_address_opens_the_port(root: Path, clock: ManualClock) -> None:
    with opened(root, clock, Tokens([TOKEN, "another-token-of-it"])) as port:
        for url in ("/nifi-api/site-to-site", "/t/a-token-of-nobody/nifi-api/site-to-site"):
            answer = port.client.get(url)
            assert (answer.status_code, "Destination URL" in answer.text) == (403, True)
        controller = port.client.get(f"/t/{TOKEN}/nifi-api/site-to-site").json()["controller"]
        port_id = controller["inputPorts"][0]["id"]
        assert TOKEN not in json.dumps(controller)
        path = "/nifi-api/data-transfer/input-ports/{}/transactions"
        assert result(port.client.post(path.format(port_id)))[:2] == (201, 1)
    with opened(root, clock) as open_port:
        open_id = open_port.port_id
    with opened(root, clock, Tokens([TOKEN])) as port:
        assert result(port.client.post(path.format(open_id)))[:2] == (404, 200)
        assert result(port.client.post(path.format(port_id)))[:2] == (201, 1)
    with opened(root, clock, Tokens(["another-token-of-it"])) as port:
        assert result(port.client.post(path.format(port_id)))[:2] == (404, 200)


def test_settings_of_the_port_are_read_from_the_file(root: Path) -> None:
    (root / "custody.toml").write_text('[site_to_site]\nport_name = "events"\nraw_port = 0\n')
    options = load_settings(root).site_to_site
    assert (options.port_name, options.raw_port, options.transaction_seconds) == ("events", 0, 30)
