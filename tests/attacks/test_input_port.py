"""The input port of Site-to-Site: who reads the file of tokens, or a log, delivers nothing by what stands there."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from custody.repository import Repository
from custody.serving.access import Scope
from tests.behaviour.test_killed_site_to_site import served as input_port_alone
from tests.nifi_client import attributes, packed
from tests.unit.capture.sample_inputs import payloads
from tests.unit.serving.serve_process import Served, served, token

VERSION = {"x-nifi-site-to-site-protocol-version": "1"}
NAMESPACE = uuid.UUID("5b1f1f5e-5a49-5f6e-9d5c-0f1f3a9f6d0e")
"""Of the ids of ports, as the source of custody has it for everybody."""
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@contextmanager
def input_port(root: Path) -> Iterator[tuple[Served, str]]:
    """A server that takes provenance of who has a token, and the token."""
    Repository.create(root)
    made = token(root, "nifi", Scope.APPEND)["authorization"].partition(" ")[2]
    (root / "custody.toml").write_text('[serve]\ntoken_file = "tokens"\n')
    with served(root, "--door", "site-to-site") as at:
        yield at, made


def delivered(at: Served, port: str) -> int:
    """Deliver events to the port with an id; return the status of the first answer that is none of success."""
    transactions = f"{at.url}/nifi-api/data-transfer/input-ports/{port}/transactions"
    begun = httpx.post(transactions, headers=VERSION, timeout=60)
    if begun.status_code != 201:
        return begun.status_code
    url = f"{at.url}/nifi-api{begun.headers['location']}"
    body = packed(attributes(), json.dumps(payloads(2)).encode())
    assert httpx.post(f"{url}/flow-files", content=body, headers=VERSION, timeout=60).status_code == 202
    return httpx.delete(url, params={"responseCode": 12}, headers=VERSION, timeout=60).status_code


def ports_of(digest: bytes) -> Iterator[str]:
    """What a stranger who reads the digest of a token makes of it."""
    yield digest.hex()
    yield str(uuid.UUID(bytes=digest[:16]))
    yield str(uuid.uuid5(NAMESPACE, digest.hex()))
    for mixed in (digest + b"provenance", digest.hex().encode() + b"provenance", b"provenance" + digest, digest):
        yield str(uuid.uuid5(NAMESPACE, hashlib.sha256(mixed).hexdigest()))


def test_neither_the_file_of_tokens_nor_the_log_tells_how_to_deliver(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    with input_port(root) as (at, made):
        found = at.get(f"/t/{made}/nifi-api/site-to-site").json()
        port = found["controller"]["inputPorts"][0]["id"]
        assert delivered(at, port) == 200
        [digest] = re.findall(r"sha256:([0-9a-f]{64})", (root / "tokens").read_text())
        guessed = [*ports_of(bytes.fromhex(digest)), *UUID.findall(at.log())]
        assert {delivered(at, each) for each in guessed} == {404}
        assert made not in at.log()
        assert port not in at.log()
    assert Repository.open(root).search("", limit=1).total == 2


def test_the_port_of_a_token_stays_the_same_over_a_restart_and_goes_with_the_token(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    ports = []
    with input_port(root) as (at, made):
        ports.append(at.get(f"/t/{made}/nifi-api/site-to-site").json()["controller"]["inputPorts"][0]["id"])
    token(root, "other", Scope.APPEND)
    with served(root, "--door", "site-to-site") as at:
        ports.append(at.get(f"/t/{made}/nifi-api/site-to-site").json()["controller"]["inputPorts"][0]["id"])
        assert delivered(at, ports[1]) == 200
    assert ports[0] == ports[1]
    text = (root / "tokens").read_text()
    (root / "tokens").write_text("".join(line for line in text.splitlines(keepends=True) if " nifi " not in line))
    with served(root, "--door", "site-to-site") as at:
        assert at.get(f"/t/{made}/nifi-api/site-to-site").status_code == 403
        assert delivered(at, ports[0]) == 404


def test_the_port_is_no_token(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    with input_port(root) as (at, made):
        port = at.get(f"/t/{made}/nifi-api/site-to-site").json()["controller"]["inputPorts"][0]["id"]
        assert at.get(f"/t/{port}/nifi-api/site-to-site").status_code == 403
        for headers in ({"authorization": f"Bearer {port}"}, {"x-auth-token": port}):
            assert at.get("/metrics", headers).status_code == 401


@pytest.mark.parametrize("host", ["evil.example", "evil.example:5070"])
def test_the_port_alone_answers_no_name_that_was_led_to_it(tmp_path: Path, host: str) -> None:
    with input_port_alone(tmp_path / "repository") as server:
        url = f"http://127.0.0.1:{server.port}/nifi-api/site-to-site"
        assert httpx.get(url, headers={"host": host}, timeout=60).status_code == 421
        assert httpx.get(url, timeout=60).status_code == 200
