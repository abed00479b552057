"""Uploads that nobody completed, as a server lists them: pages, times, other prefixes, and the requests themselves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from obstore.store import S3Store

from custody.errors import StorageError
from custody.store.s3_uploads import S3Uploads

SECRET = "secret"  # noqa: S105 - of a server of this test
ENVIRON = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": SECRET}
BEGUN = "2026-03-02T00:00:00.500Z"
BEGUN_MS = 1_772_409_600_500


class Server:
    """Answers requests by a function of method and URL, and keeps them with their headers."""

    def __init__(self, answers: Any) -> None:
        self.answers = answers
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.url = ""


@contextmanager
def serving(answers: Any) -> Iterator[Server]:
    server = Server(answers)

    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            server.asked.append((self.command, self.path, {name.lower(): each for name, each in self.headers.items()}))
            status, data = server.answers(self.command, self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_DELETE = _handle

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        server.url = f"http://127.0.0.1:{http.server_port}"
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        yield server
        http.shutdown()
        thread.join()


def uploads_at(url: str, prefix: str = "pre/fix", **options: Any) -> S3Uploads:
    client = S3Store(
        "bucket",
        prefix=prefix or None,
        endpoint=url,
        region="eu-west-1",
        access_key_id="key",
        secret_access_key=SECRET,
        client_options={"allow_http": True},
        **options,
    )
    found = S3Uploads.of(client, prefix, ENVIRON)
    assert found is not None
    return found


def page(*keys: str, following: tuple[str, str] | None = None, begun: str = BEGUN) -> bytes:
    uploads = "".join(
        f"<Upload><Key>{key}</Key><UploadId>id of {key}</UploadId><Initiated>{begun}</Initiated></Upload>"
        for key in keys
    )
    more = "<IsTruncated>false</IsTruncated>"
    if following:
        more = (
            f"<IsTruncated>true</IsTruncated><NextKeyMarker>{following[0]}</NextKeyMarker>"
            f"<NextUploadIdMarker>{following[1]}</NextUploadIdMarker>"
        )
    name = "http://s3.amazonaws.com/doc/2006-03-01/"
    return f'<ListMultipartUploadsResult xmlns="{name}">{uploads}{more}</ListMultipartUploadsResult>'.encode()


def test_all_pages_are_read_and_what_lies_elsewhere_is_left_alone() -> None:
    def answers(method: str, path: str) -> tuple[int, bytes]:
        if "key-marker=pre%2Ffix%2Fmain%2Fa" in path:
            return 200, page("pre/fix/main/b", "main/c", "pre/fix/main2/d")
        return 200, page("pre/fix/main/a", "pre/fix-other/main/e", following=("pre/fix/main/a", "1"))

    with serving(answers) as server:
        found = uploads_at(server.url).unfinished("main/")
    assert [(item.key, item.upload_id, item.begun_ms) for item in found] == [
        ("main/a", "id of pre/fix/main/a", BEGUN_MS),
        ("main/b", "id of pre/fix/main/b", BEGUN_MS),
    ]
    [first, second] = [parse_qs(urlsplit(path).query, keep_blank_values=True) for _, path, _ in server.asked]
    assert first == {"uploads": [""], "prefix": ["pre/fix/main/"]}
    assert second == first | {"key-marker": ["pre/fix/main/a"], "upload-id-marker": ["1"]}


def test_a_server_that_gives_the_same_page_again_ends_the_listing() -> None:
    with serving(lambda *_: (200, page("pre/fix/main/a", following=("m", "1")))) as server:
        assert len(uploads_at(server.url).unfinished("main/")) == 2


@pytest.mark.parametrize(
    "answer", [(403, b""), (501, b""), (500, b"no"), (200, b"<a"), (200, page("pre/fix/main/a", begun="now"))]
)
def test_a_server_that_does_not_tell_has_none(answer: tuple[int, bytes]) -> None:
    with serving(lambda *_: answer) as server:
        assert uploads_at(server.url).unfinished("main/") == []


def test_an_upload_is_aborted_by_its_id_and_a_refusal_is_the_rule_of_the_bucket() -> None:
    answer = (204, b"")
    with serving(lambda method, _: answer if method == "DELETE" else (200, page("pre/fix/main/a"))) as server:
        uploads = uploads_at(server.url)
        [upload] = uploads.unfinished("main/")
        for status in (204, 404, 403):
            answer = (status, b"")
            uploads.abort(upload)
        answer = (500, b"")
        with pytest.raises(StorageError, match="abort"):
            uploads.abort(upload)
    assert [path for method, path, _ in server.asked if method == "DELETE"] == [
        "/bucket/pre/fix/main/a?uploadId=id%20of%20pre%2Ffix%2Fmain%2Fa"
    ] * 4
    with pytest.raises(StorageError, match="abort"):
        uploads.abort(upload)  # nobody answers any more


def test_what_is_signed_is_what_obstore_would_sign_with_its_token() -> None:
    with serving(lambda *_: (200, page())) as server:
        assert uploads_at(server.url, "", session_token=SECRET).unfinished("main/") == []
    [(_, path, headers)] = server.asked
    assert path == "/bucket?prefix=main%2F&uploads="
    assert headers["x-amz-security-token"] == SECRET
    assert "/eu-west-1/s3/aws4_request, " in headers["authorization"]
    assert "SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token, " in headers["authorization"]


def test_a_bucket_in_the_name_of_its_host_is_asked_there() -> None:
    found = uploads_at("https://bucket.example.org", virtual_hosted_style_request=True)
    assert found._bucket_url == "https://bucket.example.org"


@pytest.mark.parametrize("environ", [{}, {"AWS_SECRET_ACCESS_KEY": "x"}, ENVIRON | {"AWS_ACCESS_KEY_ID": "of another"}])
def test_without_the_secret_of_the_client_s_own_key_there_is_nothing_to_ask(environ: dict[str, str]) -> None:
    client = S3Store("bucket", region="eu-west-1", access_key_id="key", secret_access_key=SECRET)
    assert S3Uploads.of(client, "", environ) is None
