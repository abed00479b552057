"""What a store refuses, in an error: its own code first, then what helps."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from custody.errors import StorageError
from custody.store.remote import open_remote

ANSWER = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>Words of the store\nabout it.</Message>'
    "<RequestId>7</RequestId></Error>"
)


class _Refusing(BaseHTTPRequestHandler):
    status, code = 0, ""

    def do_GET(self) -> None:
        body = ANSWER.format(code=self.code).encode()
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[_Refusing]]:
    """An S3 that refuses whatever it is asked."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name, value in {
            "AWS_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "k",
            "AWS_SECRET_ACCESS_KEY": "s",
            "AWS_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(name, value)
        yield _Refusing
        server.shutdown()


@pytest.mark.parametrize(
    ("status", "code", "advice"),
    [
        (400, "ExpiredToken", "Renew them in its environment"),
        (403, "AccessDenied", "Renew them in its environment"),
        (403, "RequestTimeTooSkewed", "The clock of this machine differs"),
        (403, "InvalidObjectState", "restore it in the store"),
        (400, "MalformedXML", ""),
    ],
)
def test_the_code_of_the_store_is_named_with_what_helps(
    refusing: type[_Refusing], status: int, code: str, advice: str
) -> None:
    refusing.status, refusing.code = status, code
    with pytest.raises(StorageError) as caught:
        open_remote("s3://b/p").get("key")
    text = str(caught.value)
    assert f"the store answers {code} (Words of the store about it)." in text
    assert advice in text
    assert "\n" not in text
    assert "<" not in text
    assert ("Renew" in text) == advice.startswith("Renew")
