"""One server with all doors that need no tables: NiFi, OpenLineage, events and questions share a writer."""

from __future__ import annotations

import json
from pathlib import Path

from fastapi.testclient import TestClient

from custody.clock import SystemClock
from custody.repository import Repository
from custody.serving.access import Scope, Tokens, add_token
from custody.serving.application import Access, application
from custody.serving.door import Services
from custody.serving.doors import open_doors
from custody.vfs import PosixFileSystem
from tests.nifi_client import attributes, packed
from tests.unit.capture.sample_inputs import payloads

VERSION = {"x-nifi-site-to-site-protocol-version": "1"}


def test_what_nifi_sends_is_found_by_the_api_of_the_same_server(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    Repository.create(root)
    token = add_token(PosixFileSystem(), root / "tokens", "nifi", frozenset({Scope.APPEND}), "")
    reader = add_token(PosixFileSystem(), root / "tokens", "reader", frozenset({Scope.READ}), "")
    (root / "custody.toml").write_text('[serve]\ntoken_file = "tokens"\n')
    repository = Repository.open(root)
    services = Services(repository, repository.settings, SystemClock())
    content = json.dumps(payloads(20)).encode()
    try:
        with open_doors(("api", "openlineage", "events", "site-to-site"), services) as doors:
            access = Access(Tokens.read(root / "tokens"))
            app = application(repository.settings.serve, doors, access)
            with TestClient(app, base_url="http://custody.example") as client:
                assert client.get(f"/t/{reader}/nifi-api/site-to-site").status_code == 403
                found = client.get(f"/t/{token}/nifi-api/site-to-site").json()
                port = found["controller"]["inputPorts"][0]["id"]
                transactions = f"/nifi-api/data-transfer/input-ports/{port}/transactions"
                url = f"/nifi-api{client.post(transactions, headers=VERSION).headers['location']}"
                sent = client.post(f"{url}/flow-files", content=packed(attributes(), content), headers=VERSION)
                assert sent.status_code == 202, sent.text
                ended = client.delete(url, params={"responseCode": 12}, headers=VERSION)
                assert ended.status_code == 200, ended.text
                headers = {"Authorization": f"Bearer {reader}"}
                total = client.get("/api/v1/events", headers=headers).json()["total"]
                assert total == repository.search("").total > 0
                numbers = client.get("/metrics", headers=headers).text
                assert f'custody_site_to_site_events_total{{outcome="stored"}} {float(total)}' in numbers
                assert client.get("/readyz").json()["doors"]["site-to-site"] == "ready"
    finally:
        services.close()
