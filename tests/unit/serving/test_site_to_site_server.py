"""The input port as users start it: RAW beside HTTP, TLS with certificates, slow bodies, silent connections."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from custody.repository import Repository
from tests.behaviour.test_killed_site_to_site import Server, served
from tests.nifi_client import HttpSender, RawSender, ReportingTask, SendError, attributes, packed
from tests.unit.capture.sample_inputs import payloads

SETTINGS = "[site_to_site]\ntransaction_seconds = 2\nhead_seconds = 1.0\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("s") / "r"
    with served(root, settings=SETTINGS) as running:
        yield running


def packet(first: int, count: int) -> bytes:
    events = [{**item, "eventOrdinal": first + number} for number, item in enumerate(payloads(count))]
    return packed(attributes(), json.dumps(events).encode())


def stored(root: Path) -> set[int | None]:
    return {item.source_ordinal for item in Repository.open(root).events(0, 10_000)}


def test_several_transactions_go_over_one_raw_connection(server: Server) -> None:
    sender = RawSender(server.url)
    for number in range(3):
        sender.send([packet(1000 + 10 * number, 5), packet(1005 + 10 * number, 5)])
    kept = sender.socket
    sender.send([packet(1030, 10)])
    assert sender.socket is kept
    sender.close()
    assert set(range(1000, 1040)) <= stored(server.root)


@pytest.mark.parametrize("version", [5, 6, 7, 100])
def test_raw_versions_are_negotiated(server: Server, version: int) -> None:
    sender = RawSender(server.url)
    sender.version = version
    sender.send([packet(2000 + version, 1)])
    sender.close()
    assert 2000 + version in stored(server.root)


def test_a_raw_version_without_checksums_is_refused_in_words(server: Server) -> None:
    sender = RawSender(server.url)
    sender.version = 4
    with pytest.raises(SendError, match="255 expected version 5 or later"):
        sender.send([packet(0, 1)])


def test_raw_peers_are_named_as_they_were_asked_for_and_other_ports_refused(server: Server) -> None:
    sender = RawSender(server.url)
    sender.connect("127.0.0.1", server.raw_port, None)
    assert sender.peers() == [("127.0.0.1", server.raw_port, False, 0)]
    sender.say("SEND_FLOWFILES")
    assert sender.code()[0] == 250
    sender.close()
    with pytest.raises(SendError, match="handshake: 200"):
        sender.connect("127.0.0.1", server.raw_port, "another-port")


def test_a_raw_transaction_that_is_canceled_or_lost_stores_nothing(server: Server) -> None:
    for ending in (b"RC\x0f" + struct.pack(">H", 2) + b"no", b""):
        sender = RawSender(server.url)
        sender.send([packet(3000, 1)])
        assert sender.socket is not None
        sender.say("SEND_FLOWFILES")
        sender.socket.sendall(packet(3001, 5) + ending)
        if ending:
            sender.send([packet(3010, 1)])  # the conversation goes on
        sender.close()
    assert not {3001, 3002, 3003, 3004, 3005} & stored(server.root)
    assert {3000, 3010} <= stored(server.root)


def test_a_raw_greeting_has_one_deadline_however_slowly_it_comes(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.raw_port), timeout=30) as slow:
        begun = time.monotonic()
        with pytest.raises(OSError, match=r"reset|[Bb]roken pipe"):
            for byte in b"NiFi\xff\xff" + b"a" * 1000:  # the name of a resource, of 65,535 characters
                slow.sendall(bytes([byte]))
                time.sleep(0.2)
        assert 0.5 < time.monotonic() - begun < 20


def test_a_slow_body_lives_as_long_as_its_sender_gives_signs(server: Server) -> None:
    sender = HttpSender(server.url, pause=5.0)
    sender.send([packet(4000, 3)])
    assert sender.extended >= 3
    assert {4000, 4001, 4002} <= stored(server.root)


def certificate(folder: Path, name: str) -> None:
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-out", str(folder / f"{name}.pem"), "-keyout", str(folder / f"{name}.key")]
    subprocess.run(command, check=True, capture_output=True)


def test_tls_with_certificates_over_http_and_raw(tmp_path: Path) -> None:
    for name in ("server", "client", "stranger"):
        certificate(tmp_path, name)
    settings = "[site_to_site]\n" + "".join(
        f'{key} = "{tmp_path / file}"\n'
        for key, file in (("tls_certificate", "server.pem"), ("tls_key", "server.key"), ("tls_client_ca", "client.pem"))
    )

    def context(name: str) -> ssl.SSLContext:
        trusting = ssl.create_default_context(cafile=str(tmp_path / "server.pem"))
        trusting.load_cert_chain(tmp_path / f"{name}.pem", tmp_path / f"{name}.key")
        return trusting

    with served(tmp_path / "r", settings=settings) as server:
        url = server.url.replace("http:", "https:")
        sender = HttpSender(url, is_compressed=True, tls=context("client"))
        port_id, *_ = sender.discover()
        assert ReportingTask(payloads(5), sender, batch=2).trigger()
        raw = RawSender(url, is_compressed=True)
        raw.tls = context("client")
        raw.connect("127.0.0.1", server.raw_port, port_id, is_secure=True)
        raw.say("NEGOTIATE_FLOWFILE_CODEC")
        raw.negotiate("StandardFlowFileCodec", 1)
        raw.send([packet(5000, 4)])
        raw.close()
        with pytest.raises(SendError):
            HttpSender(url, tls=context("stranger")).send([packet(6000, 1)])
        raw.tls = context("stranger")
        with pytest.raises((OSError, EOFError)):
            raw.connect("127.0.0.1", server.raw_port, port_id, is_secure=True)
        raw.close()
        with pytest.raises(SendError):
            HttpSender(server.url).send([packet(6000, 1)])
        assert len(stored(tmp_path / "r")) == 9
