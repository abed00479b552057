"""Producers that use each other's keys and numbers: none keeps the events of another one out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from custody.clock import SystemClock
from custody.repository import Repository
from custody.serving.access import Scope, Tokens, add_token, remove_token
from custody.serving.application import Access, application
from custody.serving.door import Services
from custody.serving.doors import open_doors
from custody.vfs import PosixFileSystem
from tests.nifi_client import attributes, packed
from tests.unit.capture.sample_inputs import own_event, payloads
from tests.unit.serving.events_server import arrow, as_table, ndjson

BATCH = {"content-type": "application/x-ndjson", "idempotency-key": "batch-1"}
VERSION = {"x-nifi-site-to-site-protocol-version": "1"}


class Delivering:
    """A server, and its tokens by their names."""

    def __init__(self, client: TestClient, root: Path, tokens: dict[str, str]) -> None:
        self._client = client
        self.root = root
        self.tokens = tokens

    def renew(self, name: str) -> None:
        """Give a name a token, in place of the one that it has."""
        fs, path = PosixFileSystem(), self.root / "tokens"
        remove_token(fs, path, name)
        self.tokens[name] = add_token(fs, path, name, frozenset({Scope.APPEND}), "")

    def post(self, name: str, body: bytes, headers: Mapping[str, str] = BATCH, query: str = "") -> Any:
        token = {"authorization": f"Bearer {self.tokens[name]}"}
        answer = self._client.post(f"/events{query}", content=body, headers={**headers, **token})
        assert answer.status_code == 200, answer.text
        document = answer.json()
        return document["stored"], document["repeated"], document["rejected"]

    def send(self, name: str, events: Sequence[Mapping[str, object]]) -> None:
        """Deliver events by Site-to-Site."""
        found = self._client.get(f"/t/{self.tokens[name]}/nifi-api/site-to-site").json()
        port = found["controller"]["inputPorts"][0]["id"]
        begun = self._client.post(f"/nifi-api/data-transfer/input-ports/{port}/transactions", headers=VERSION)
        url = f"/nifi-api{begun.headers['location']}"
        body = packed(attributes(), json.dumps(events).encode())
        assert self._client.post(f"{url}/flow-files", content=body, headers=VERSION).status_code == 202
        ended = self._client.delete(url, params={"responseCode": 12}, headers=VERSION)
        assert ended.status_code == 200, ended.text

    def stored(self) -> list[Any]:
        return list(Repository.open(self.root).events(0, 100_000))


@contextmanager
def delivering(root: Path) -> Iterator[Delivering]:
    if not root.exists():
        Repository.create(root)
    (root / "tokens").write_text("")
    names, append = ("shop", "other", "nifi"), frozenset({Scope.APPEND})
    made = {name: add_token(PosixFileSystem(), root / "tokens", name, append, "") for name in names}
    (root / "custody.toml").write_text('[serve]\ntoken_file = "tokens"\n')
    repository = Repository.open(root)
    services = Services(repository, repository.settings, SystemClock())
    try:
        # A clock that leaps: a changed file of tokens is read at once.
        leaps = iter(range(0, 1 << 30, 10))
        access = Access(Tokens.read(root / "tokens", now=lambda: float(next(leaps))))
        with open_doors(("events", "site-to-site"), services) as doors:
            app = application(repository.settings.serve, doors, access)
            with TestClient(app, base_url="http://custody.example", raise_server_exceptions=False) as client:
                yield Delivering(client, root, made)
    finally:
        services.close()


def unnumbered(first: int, count: int, **changes: object) -> list[dict[str, object]]:
    return [own_event(first + number, **changes) for number in range(count)]


def numbered(first: int, count: int, **changes: object) -> list[dict[str, object]]:
    return [own_event(first + number, source_node="shop", source_ordinal=number, **changes) for number in range(count)]


def test_the_key_of_a_batch_is_that_of_its_producer_alone(tmp_path: Path) -> None:
    with delivering(tmp_path / "repository") as at:
        # The same FlowFiles at the same times, so that nothing but the key and what they say differs.
        ours, theirs = (ndjson(unnumbered(0, 3, details=name)) for name in ("ours", "theirs"))
        assert at.post("other", theirs) == (3, 0, 0)
        assert at.post("shop", ours) == (3, 0, 0)
        assert at.post("shop", ours) == (0, 3, 0)
        assert at.post("other", theirs) == (0, 3, 0)
        told = sorted((one.delivered_by, one.details) for one in at.stored())
        assert told == [("other", "theirs")] * 3 + [("shop", "ours")] * 3


def test_a_hostile_producer_occupies_no_numbers_of_another_one(tmp_path: Path) -> None:
    plain = {"content-type": "application/x-ndjson"}
    with delivering(tmp_path / "repository") as at:
        assert at.post("other", ndjson(numbered(0, 100, details="junk")), plain) == (100, 0, 0)
        ours = ndjson(numbered(0, 100, details="ours"))
        assert at.post("shop", ours, plain) == (100, 0, 0)
        assert at.post("shop", ours, plain) == (0, 100, 0)
        # What one producer says twice in two ways is refused as before.
        assert at.post("shop", ndjson(numbered(0, 2, details="changed")), plain) == (0, 0, 2)
        assert at.post("other", ndjson(numbered(0, 2, details="ours")), plain) == (0, 2, 0), "an equal copy is no other"
        told = [one.details for one in at.stored() if one.delivered_by == "shop"]
        assert told == ["ours"] * 100


def test_columns_and_rows_have_the_same_numbers_and_the_same_producers(tmp_path: Path) -> None:
    events = unnumbered(0, 200, details="ours")
    columns = {"content-type": "application/vnd.apache.arrow.stream", "idempotency-key": "batch-1"}
    with delivering(tmp_path / "repository") as at:
        body = arrow(as_table(events))
        assert at.post("other", body, columns) == (200, 0, 0)
        assert at.post("shop", ndjson(unnumbered(0, 200, details="theirs"))) == (200, 0, 0)
        assert at.post("other", body, columns) == (0, 200, 0)
        assert at.post("other", ndjson(events)) == (0, 200, 0)
        told = {one.delivered_by for one in at.stored()}
        assert told == {"other", "shop"}


def test_who_delivers_is_told_by_the_token_and_by_nothing_in_a_body(tmp_path: Path) -> None:
    plain = {"content-type": "application/x-ndjson"}
    with delivering(tmp_path / "repository") as at:
        assert at.post("other", ndjson(numbered(0, 1, delivered_by="shop")), plain) == (1, 0, 0)
        assert at.post("other", ndjson(numbered(500, 100, delivered_by="shop")), plain) == (100, 0, 0)
        table = as_table(numbered(400, 100, delivered_by="shop"))
        at.post("other", arrow(table), {"content-type": "application/vnd.apache.arrow.stream"})
        assert {one.delivered_by for one in at.stored()} == {"other"}


def test_a_renewed_token_goes_on_with_its_numbers(tmp_path: Path) -> None:
    with delivering(tmp_path / "repository") as at:
        body, former = ndjson(unnumbered(0, 3)), at.tokens["shop"]
        assert at.post("shop", body) == (3, 0, 0)
        at.renew("shop")
        assert at.tokens["shop"] != former
        assert at.post("shop", body) == (0, 3, 0)
        assert at.post("shop", ndjson(unnumbered(0, 3, details="changed"))) == (0, 0, 3)


def test_a_delivery_by_two_ways_is_one(tmp_path: Path) -> None:
    events = payloads(5)
    with delivering(tmp_path / "repository") as at:
        at.send("nifi", events)
        assert {one.delivered_by for one in at.stored()} == {"nifi"}
        headers = {"content-type": "application/json"}
        for name in ("nifi", "other"):
            assert at.post(name, json.dumps(events).encode(), headers, "?format=nifi") == (0, 5, 0)
        at.send("other", events)
        file = tmp_path / "events.json"
        file.write_text(json.dumps(events))
    repository = Repository.open(tmp_path / "repository")
    with repository.ingest() as ingest:
        assert ingest.file(file).repeated == 5
    assert len(list(repository.events(0, 100))) == 5


@pytest.mark.parametrize("is_first", [True, False])
def test_numbers_that_a_token_took_keep_no_file_of_this_machine_out(tmp_path: Path, *, is_first: bool) -> None:
    root, file = tmp_path / "repository", tmp_path / "events.ndjson"
    file.write_bytes(ndjson(numbered(0, 5, details="ours")))

    def deliver() -> None:
        with delivering(root) as at:
            answer = at.post("other", ndjson(numbered(0, 5, details="junk")), {"content-type": "application/x-ndjson"})
            assert answer == (5, 0, 0)

    if is_first:
        deliver()
    else:
        Repository.create(root)
    with Repository.open(root).ingest() as ingest:
        assert ingest.file(file).stored == 5
        assert ingest.file(file).repeated == 5
    if not is_first:
        deliver()
    told = sorted((one.delivered_by or "", one.details) for one in Repository.open(root).events(0, 100))
    assert told == [("", "ours")] * 5 + [("other", "junk")] * 5
