"""The files of an HDFS, read without any code of the project."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from urllib.parse import quote


def read(port: int, path: str, proof: str = "user.name=warden") -> bytes:
    """Return the bytes of a file; `proof` is what the query has of who asks."""
    with urllib.request.urlopen(f"{_url(port, path)}?op=OPEN&{proof}", timeout=60) as answer:  # noqa: S310
        return bytes(answer.read())


def files(port: int, folder: str, proof: str = "user.name=warden") -> Iterator[str]:
    """Yield the paths of all files below a folder."""
    try:
        with urllib.request.urlopen(f"{_url(port, folder)}?op=LISTSTATUS&{proof}", timeout=60) as answer:  # noqa: S310
            document = json.loads(answer.read())["FileStatuses"]["FileStatus"]
    except urllib.error.HTTPError as error:
        assert error.code == 404
        return
    for each in document:
        path = f"{folder}/{each['pathSuffix']}"
        if each["type"] == "DIRECTORY":
            yield from files(port, path, proof)
        else:
            yield path


def _url(port: int, path: str) -> str:
    return f"http://127.0.0.1:{port}/webhdfs/v1{quote(path)}"
