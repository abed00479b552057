"""HDFS in memory, as WebHDFS shows it: the same refusals, so that a name that HDFS would not take fails here too."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

from custody.ngsi.naming import COMPONENT_BYTES_MAX
from custody.ngsi_sink.webhdfs import CREATED, FORBIDDEN, NOT_FOUND, OK, REDIRECT, Answer, Call

_BAD_REQUEST, _ERROR = 400, 500
_DATA_NODE = "http://datanode.example.org:9864"
_TIMES = {"once": 1, "twice": 2}
LOCATION = "<Location>"
"""Stands in the list of calls for the place that a NameNode named."""


@dataclass(slots=True)
class Faults:
    """What goes wrong: every call at some hosts, or at all of them for the first attempts, or for ever."""

    failing_attempts: int | None = 0
    """None: for ever."""
    dead_hosts: frozenset[str] = frozenset()
    standby_hosts: frozenset[str] = frozenset()

    @classmethod
    def read(cls, faults: dict[str, str]) -> Faults:
        """Return the faults that a case describes.

        Raises:
            ValueError: one is not understood.
        """
        attempts: int | None = 0
        dead, standby = set[str](), set[str]()
        for where, what in faults.items():
            if where == "backend":
                attempts = _attempts(what)
            elif where.startswith("endpoint "):
                is_standby = "standby" in what.lower() and "refused" not in what.lower()
                (standby if is_standby else dead).add(where.removeprefix("endpoint "))
            else:
                raise ValueError(f"fault {where!r}: expected backend, or endpoint and a host")
        return cls(attempts, frozenset(dead), frozenset(standby))


def _attempts(what: str) -> int | None:
    if "always" in what:
        return None
    found = re.search(r"\b(once|twice)\b|\b(\d+) (?:times|attempts)\b|\bfirst (\d+)\b", what)
    if found is None:
        raise ValueError(f"fault of the backend {what!r}: expected 'always fails' or 'fails 2 times'")
    return _TIMES[found[1]] if found[1] else int(found[2] or found[3])


@dataclass(slots=True)
class MemoryHdfs:
    """Files by path, and the calls that were answered: method, target, status."""

    faults: Faults
    files: dict[str, bytes] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    calls: list[tuple[str, str, int]] = field(default_factory=list)
    attempt: int = 0
    """How many times something was begun; the faults count them."""

    def ask(self, host: str, call: Call) -> Answer:
        """Answer a call as a cluster would."""
        if host in self.faults.dead_hosts:
            raise ConnectionRefusedError(f"{host} refused the connection")
        if host in self.faults.standby_hosts:
            return _remote(FORBIDDEN, "StandbyException", "Operation category READ is not supported in state standby")
        failing = self.faults.failing_attempts
        is_failing = failing is None or 0 < self.attempt <= failing
        answer = _remote(_ERROR, "IOException", "made to fail") if is_failing else self._answer(call)
        is_data = call.target.startswith(_DATA_NODE)
        self.calls.append((call.method, LOCATION if is_data else call.target, answer.status))
        return answer

    def _answer(self, call: Call) -> Answer:
        url = urlsplit(call.target)
        path = unquote(url.path).removeprefix("/webhdfs/v1")
        operation = parse_qs(url.query)["op"][0].lower()
        if refusal := _refusal(path):
            return refusal
        if call.target.startswith(_DATA_NODE):
            self.files[path] = self.files.get(path, b"") + call.body
            return Answer(CREATED if operation == "create" else OK)
        if operation == "getfilestatus":
            return Answer(OK if path in self.files else NOT_FOUND)
        if operation == "mkdirs":
            self.folders.add(path)
            return Answer(OK, b'{"boolean": true}')
        if operation == "create" and path in self.files:
            return _remote(FORBIDDEN, "FileAlreadyExistsException", f"{path} already exists")
        if operation == "append" and path not in self.files:
            return _remote(NOT_FOUND, "FileNotFoundException", f"{path} does not exist")
        return Answer(REDIRECT, location=f"{_DATA_NODE}{call.target}")


def _refusal(path: str) -> Answer | None:
    parts = path.split("/")[1:]
    if any(":" in part or part in ("", ".", "..") for part in parts):
        return _remote(_BAD_REQUEST, "InvalidPathException", f"Invalid path name {path}")
    if any(len(part.encode()) > COMPONENT_BYTES_MAX for part in parts):
        return _remote(FORBIDDEN, "PathComponentTooLongException", "The maximum path component name limit is exceeded")
    return None


def _remote(status: int, kind: str, message: str) -> Answer:
    return Answer(status, json.dumps({"RemoteException": {"exception": kind, "message": message}}).encode())
