"""Files below a folder of a file system, and what is there: a scratch place on the same HDFS that production has.

The sink never looks around: it knows its paths. Who compares what it wrote, and removes that again, does (`Shown`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self
from urllib.parse import unquote, urlsplit

from custody.config import NgsiSection
from custody.errors import ConfigurationError
from custody.ngsi_sink.target import Files

_BACKENDS = {"file": "file", "hdfs": "binary", "webhdfs": "rest", "swebhdfs": "rest"}
_PORTS = {"hdfs": 8020, "webhdfs": 9870, "swebhdfs": 9871}
_ACCESS = (
    "krb5_auth",
    "krb5_user",
    "krb5_password",
    "krb5_conf_file",
    "krb5_login_conf_file",
    "oauth2_token",
    "backend_max_conns",
    "backend_max_conns_per_route",
    "backend_timeout",
    "backend_files_at_once",
)
_FORMS = "file:///folder, hdfs://host:8020/folder or webhdfs://host:9870/folder"


class Shown(Files, Protocol):
    """Files that can be listed, read and removed as well. All methods raise StorageError."""

    def walk(self, folder: str) -> Iterator[str]:
        """Yield the paths of all files below a folder; none where there is no folder."""
        ...

    def read(self, path: str) -> bytes:
        """Return a file."""
        ...

    def remove(self, folder: str) -> None:
        """Remove a folder with all that is in it; nothing happens where there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Base:
    """A folder of a file system, as a URI names it."""

    backend: str
    """The setting `ngsi.backend` that reaches it."""
    hosts: str
    """NameNodes, with commas between them; empty for a folder of this machine."""
    port: int
    """Of those that bring none."""
    folder: str
    is_tls: bool = False

    @classmethod
    def parse(cls, uri: str) -> Self:
        """Return the base that a URI names; several NameNodes have commas between them.

        Raises:
            ConfigurationError: it is none.
        """
        parts = urlsplit(uri)
        hosts, folder = parts.netloc, unquote(parts.path).rstrip("/")
        is_remote = parts.scheme in _PORTS
        is_whole = parts.path.startswith("/") and not (parts.query or parts.fragment or ".." in folder.split("/"))
        if parts.scheme not in _BACKENDS or not is_whole or bool(hosts) != is_remote or re.search(r"[\s@]", hosts):
            raise ConfigurationError(f"base {uri!r}: expected {_FORMS}, a folder that the cases may write below.")
        port = _PORTS.get(parts.scheme, 1)
        return cls(_BACKENDS[parts.scheme], hosts, port, folder, is_tls=parts.scheme == "swebhdfs")

    def settings(self, access: NgsiSection) -> dict[str, object]:
        """Return what the section `ngsi` says of it; `access` is one that says who logs in there."""
        if self.backend == "file":
            return {"backend": "file", "backend_folder": Path("/")}
        return {
            **{name: getattr(access, name) for name in _ACCESS},
            "backend": self.backend,
            "backend_impl": self.backend,
            "hdfs_host": self.hosts,
            "hdfs_port": self.port,
            "backend_tls": self.is_tls,
        }


class Below:
    """The files below a folder, by the paths that they have there."""

    def __init__(self, files: Shown, folder: str) -> None:
        self._files = files
        self._folder = folder

    @property
    def outlives_writers(self) -> bool:
        """As of the file system."""
        return self._files.outlives_writers

    def size(self, path: str) -> int | None:
        """Return the bytes of a file, None where there is none."""
        return self._files.size(self._folder + path)

    def digest(self, path: str, offset: int, length: int) -> str:
        """Return the SHA-256 of a piece of a file, in hexadecimal."""
        return self._files.digest(self._folder + path, offset, length)

    def settle(self, path: str) -> None:
        """End what a writer left that died."""
        self._files.settle(self._folder + path)

    def create(self, path: str, data: memoryview) -> None:
        """Make a file and the folders above it, durably."""
        self._files.create(self._folder + path, data)

    def append(self, path: str, data: memoryview) -> None:
        """Add bytes at the end of a file, durably."""
        self._files.append(self._folder + path, data)

    def cut(self, path: str, length: int) -> None:
        """Cut a file, durably."""
        self._files.cut(self._folder + path, length)

    def uri(self, path: str) -> str:
        """Return what names a file everywhere."""
        return self._files.uri(self._folder + path)

    def close(self) -> None:
        """Give connections back."""
        self._files.close()

    def contents(self) -> dict[str, bytes]:
        """Return all files by path."""
        paths = list(self._files.walk(self._folder))
        return {path.removeprefix(self._folder): self._files.read(path) for path in paths}

    def remove(self) -> None:
        """Remove the folder."""
        self._files.remove(self._folder)
