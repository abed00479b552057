"""The REST interface of HDFS as a conversation: what to ask next, from what was answered; no socket in here.

`add_lines` is a generator: it yields a `Call` and is sent the `Answer`. Whoever drives it talks to the network, so the
same conversation runs against WebHDFS, HttpFS and a fake in memory. `Endpoints` keeps the NameNodes in the order in
which they are worth trying.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import quote, urlencode, urlsplit

from custody.errors import StorageError
from custody.ngsi.parameters import Parameters

OK, CREATED, REDIRECT, FORBIDDEN, NOT_FOUND = 200, 201, 307, 403, 404
_STANDBY = "StandbyException"
_ROOT = "/webhdfs/v1"
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request. `target` is a path at the NameNode, or a whole URL where the NameNode sent us."""

    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back; `location` is where a redirect points."""

    status: int
    body: bytes = b""
    location: str = ""

    @property
    def is_standby(self) -> bool:
        """Whether this NameNode says that another one is active."""
        return self.status == FORBIDDEN and _STANDBY.encode() in self.body


Conversation = Generator[Call, Answer, Result]


def add_lines(path: str, data: bytes, parameters: Parameters) -> Conversation[None]:
    """Append bytes to a file; make it, and its folder, where it does not exist.

    Raises:
        StorageError: an answer says neither yes nor that the file is missing; the message names it.
    """
    answer = yield _call("GET", path, "getfilestatus", parameters)
    if answer.status == NOT_FOUND:
        yield from _make_folder(path.rpartition("/")[0], parameters)
        yield from _send("PUT", path, "create", CREATED, data, parameters)
    elif answer.status == OK:
        if data:
            yield from _send("POST", path, "append", OK, data, parameters)
    else:
        raise _refused("getfilestatus", path, answer)


def _make_folder(folder: str, parameters: Parameters) -> Conversation[None]:
    answer = yield _call("PUT", folder, "mkdirs", parameters)
    if answer.status != OK:
        raise _refused("mkdirs", folder, answer)


def _send(
    method: str, path: str, operation: str, wanted: int, data: bytes, parameters: Parameters
) -> Conversation[None]:
    answer = yield _call(method, path, operation, parameters)
    if answer.status != REDIRECT or not answer.location:
        raise _refused(operation, path, answer)
    # HttpFS answers 400 to data of another type.
    headers = {**_headers(parameters), "Content-Type": "application/octet-stream"}
    answer = yield Call(method, answer.location, headers, data)
    if answer.status != wanted:
        raise _refused(f"{operation} of the data", path, answer)


def _call(method: str, path: str, operation: str, parameters: Parameters) -> Call:
    query = urlencode({"op": operation, "user.name": parameters.username})
    return Call(method, f"{_ROOT}{quote(path)}?{query}", _headers(parameters))


def _headers(parameters: Parameters) -> dict[str, str]:
    token = parameters.values.oauth2_token
    return {"X-Auth-Token": token} if token else {}


def _refused(operation: str, path: str, answer: Answer) -> StorageError:
    return StorageError(
        f"HDFS {operation} {path}: expected it to be done, got status {answer.status}{_why(answer.body)}"
    )


def _why(body: bytes) -> str:
    try:
        remote = json.loads(body)["RemoteException"]
        return f" ({remote['exception']}: {str(remote['message'])[:200]})"
    except (ValueError, KeyError, TypeError):
        return ""


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The NameNodes in the order in which they are tried; the one that answered last comes first."""

    hosts: tuple[str, ...]

    def after_success(self, host: str) -> Endpoints:
        """Return the order after a host answered."""
        return Endpoints((host, *(other for other in self.hosts if other != host)))


Ask = Callable[[str, Call], Answer]
"""Sends a call to a host, or to its own URL, and returns the answer. Raises OSError where nobody answers."""


def converse(conversation: Conversation[Result], endpoints: Endpoints, ask: Ask) -> tuple[Result, Endpoints]:
    """Lead a conversation to its end; return its result and the order of NameNodes from then on.

    The next NameNode is asked only where one does not answer at all or says that it is a standby: every other answer
    is an answer.

    Raises:
        StorageError: no NameNode answered, or one refused; what was sent before may have been done.
    """
    try:
        call = next(conversation)
        while True:
            answer, endpoints = _asked(call, endpoints, ask)
            call = conversation.send(answer)
    except StopIteration as end:
        return end.value, endpoints


def _asked(call: Call, endpoints: Endpoints, ask: Ask) -> tuple[Answer, Endpoints]:
    if urlsplit(call.target).scheme:  # a NameNode sent us there
        try:
            return ask(urlsplit(call.target).netloc, call), endpoints
        except OSError as error:
            raise StorageError(f"HDFS {call.method} {call.target[:200]}: expected an answer, got {error}") from error
    said = []
    for host in endpoints.hosts:
        try:
            answer = ask(host, call)
        except OSError as error:
            said.append(f"{host}: {error}")
            continue
        if answer.is_standby:
            said.append(f"{host}: {_STANDBY}")
            continue
        return answer, endpoints.after_success(host)
    raise StorageError(f"HDFS: expected one of {', '.join(endpoints.hosts)} to answer, got {'; '.join(said)}")
