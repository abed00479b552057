"""One limit for an event and one for a body, at every door; an ordinary client that sends more is shown the 413."""

from __future__ import annotations

import gzip
import http.client
import json
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from custody.capture import Format
from custody.repository import Repository
from tests.attacks.every_door import Body, EveryDoor, every_door
from tests.unit.capture.sample_inputs import entity, notification, own_event, payloads, run_event
from tests.unit.serving.serve_process import Served, served

EVENT_MAX, BODY_MAX = 100_000, 300_000
LIMITS = f"[capture]\nevent_bytes_max = {EVENT_MAX}\nbody_bytes_max = {BODY_MAX}\nbody_events_max = 500\n"
LIMITS += f"[ngsi]\nnotification_bytes_max = {EVENT_MAX}\n"


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EveryDoor]:
    with every_door(tmp_path_factory.mktemp("sizes") / "r", LIMITS) as doors:
        yield doors


def wide(size: int, door: str) -> bytes:
    """One event of about so many bytes, as a door takes it."""
    text = "x" * (size - 3000)
    if door == "ngsi":
        return json.dumps(notification({**entity(size), "wood": {"type": "Text", "value": text}})).encode()
    if door == "spool":
        return json.dumps(own_event(size, details=text)).encode() + b"\n"
    if door == "openlineage":
        return json.dumps(
            run_event(number=size, job={"namespace": "n", "name": "j", "facets": {"x": {"t": text}}})
        ).encode()
    return json.dumps([{**payloads(1)[0], "eventOrdinal": size, "eventId": str(size), "details": text}]).encode()


DOORS = ("events", "openlineage", "ngsi", "spool", "file", "landing", "site-to-site", "site-to-site-raw")


@pytest.mark.parametrize("door", DOORS)
def test_an_event_below_the_limit_is_stored_by_every_door_and_one_above_by_none(at: EveryDoor, door: str) -> None:
    before = len(at.stored())
    assert at.doors[door](Body(wide(EVENT_MAX - 2000 - DOORS.index(door), door))) in (200, 201)
    assert len(at.stored()) == before + 1
    at.doors[door](Body(wide(EVENT_MAX + 10_000, door)))
    assert len(at.stored()) == before + 1


def test_the_same_wide_event_is_stored_by_file_and_by_request_with_the_settings_as_they_are(tmp_path: Path) -> None:
    with every_door(tmp_path / "r") as at:
        for number, door in enumerate(DOORS, 1):
            assert at.doors[door](Body(wide((12 << 20) + number, door))) in (200, 201), door
            assert len(at.stored()) == number, door


@pytest.mark.parametrize("is_zipped", [False, True])
@pytest.mark.parametrize("door", ["events", "openlineage"])
def test_a_body_beyond_the_limit_is_answered_413_and_leaves_nothing(
    at: EveryDoor, door: str, *, is_zipped: bool
) -> None:
    data = b"[" + b",".join([wide(40_000, door).strip(b"[]\n")] * 10) + b"]"
    files = at.quarantine_files()
    assert at.doors[door](Body(gzip.compress(data) if is_zipped else data, is_zipped=is_zipped)) == 413
    assert at.quarantine_files() == files


@pytest.mark.parametrize("door", ["events", "openlineage"])
@pytest.mark.parametrize("text", [b"[" + b"1," * 600 + b"1]", b"{}\n" * 600])
def test_a_body_of_more_events_than_the_limit_is_answered_413(at: EveryDoor, door: str, text: bytes) -> None:
    files = at.quarantine_files()
    assert at.doors[door](Body(text, Format.CUSTODY)) == 413
    assert at.quarantine_files() == files


def test_one_event_that_is_too_large_is_answered_413_and_among_others_it_is_kept(at: EveryDoor) -> None:
    large = json.loads(wide(EVENT_MAX + 10_000, "events"))
    assert at.events(Body(json.dumps(large).encode())) == 413
    assert at.events(Body(json.dumps([*large, {**payloads(1)[0], "eventOrdinal": 77}]).encode())) == 200
    assert "event-too-large" in {entry.code for entry in at.repository.quarantine.entries()}


@pytest.mark.parametrize("door", ["site-to-site", "site-to-site-packed", "site-to-site-raw"])
def test_a_transaction_beyond_the_limit_is_refused(at: EveryDoor, door: str) -> None:
    before = len(at.stored())
    data = json.dumps([{**payloads(1)[0], "eventOrdinal": number, "details": "x" * 40_000} for number in range(10)])
    assert at.doors[door](Body(data.encode())) == (400 if door.endswith("raw") else 413)
    assert len(at.stored()) == before


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("served") / "r"
    Repository.create(root)
    (root / "custody.toml").write_text(LIMITS)
    with served(root, "--door", "events", "--door", "openlineage", "--door", "ngsi") as at:
        yield at


LARGE = b"[" + b" " * (40 << 20) + b"]"
PATHS = ("/events", "/api/v1/lineage", "/notify")


def by_curl(url: str, *arguments: str) -> int:
    if shutil.which("curl") is None:
        pytest.skip("no curl here")
    done = subprocess.run(
        [
            "curl",
            "-sS",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "-H",
            "content-type: application/json",
            *arguments,
            url,
        ],
        input=LARGE,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def by_urllib(url: str) -> int:
    request = urllib.request.Request(url, LARGE, {"content-type": "application/json"})  # noqa: S310 - our own server
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def by_chunks(url: str) -> int:
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=120)
    pieces = (LARGE[start : start + 65_536] for start in range(0, len(LARGE), 65_536))
    headers = {"content-type": "application/json", "transfer-encoding": "chunked"}
    with closing(connection):
        connection.request("POST", place.path, pieces, headers, encode_chunked=True)
        return connection.getresponse().status


def by_httpx(url: str) -> int:
    return httpx.post(url, content=LARGE, headers={"content-type": "application/json"}, timeout=120).status_code


CLIENTS: dict[str, Callable[[str], int]] = {
    "curl": lambda url: by_curl(url, "--data-binary", "@-"),
    "curl that waits for no 100": lambda url: by_curl(url, "-H", "Expect:", "--data-binary", "@-"),
    "curl in chunks": lambda url: by_curl(url, "-H", "Transfer-Encoding: chunked", "--data-binary", "@-"),
    "urllib": by_urllib,
    "chunks": by_chunks,
    "httpx": by_httpx,
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("client", CLIENTS)
def test_an_ordinary_client_is_shown_the_413(server: Served, client: str, path: str) -> None:
    assert CLIENTS[client](f"{server.url}{path}") == 413
