"""Requests that nobody means, as a server hands them to an application, and the application's answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from hypothesis import strategies as st
from starlette.types import ASGIApp, Message

ODD = (
    *(
        "../../etc",
        "..",
        ".",
        "%2f",
        "%2e%2e%2f",
        "%00",
        "%ff%fe",
        "%0d%0a",
        "%F0%9F%8C%B3",
        "%",
        "%zz",
        "a%20b",
        "~",
        "*",
    ),
    *(
        "-1",
        "0",
        "00",
        "9" * 19,
        "9" * 40,
        "9223372036854775807",
        "9223372036854775808",
        "1e9",
        "0x10",
        "+1",
        " 1",
        "%D9%A3",
    ),
    *(
        "null",
        "NaN",
        "",
        "main",
        "MAIN",
        "x" * 300,
        "swh:1:cnt:",
        "swh:1:cnt:" + "z" * 40,
        "swh:1:rev:" + "e" * 40,
        ";origin=x",
    ),
)
"""What stands where an id, a name or a number is expected; as it stands in a URL."""
HEADER_VALUES = st.text(st.characters(max_codepoint=255, exclude_categories=["Cc"]), max_size=40) | st.sampled_from(
    [
        "",
        "[",
        "[::1",
        "::",
        "a:b:c",
        "x@y",
        "http://x/",
        "/a,/b",
        "a" * 400,
        "é" * 30,
        "chunked",
        "text/plain",
        "-1",
        "0",
    ]
)


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


@dataclass(frozen=True)
class Answered:
    """Its answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> str:
        return str(json.loads(self.body)["error"])


def targets(*forms: str) -> st.SearchStrategy[str]:
    """Paths of these forms whose `{}` are replaced, mostly by something odd, with a query or none."""
    word = st.sampled_from(ODD) | st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="?#"))
    names = st.sampled_from(["writer", "limit", "x", "", "writer[]"])
    query = st.lists(st.tuples(names, word).map("=".join), max_size=3).map("&".join)
    path = st.sampled_from(forms).flatmap(
        lambda form: st.lists(word, min_size=2, max_size=2).map(lambda w: form.format(*w))
    )
    return st.tuples(path, query).map(lambda pair: "?".join(filter(None, pair)))


async def asked(app: ASGIApp, request: Asked) -> Answered:
    """Hand a request to an application as uvicorn does, and wait for the whole answer."""
    raw, _, query = request.target.partition("?")
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "server": ("127.0.0.1", 5050),
        "client": ("127.0.0.1", 40_000),
        "scheme": "http",
        "method": request.method,
        "root_path": "",
        "path": unquote(raw),
        "raw_path": raw.encode("ascii"),
        "query_string": query.encode("ascii"),
        "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in request.headers],
        "state": {},
    }
    pieces: list[Message] = [{"type": "http.request", "body": request.body, "more_body": False}]
    told: list[Message] = []

    async def receive() -> Message:
        return pieces.pop() if pieces else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        told.append(message)

    try:
        await app(scope, receive, send)
    except Exception:
        if not told:
            raise
    head, *rest = told
    headers = {name.decode(): value.decode("latin-1") for name, value in head["headers"]}
    return Answered(head["status"], headers, b"".join(message.get("body", b"") for message in rest))


def ask_all(app: ASGIApp, requests: Sequence[Asked]) -> list[Answered]:
    """Ask one after the other."""

    async def all_of_them() -> list[Answered]:
        return [await asked(app, request) for request in requests]

    return asyncio.run(all_of_them())
