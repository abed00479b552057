"""An S3 server in a process of its own, for tests.

Moto's server, from PyPI, in an environment of its own under `.local`, because its dependencies contradict Airflow's;
the first test that needs it makes the environment (some seconds). `CUSTODY_TEST_S3=http://host:port` names another
server that runs already, with its keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from obstore.store import S3Store

from custody.store.remote import RemoteStore
from tests.own_environment import python_of

REQUIREMENTS = Path(__file__).with_name("s3-requirements.txt")
BUCKET = "custody"
_START_SECONDS = 60
SERVER = """
import sys
from threading import Lock
from moto.s3.responses import S3Response
from moto.server import main

def one_at_a_time(write, lock=Lock()):
    def alone(self, *arguments, **options):
        with lock:
            return write(self, *arguments, **options)
    return alone

for name in ("put_object", "copy_object", "_key_response_post"):
    setattr(S3Response, name, one_at_a_time(getattr(S3Response, name)))
main(sys.argv[1:])
"""
"""The program of the server, with its host and port as arguments.

S3 takes one of several conditional writes of a name. Moto looks for the name and writes it in two steps, between which
its threads may change: of many races one had two winners.
"""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def s3_server() -> Iterator[str]:
    """Run a server with an empty bucket; give its URL."""
    given = os.environ.get("CUSTODY_TEST_S3")
    if given:
        yield given
        return
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    command = [str(python_of("s3", REQUIREMENTS)), "-c", SERVER, "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _await(url, server)
            request = urllib.request.Request(f"{url}/{BUCKET}", method="PUT")  # noqa: S310 - our own server
            urllib.request.urlopen(request, timeout=10).close()  # noqa: S310 - our own server
            yield url
        finally:
            server.kill()


def _await(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"the S3 server ended with code {server.returncode}")
        try:
            urllib.request.urlopen(url, timeout=1).close()  # noqa: S310 - our own server
        except urllib.error.HTTPError as error:
            error.close()
            return
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"no S3 server answered at {url}")


def open_uploads(url: str) -> list[str]:
    """Return the keys of multipart uploads that were neither completed nor aborted."""
    with urllib.request.urlopen(f"{url}/{BUCKET}?uploads", timeout=10) as answer:  # noqa: S310 - our own server
        return re.findall(r"<Key>(.*?)</Key>", answer.read().decode())


def s3_environment(url: str) -> dict[str, str]:
    """Return the variables by which a repository finds the server."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": os.environ.get("AWS_ACCESS_KEY_ID", "test"),
        "AWS_SECRET_ACCESS_KEY": os.environ.get("AWS_SECRET_ACCESS_KEY", "test"),
    }


def s3_store(url: str, prefix: str | None = None, multipart_bytes: int = 64 << 20) -> RemoteStore:
    """Return a store below a prefix that nobody else uses, or below a named one."""
    prefix = prefix or uuid4().hex
    client = S3Store(
        BUCKET,
        prefix=prefix,
        endpoint=url,
        access_key_id=os.environ.get("AWS_ACCESS_KEY_ID", "test"),
        secret_access_key=os.environ.get("AWS_SECRET_ACCESS_KEY", "test"),
        region="us-east-1",
        client_options={"allow_http": True},
        copy_if_not_exists="multipart",
    )
    return RemoteStore(client, f"s3://{BUCKET}/{prefix}", multipart_bytes=multipart_bytes)
