"""Contents that somebody exchanged together with their checksums: an answer with other bytes says so."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from zlib import crc32

import pytest
from starlette.testclient import TestClient

from custody.clock import SystemClock
from custody.flow.content.claim_file import ContentRecord, read_header, record_at
from custody.repository import Repository
from custody.serving.api_door import PREFIX, ApiDoor
from custody.serving.application import Access, application
from custody.serving.door import Services
from tests.support import event

OURS, THEIRS = b"paid: 100 EUR to us", b"paid: 900 EUR to me"


def exchange(root: Path, content: bytes, by: bytes) -> None:
    """Write another content of the same length over one, with the record and the checksums that fit it."""
    [path] = [path for path in (root / "store").rglob("*") if path.is_file() and content in path.read_bytes()]
    data = path.read_bytes()
    header, _ = read_header(memoryview(data), path)
    offset = data.index(content)
    former = record_at(memoryview(data), header.key, offset, len(content))
    assert former is not None
    assert len(by) == len(content)
    record = ContentRecord(offset, len(by), sha256(by).digest(), (crc32(by),))
    frames = [each.encode(header.key) for each in (former, record)]
    assert len(frames[0]) == len(frames[1])
    path.write_bytes(data.replace(content, by, 1).replace(frames[0], frames[1], 1))


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_exchanged_content_of_a_local_producer_is_answered_with_a_notice(tmp_path: Path, method: str) -> None:
    root = tmp_path / "repository"
    repository = Repository.create(root)
    repository.append_with_content([event(0)], OURS)
    door = ApiDoor(Services(repository, repository.settings, SystemClock()))
    app = application(repository.settings.serve, [door], Access())
    client = TestClient(app, base_url=f"http://localhost{PREFIX}/")
    before = client.request(method, "events/main/0/content")
    assert before.status_code == 200
    assert "custody-notices" not in before.headers
    exchange(root, OURS, THEIRS)
    after = client.request(method, "events/main/0/content")
    assert after.status_code == 200
    assert after.headers["etag"] == f'"{sha256(THEIRS).hexdigest()}"'
    [notice] = json.loads(after.headers["custody-notices"])
    assert sha256(OURS).hexdigest() in notice
    assert sha256(THEIRS).hexdigest() in notice
    assert str(tmp_path) not in notice
    door.close()
