"""The sender over a real server: what it takes, refuses, and how long the client tries."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.client import HttpSender, Spool, SpoolDelivery
from custody.errors import BackpressureError, ConfigurationError, InvalidInputError, StorageError
from custody.repository import Repository
from custody.serving.access import Scope
from tests.unit.capture.sample_inputs import own_event
from tests.unit.serving.serve_process import Served, served, token


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("events") / "repository"
    Repository.create(root)
    return root


@pytest.fixture(scope="module")
def secret(root: Path) -> str:
    return token(root, "shop", Scope.APPEND)["authorization"].removeprefix("Bearer ")


@pytest.fixture(scope="module")
def at(root: Path, secret: str) -> Iterator[Served]:
    assert secret
    limits = {"CUSTODY__SERVE__TOKEN_FILE": "tokens", "CUSTODY__CAPTURE__BODY_BYTES_MAX": "4096"}
    with served(root, "--door", "events", **limits) as found:
        yield found


def sender(at: Served, secret: str | None) -> HttpSender:
    return HttpSender(at.url, secret, patience_seconds=0)


def test_a_spool_is_delivered_by_the_command_with_a_content_that_came_before(
    at: Served, root: Path, secret: str, tmp_path: Path
) -> None:
    with sender(at, secret) as to:
        digest = to.put_content(b"a,b\n")
    assert digest == hashlib.sha256(b"a,b\n").hexdigest()
    with Spool(tmp_path / "spool", "till") as spool:
        spool.append([own_event(number) for number in range(40)])
        spool.append([own_event(99, content_sha256=digest), own_event(98, file_size=-1)])
        source = spool.source
    (tmp_path / "token").write_text(secret)
    arguments = ["spool", "status", str(tmp_path / "spool"), "--json"]
    [state] = json.loads(CliRunner().invoke(cli, arguments).stdout)
    assert (state["source"], state["waiting_events"]) == (source, 42)
    arguments = ["spool", "deliver", str(tmp_path / "spool"), "--to", at.url, "--json", "--patience", "5"]
    refused = CliRunner().invoke(cli, arguments)
    assert (refused.exit_code, "answers 401" in str(refused.exception) + refused.stderr) == (11, True)
    done = CliRunner().invoke(cli, [*arguments, "--token-file", str(tmp_path / "token")])
    # 42 events are more than the server takes at once: the batch is halved until they fit.
    assert done.exit_code == 1, done.output
    [summary] = json.loads(done.stdout)
    assert (summary["stored"], summary["rejected"], summary["refused"]) == (41, 1, 0)
    events = [event for event in Repository.open(root).events(0, 1000) if event.source_node == source]
    assert [event.source_ordinal for event in events] == list(range(41))
    assert Repository.open(root).content(events[-1]).read() == b"a,b\n"


def test_a_spool_goes_straight_into_a_repository_of_this_machine(tmp_path: Path) -> None:
    root, folder = tmp_path / "repository", tmp_path / "spool"
    Repository.create(root)
    with Spool(folder) as spool:
        spool.append([own_event(1), own_event(2), own_event(3, event_time="noon")])
    done = CliRunner().invoke(cli, ["-r", str(root), "spool", "deliver", str(folder)])
    assert done.exit_code == 1
    assert [event.file_size for event in Repository.open(root).events(0, 10)] == [11, 12]
    assert len(list(Repository.open(root).quarantine.entries())) == 1


def test_what_the_server_never_takes_and_what_is_wrong_with_every_event_are_told_apart(at: Served, secret: str) -> None:
    long = json.dumps(own_event(1, details="x" * 9000)).encode() + b"\n"
    with pytest.raises(InvalidInputError, match="413"), sender(at, secret) as to:
        to.send(long)
    with pytest.raises(ConfigurationError, match="401"), sender(at, "wrong-token-of-somebody") as to:
        to.send(b"{}\n")
    with (
        pytest.raises(ConfigurationError, match="404"),
        HttpSender(f"{at.url}/elsewhere", secret, patience_seconds=0) as to,
    ):
        to.send(b"{}\n")
    for url in ("ftp://host", "http://user:secret@host", "host:80"):
        with pytest.raises(ConfigurationError) as caught:
            HttpSender(url)
        assert "secret" not in str(caught.value)


class _Busy(BaseHTTPRequestHandler):
    statuses: ClassVar[list[int]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        status = self.statuses.pop(0)
        body = b'{"stored": 1}' if status == 200 else b"<html>a proxy</html>"
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if status == 200 else "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Retry-After", "7")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write nothing."""


def test_a_busy_server_is_tried_again_when_it_says_and_an_absent_one_for_as_long_as_patience_lasts() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Busy) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        waits: list[float] = []
        _Busy.statuses = [503, 502, 200]
        with HttpSender(url, sleep=waits.append) as to:
            assert to.send(b"{}\n").stored == 1
        assert waits == [7, 7]
        _Busy.statuses = [503]
        with pytest.raises(BackpressureError, match="it answers 503"), HttpSender(url, patience_seconds=0) as to:
            to.send(b"{}\n")
        server.shutdown()
    with pytest.raises(StorageError, match="cannot be reached"):
        HttpSender(url, patience_seconds=0.05, sleep=waits.append).send(b"{}\n")


def test_a_spool_that_cannot_be_delivered_keeps_everything(tmp_path: Path) -> None:
    with Spool(tmp_path) as spool:
        spool.append([own_event(1)])
    with pytest.raises(StorageError):
        SpoolDelivery(tmp_path, HttpSender("http://127.0.0.1:9", patience_seconds=0)).deliver()
    root = tmp_path / "repository"
    Repository.create(root)
    assert CliRunner().invoke(cli, ["-r", str(root), "spool", "deliver", str(tmp_path)]).exit_code == 0
    assert len(list(Repository.open(root).events(0, 10))) == 1
