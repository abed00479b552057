"""The server as users start it: a process of its own on a free port, its log, and tokens for it."""

from __future__ import annotations

import os
import re
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Thread
from typing import Any

import httpx

from custody.serving.access import Scope, add_token
from custody.vfs import PosixFileSystem
from tests import forks
from tests.support import INCLUDE

_PROGRAM = "from custody.cli.main import main; main()"
CREATED = "2026-11-01T00:00:00Z"


@cache
def authorities() -> ssl.SSLContext:
    """Those that the system trusts, read once: each client of httpx reads them for itself, which takes 50 ms."""
    return ssl.create_default_context()


class Served:
    """A running server."""

    def __init__(self, process: forks.Popen[str], url: str, lines: list[str]) -> None:
        self.process = process
        self.url = url
        self.lines = lines
        """What it wrote to stderr so far."""

    def post(self, path: str, body: bytes, headers: dict[str, str] | None = None, **options: Any) -> httpx.Response:
        options.setdefault("verify", authorities())
        return httpx.post(
            f"{self.url}{path}", content=body, headers=headers, timeout=60, **{"verify": authorities(), **options}
        )

    def get(self, path: str, headers: dict[str, str] | None = None, **options: Any) -> httpx.Response:
        options.setdefault("verify", authorities())
        return httpx.get(f"{self.url}{path}", headers=headers, timeout=60, **options)

    def measures(self, headers: dict[str, str] | None = None, **options: Any) -> dict[str, float]:
        """The numbers of /metrics, by name and labels as they are written."""
        answer = self.get("/metrics", headers, **options)
        assert answer.status_code == 200, answer.text
        rows = [line.rpartition(" ") for line in answer.text.splitlines()]
        return {name: float(value) for name, _, value in rows if not name.startswith("#")}

    def log(self) -> str:
        return "".join(self.lines)


@contextmanager
def served(root: Path, *arguments: str, python: str = sys.executable, **settings: str) -> Iterator[Served]:
    """Start `custody serve` and kill it at the end, if it has not ended; settings are environment variables."""
    command = [python, "-c", _PROGRAM, "-r", str(root), "serve", "--port", "0", *arguments]
    process = forks.Popen(
        command, stderr=forks.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(INCLUDE), **settings}
    )
    assert process.stderr is not None
    lines: list[str] = []
    reader: Thread | None = None
    try:
        for line in process.stderr:
            lines.append(line)
            announced = re.search(r"taken at (\S+)", line)
            if announced:
                # A line a request comes: a pipe that nobody reads would hold the server up.
                reader = Thread(target=lambda: lines.extend(process.stderr or ()))
                reader.start()
                yield Served(process, announced[1], lines)
                break
        else:
            raise AssertionError(f"the server did not start: {''.join(lines)}")
    finally:
        # Not killed at once: its workers would be left alone.
        process.terminate()
        try:
            process.wait(60)
        except forks.TimeoutExpired:
            process.kill()
            process.wait()
        if reader is not None:
            reader.join()
        process.stderr.close()


def token(root: Path, name: str, *scopes: Scope) -> dict[str, str]:
    """Make a token in the file `tokens` of a repository, and return the header that brings it."""
    made = add_token(PosixFileSystem(), root / "tokens", name, frozenset(scopes), CREATED)
    return {"authorization": f"Bearer {made}"}
