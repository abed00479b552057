"""Requests whose end has two meanings: nothing that follows them on a connection is read as a request."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from custody.repository import Repository
from tests.unit.serving.serve_process import served

TWO_ENDS = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"
SMUGGLED = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    "path", ["/api/v1/lineage", "/api/v1/sql", "/nifi-api/site-to-site", "/ui/search.html", "/none"]
)
def test_a_connection_ends_with_a_request_whose_body_has_two_lengths(server: str, path: str) -> None:
    place = urlsplit(server)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{TWO_ENDS}\r\n"
    with closing(socket.create_connection((place.hostname or "", place.port or 0), 30)) as connection:
        connection.settimeout(10)
        connection.sendall(head.encode() + b"0\r\n\r\n" + SMUGGLED)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 400"), answer[:200]
    assert answer.count(b"HTTP/1.1 ") == 1, "what followed was taken for a request"
    assert b"connection: close" in answer.lower()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root: Path = tmp_path_factory.mktemp("smuggling") / "repository"
    Repository.create(root)
    doors = [word for door in ("api", "openlineage", "site-to-site", "pages") for word in ("--door", door)]
    with served(root, "--quiet", *doors, CUSTODY__SERVE__IDLE_SECONDS="3600") as at:
        yield at.url
