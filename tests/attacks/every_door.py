"""Every door of a repository, behind one function: what is delivered there, and what became of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from starlette.testclient import TestClient

from custody.capture import Format
from custody.clock import SystemClock
from custody.errors import CustodyError
from custody.landing import Interval
from custody.repository import Repository
from custody.repository.landing_ingest import ingest_landed, waiting_files
from custody.repository.spool_sender import sender_into
from custody.serving.application import application
from custody.serving.door import Services
from custody.serving.doors import open_doors
from tests.nifi_client import RawSender, SendError, attributes, compressed, packed

VERSION = {"x-nifi-site-to-site-protocol-version": "1"}
ARROW = "application/vnd.apache.arrow.stream"


@dataclass(frozen=True)
class Body:
    """What somebody delivers."""

    data: bytes
    format: Format = Format.NIFI
    media_type: str = "application/json"
    is_zipped: bool = False
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


class EveryDoor:
    """All doors of one repository, in this process.

    Each returns the status of its answer; of a door without HTTP 200 for what was taken, 400 for what was refused.
    """

    def __init__(self, root: Path, client: TestClient, raw_url: str) -> None:
        self.root = root
        self.repository = Repository.open(root)
        self._client = client
        self._raw_url = raw_url
        self._count = 0

    def events(self, body: Body) -> int:
        headers = {"content-type": body.media_type, **body.headers}
        if body.is_zipped:
            headers["content-encoding"] = "gzip"
        query = "" if body.media_type == ARROW else f"?format={body.format}"
        return self._client.post(f"/events{query}", content=body.data, headers=headers).status_code

    def openlineage(self, body: Body) -> int:
        headers = {"content-type": "application/json", **({"content-encoding": "gzip"} if body.is_zipped else {})}
        return self._client.post("/api/v1/lineage/batch", content=body.data, headers=headers).status_code

    def ngsi(self, body: Body) -> int:
        headers = {"content-type": "application/json; charset=utf-8", "fiware-service": "parks"}
        return self._client.post("/notify", content=body.data, headers=headers).status_code

    def site_to_site(self, body: Body, *, is_packed: bool = False) -> int:
        packet = packed(attributes(), body.data)
        found = self._client.get("/nifi-api/site-to-site").json()
        port = found["controller"]["inputPorts"][0]["id"]
        begun = self._client.post(f"/nifi-api/data-transfer/input-ports/{port}/transactions", headers=VERSION)
        url = f"/nifi-api{begun.headers['location']}"
        headers = {**VERSION, **({"x-nifi-site-to-site-use-compression": "true"} if is_packed else {})}
        sent = self._client.post(
            f"{url}/flow-files", content=compressed(packet) if is_packed else packet, headers=headers
        )
        if sent.status_code != 202:
            return sent.status_code
        return self._client.delete(url, params={"responseCode": 12}, headers=VERSION).status_code

    def site_to_site_packed(self, body: Body) -> int:
        return self.site_to_site(body, is_packed=True)

    def site_to_site_raw(self, body: Body) -> int:
        host, _, port = self._raw_url.rpartition(":")
        found = self._client.get("/nifi-api/site-to-site").json()["controller"]
        sender = RawSender(self._raw_url)
        sender.discovered = lambda: (host, int(port), found["inputPorts"][0]["id"])  # type: ignore[method-assign]
        try:
            sender.send([packed(attributes(), body.data)])
        except SendError:
            return 400
        finally:
            sender.close()
        return 200

    def spool(self, body: Body) -> int:
        with sender_into(self.repository, self.root / "a spool") as sender:
            return self._taken(lambda: sender.send(body.data))

    def file(self, body: Body) -> int:
        path = self._written(body, self.root / "files")
        with self.repository.ingest() as ingest:
            return self._taken(lambda: ingest.file(path, format=body.format))

    def landing(self, body: Body) -> int:
        path = self._written(body, self.root / "landing")
        # As a file that nobody writes to any more.
        os.utime(path, (path.stat().st_mtime - 3600,) * 2)
        day = datetime.now(UTC)
        interval = Interval(day.replace(year=day.year - 1), day)
        reports = ingest_landed(self.repository, waiting_files(self.repository, interval), None)
        return 400 if any(report.error for report in reports) else 200

    def upload(self, body: Body) -> int:
        return self._client.put(f"/contents/{'0' * 64}", content=body.data).status_code

    @property
    def doors(self) -> dict[str, Callable[[Body], int]]:
        """All of them, by names."""
        http = {"events": self.events, "openlineage": self.openlineage, "ngsi": self.ngsi, "upload": self.upload}
        nifi = {
            "site-to-site": self.site_to_site,
            "site-to-site-packed": self.site_to_site_packed,
            "site-to-site-raw": self.site_to_site_raw,
        }
        return {**http, **nifi, "spool": self.spool, "file": self.file, "landing": self.landing}

    def quarantine_files(self) -> list[Path]:
        folder = self.root / "quarantine"
        return sorted(folder.iterdir()) if folder.exists() else []

    def stored(self) -> list[Any]:
        """All events, those of the servers' writer first."""
        writers = [workspace.writer for workspace in self.repository.workspaces()]
        return [event for writer in writers for event in self.repository.events(0, 10_000_000, writer=writer)]

    def _written(self, body: Body, folder: Path) -> Path:
        folder.mkdir(exist_ok=True)
        self._count += 1
        path = folder / f"body-{self._count}.json"
        path.write_bytes(body.data)
        return path

    @staticmethod
    def _taken(deliver: Callable[[], object]) -> int:
        try:
            deliver()
        except CustodyError:
            return 400
        return 200


@contextmanager
def every_door(root: Path, configuration: str = "") -> Iterator[EveryDoor]:
    """Make a repository with all its doors open; what `custody.toml` says more stands in `configuration`."""
    Repository.create(root)
    text = '[repository]\nwriter_slots = 2\n[landing]\nfolder = "landing"\n[site_to_site]\nraw_port = 0\n'
    (root / "custody.toml").write_text(text + configuration)
    repository = Repository.open(root)
    services = Services(repository, repository.settings, SystemClock())
    with ExitStack() as stack:
        stack.callback(services.close)
        doors = stack.enter_context(open_doors(("events", "openlineage", "ngsi", "site-to-site"), services))
        app = application(repository.settings.serve, doors)
        client = stack.enter_context(TestClient(app, base_url="http://localhost", raise_server_exceptions=False))
        port = cast(Any, doors[-1]).raw_port
        yield EveryDoor(root, client, f"http://127.0.0.1:{port}".removeprefix("http://"))
