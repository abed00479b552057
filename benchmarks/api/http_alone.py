"""The HTTP server of custody with nothing behind it: what an answer costs where its bytes are there already.

It prints its URL; `/N` is answered with N bytes as JSON.
"""

from __future__ import annotations

import sys
from pathlib import Path

from starlette.types import Receive, Scope, Send

from custody.config.sections import ListenerSection
from custody.serving.http_server import serve

_BYTES = b"1" * (16 << 20)


async def _answer(scope: Scope, _: Receive, send: Send) -> None:
    body = _BYTES[: int(scope["path"].lstrip("/"))]
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _say(url: str) -> None:
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    # The server takes any application of ASGI.
    serve(_answer, Path(), ListenerSection(port=0), on_started=_say)  # type: ignore[arg-type]
