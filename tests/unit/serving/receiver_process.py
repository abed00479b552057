"""A receiver as users start it: a process of its own on a free port, and what is posted to it."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import httpx

from tests import forks
from tests.support import INCLUDE
from tests.unit.serving.serve_process import authorities

JSON = {"content-type": "application/json; charset=utf-8"}


class Receiving:
    """A running receiver."""

    def __init__(self, process: forks.Popen[str], url: str) -> None:
        self.process = process
        self.url = url
        self.root = url.rpartition("/notify")[0]

    def post(self, body: bytes, headers: dict[str, str] | None = None, **options: Any) -> httpx.Response:
        return httpx.post(
            self.url,
            content=body,
            headers={**JSON, **(headers or {})},
            timeout=60,
            **{"verify": authorities(), **options},
        )

    def health(self) -> dict[str, Any]:
        return dict(httpx.get(f"{self.root}/health", timeout=60, verify=authorities()).json())


@contextmanager
def receiving(root: Path, *arguments: str, **environment: str) -> Iterator[Receiving]:
    """Start `custody ngsi serve` and kill it at the end, if it has not ended."""
    code = "from custody.cli.main import main; main()"
    command = [sys.executable, "-c", code, "-r", str(root), "ngsi", "serve", "--port", "0", *arguments]
    with started(command, **environment) as found:
        yield found


@contextmanager
def started(command: list[str], **environment: str) -> Iterator[Receiving]:
    """Start a process that says on stderr where notifications are taken, and kill it at the end."""
    reader: Thread | None = None
    process = forks.Popen(
        command,
        stderr=forks.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(INCLUDE), **environment},
    )
    try:
        assert process.stderr is not None
        said = ""
        for line in process.stderr:
            said += line
            found = re.search(r"taken at (\S+)", line)
            if found:
                # A line a request comes: a pipe that nobody reads would hold the receiver up.
                reader = Thread(target=process.stderr.read)
                reader.start()
                yield Receiving(process, found[1])
                break
        else:
            raise AssertionError(f"the receiver did not start: {said}")
    finally:
        process.kill()
        process.wait()
        if reader is not None:
            reader.join()
        if process.stderr is not None:
            process.stderr.close()


def notification(number: int, entities: int = 1, **attributes: object) -> bytes:
    """An NGSIv2 notification as Orion sends it."""
    values = attributes or {"speed": {"type": "Float", "value": 112.9 + number, "metadata": {}}}
    data = [{"id": f"car{number}-{index}", "type": "Car", **values} for index in range(entities)]
    return json.dumps({"subscriptionId": "57458eb60962ef754e7c0998", "data": data}).encode()
