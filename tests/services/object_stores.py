"""Servers of Azure's and Google's object stores, each in a process of its own, for tests.

*Azurite*, Microsoft's emulator, comes from npm. *fake-gcs-server* comes from the Go module proxy and is built once.
Both lie under `.local/object-stores` afterwards. Node, npm and Go are those of the system: a test whose server cannot
be had says what is missing and is skipped.

Google's clients differ: obstore speaks the XML API (`x-goog-if-generation-match`, `x-goog-copy-source`), of whose
uploads fake-gcs-server knows none. `XmlUploads` in front of it translates uploads and copies into the same calls of the
JSON API, condition by condition; whether a condition holds is decided by the server. Parts of an upload wait in
`XmlUploads` until it is completed, and reach the server as one object.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import http.client
import json
import os
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from uuid import uuid4

from obstore.store import AzureStore, GCSStore

from custody.store.remote import RemoteStore

HOME = Path(__file__).resolve().parents[2] / ".local" / "object-stores"
AZURITE, FAKE_GCS = "3.37.0", "v1.56.1"
BUCKET = "custody"
_ACCOUNT = "devstoreaccount1"
# Azurite's own, public, the same everywhere.
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_COMPLETED = "<CompleteMultipartUploadResult><ETag>of-an-upload</ETag></CompleteMultipartUploadResult>"
_START_SECONDS = 60
_MAKE_SECONDS = 1200


class ServerMissingError(Exception):
    """What a server needs is not on this machine."""


def cases_of(module: object, fixture: str) -> dict[str, Callable[..., None]]:
    """Return the cases of a module that take a fixture and no other parameter of a store."""
    cases = {name: case for name, case in vars(module).items() if name.startswith("test_")}
    return {
        name: case for name, case in cases.items() if fixture in case.__code__.co_varnames[: case.__code__.co_argcount]
    }


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise ServerMissingError(f"needs {name}")
    return found


def _made(name: str, version: str, command: list[str], environment: dict[str, str]) -> Path:
    """Return the folder of a server, installed if that version is not there yet."""
    folder = HOME / f"{name}-{version}"
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            subprocess.run(command, cwd=folder, env=os.environ | environment, check=True, timeout=_MAKE_SECONDS)
            (folder / "made").touch()
    return folder


@contextmanager
def _running(command: list[str], port: int) -> Iterator[None]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            deadline = time.monotonic() + _START_SECONDS
            while True:
                if server.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{command[0]} does not answer at {port}, exit code {server.returncode}")
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    time.sleep(0.05)
            yield
        finally:
            server.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def azurite() -> Iterator[str]:
    """Run Azurite in memory with an empty container; give its URL."""
    node, npm = _program("node"), _program("npm")
    install = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", ".", f"azurite@{AZURITE}"]
    folder = _made("azurite", AZURITE, install, {})
    port = _free_port()
    main = folder / "node_modules/azurite/dist/src/blob/main.js"
    options = ["--inMemoryPersistence", "--skipApiVersionCheck", "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    with _running([node, str(main), *options], port):
        url = f"http://127.0.0.1:{port}/{_ACCOUNT}"
        _make_container(url)
        yield url


def azure_store(url: str, prefix: str | None = None) -> RemoteStore:
    """Return a store below a prefix that nobody else uses, or below a named one."""
    prefix = prefix or uuid4().hex
    client = AzureStore(
        BUCKET,
        prefix=prefix,
        account_name=_ACCOUNT,
        account_key=_KEY,
        endpoint=url,
        client_options={"allow_http": True},
    )
    return RemoteStore(client, f"az://{BUCKET}/{prefix}")


def azure_environment(url: str) -> dict[str, str]:
    """Return the variables by which a repository finds Azurite."""
    return {
        "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": _KEY,
        "AZURE_STORAGE_ENDPOINT": url,
        "AZURE_ALLOW_HTTP": "true",
    }


def _make_container(url: str) -> None:
    date, version = formatdate(usegmt=True), "2021-08-06"
    lines = ["PUT", *[""] * 11, f"x-ms-date:{date}", f"x-ms-version:{version}"]
    text = "\n".join([*lines, f"/{_ACCOUNT}/{_ACCOUNT}/{BUCKET}", "restype:container"])
    mac = hmac.new(base64.b64decode(_KEY), text.encode(), hashlib.sha256).digest()
    headers = {
        "x-ms-date": date,
        "x-ms-version": version,
        "Authorization": f"SharedKey {_ACCOUNT}:{base64.b64encode(mac).decode()}",
        "Content-Length": "0",
    }
    asked = urllib.request.Request(f"{url}/{BUCKET}?restype=container", method="PUT", headers=headers)  # noqa: S310
    urllib.request.urlopen(asked, timeout=10).close()  # noqa: S310 - our own server


@contextmanager
def fake_gcs() -> Iterator[str]:
    """Run fake-gcs-server in memory with an empty bucket, and the translation in front of it; give its URL."""
    install = [_program("go"), "install", f"github.com/fsouza/fake-gcs-server@{FAKE_GCS}"]
    folder = _made("fake-gcs", FAKE_GCS, install, {"GOBIN": str(HOME / f"fake-gcs-{FAKE_GCS}"), "GOFLAGS": "-p=2"})
    port = _free_port()
    options = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
    # Only requests of this host are answered as those of the XML API.
    host = ["-public-host", f"127.0.0.1:{port}"]
    with _running([str(folder / "fake-gcs-server"), *options, *host], port):
        made = urllib.request.Request(
            f"http://127.0.0.1:{port}/storage/v1/b?project=custody",
            data=json.dumps({"name": BUCKET}).encode(),
            headers={"Content-Type": "application/json"},
        )
        urllib.request.urlopen(made, timeout=10).close()  # noqa: S310 - our own server
        with ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (XmlUploads,), {"server_port": port})) as gateway:
            thread = threading.Thread(target=gateway.serve_forever, daemon=True)
            thread.start()
            try:
                yield f"http://127.0.0.1:{gateway.server_address[1]}"
            finally:
                gateway.shutdown()
                thread.join()


def gcs_store(url: str, prefix: str | None = None) -> RemoteStore:
    """Return a store below a prefix that nobody else uses, or below a named one."""
    prefix = prefix or uuid4().hex
    client = GCSStore(BUCKET, prefix=prefix, service_account_key=_account(url), client_options={"allow_http": True})
    return RemoteStore(client, f"gs://{BUCKET}/{prefix}")


def gcs_environment(url: str) -> dict[str, str]:
    """Return the variables by which a repository finds fake-gcs-server."""
    return {"GOOGLE_SERVICE_ACCOUNT_KEY": _account(url), "GOOGLE_ALLOW_HTTP": "true"}


def _account(url: str) -> str:
    account = {"gcs_base_url": url, "disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
    return json.dumps(account)


class XmlUploads(BaseHTTPRequestHandler):
    """Hands requests on to fake-gcs-server; uploads and copies of the XML API as those of the JSON API."""

    protocol_version = "HTTP/1.1"
    server_port = 0
    uploads: ClassVar[dict[str, dict[int, bytes]]] = {}
    """Parts by their numbers, of the uploads that are not completed."""

    def _hand_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query, keep_blank_values=True)
        if "uploads" in query:
            self.uploads[name := uuid4().hex] = {}
            self._answer(f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>")
            return
        if upload := query.get("uploadId"):
            if self.command == "PUT":
                self.uploads[upload[0]][int(query["partNumber"][0])] = body
                self._answer("")
                return
            parts = self.uploads.pop(upload[0])
            if self.command == "DELETE":
                self._answer("")
                return
            self.command, self.path = "PUT", urllib.parse.urlsplit(self.path).path
            self._pass_on(b"".join(parts[number] for number in sorted(parts)), answer=_COMPLETED)
            return
        self._pass_on(body)

    def _answer(self, text: str) -> None:
        self.send_response(200)
        self.send_header("ETag", '"of-a-part"')
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def _pass_on(self, body: bytes, answer: str | None = None) -> None:
        """Hand a request on; where the server did it, `answer` is said in its place."""
        method, path, kind = self.command, self.path, self.headers.get("Content-Type") or "application/octet-stream"
        headers = {"Host": f"127.0.0.1:{self.server_port}", "Content-Type": kind}
        if method == "PUT":
            method, path, body = self._as_json(body)
        elif "Range" in self.headers:
            headers["Range"] = self.headers["Range"]
        connection = http.client.HTTPConnection("127.0.0.1", self.server_port, timeout=30)
        try:
            connection.request(method, path, body=body, headers=headers)
            given = connection.getresponse()
            content = given.read()
        finally:
            connection.close()
        if answer is not None and given.status == http.HTTPStatus.OK:
            self._answer(answer)
            return
        self.send_response(given.status)
        for name, value in given.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "content-length", "date"):
                self.send_header(name, value)
        if self.command == "PUT":
            self.send_header("ETag", '"of-an-upload"')
        # What HEAD says is the length of what GET would give.
        length = given.getheader("Content-Length") if method == "HEAD" else None
        self.send_header("Content-Length", length or str(len(content)))
        self.end_headers()
        if method != "HEAD":
            self.wfile.write(content)

    do_GET = do_HEAD = do_PUT = do_DELETE = do_POST = _hand_on

    def _as_json(self, body: bytes) -> tuple[str, str, bytes]:
        bucket, _, name = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path).strip("/").partition("/")
        quoted = urllib.parse.quote(name, safe="")
        condition = self.headers.get("x-goog-if-generation-match")
        query = {} if condition is None else {"ifGenerationMatch": condition}
        source = self.headers.get("x-goog-copy-source")
        if source is None:
            query |= {"uploadType": "media", "name": name}
            return "POST", f"/upload/storage/v1/b/{bucket}/o?{urllib.parse.urlencode(query)}", body
        of, _, copied = urllib.parse.unquote(source).strip("/").partition("/")
        called = f"/storage/v1/b/{of}/o/{urllib.parse.quote(copied, safe='')}/rewriteTo/b/{bucket}/o/{quoted}"
        return "POST", f"{called}?{urllib.parse.urlencode(query)}", b"{}"

    def log_message(self, *_: object) -> None:
        """Say nothing."""
