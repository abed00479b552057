"""The REST interface of HDFS as a conversation: what to ask next, from what was answered; no socket in here.

A conversation is a generator: it yields a `Call` and is sent the `Answer`. Whoever drives it talks to the network, so
the same one runs against WebHDFS, HttpFS and a fake. `Endpoints` keeps the NameNodes in the order in which they
are worth trying. `add_lines` is what NGSIToHDFS asks, `custody.ngsi_sink.rest` what custody does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar
from urllib.parse import quote, urlencode, urlsplit

from custody.errors import StorageError
from custody.ngsi.parameters import Parameters

OK, CREATED, REDIRECT, UNAUTHORIZED, FORBIDDEN, NOT_FOUND = 200, 201, 307, 401, 403, 404
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
    is_of_data: bool = False
    """Whether a DataNode gave it, to data that were sent to it."""

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
    answer = yield call("GET", path, "getfilestatus", parameters)
    if answer.status == NOT_FOUND:
        yield from make_folder(path.rpartition("/")[0], parameters)
        yield from _send("PUT", path, "create", CREATED, data, parameters)
    elif answer.status == OK:
        if data:
            yield from _send("POST", path, "append", OK, data, parameters)
    else:
        raise refused("getfilestatus", path, answer)


def make_folder(folder: str, parameters: Parameters) -> Conversation[None]:
    """Make a folder and those above it, whichever are missing."""
    answer = yield call("PUT", folder, "mkdirs", parameters)
    if answer.status != OK:
        raise refused("mkdirs", folder, answer)


def _send(
    method: str, path: str, operation: str, wanted: int, data: bytes, parameters: Parameters
) -> Conversation[None]:
    answer = yield from send_data(call(method, path, operation, parameters), data, parameters)
    if not answer.is_of_data or answer.status != wanted:
        raise refused(f"{operation} of the data" if answer.is_of_data else operation, path, answer)


def send_data(first: Call, data: bytes, parameters: Parameters) -> Conversation[Answer]:
    """Ask without the data, send them to where the answer points, and return the answer to that.

    Where the NameNode points nowhere, its own answer is returned; that of the data says that it is one.
    """
    answer = yield first
    if answer.status != REDIRECT or not answer.location:
        return answer
    # HttpFS answers 400 to data of another type.
    described = {**headers(parameters), "Content-Type": "application/octet-stream"}
    answer = yield Call(first.method, answer.location, described, data)
    return replace(answer, is_of_data=True)


def call(method: str, path: str, operation: str, parameters: Parameters, **more: str) -> Call:
    """Return a call of an operation on a path; `more` are its parameters."""
    # With Kerberos the user is who has logged in; a NameNode may refuse the name of another beside it.
    user = {} if parameters.values.krb5_auth else {"user.name": parameters.username}
    query = urlencode({"op": operation, **user, **more})
    return Call(method, f"{_ROOT}{quote(path)}?{query}", headers(parameters))


def headers(parameters: Parameters) -> dict[str, str]:
    """Return the headers that every call has."""
    token = parameters.values.oauth2_token
    return {"X-Auth-Token": token} if token else {}


def refused(operation: str, path: str, answer: Answer) -> StorageError:
    """Return the error that an answer is, with what HDFS says about it."""
    kind, message = remote(answer)
    why = f" ({kind}: {message[:200]})" if kind else ""
    if answer.status == UNAUTHORIZED:
        why += ", which wants a login. See ngsi.krb5_auth and ngsi.oauth2_token"
    return StorageError(f"HDFS {operation} {path}: expected it to be done, got status {answer.status}{why}")


def remote(answer: Answer) -> tuple[str, str]:
    """Return the exception that an answer tells of, and its message; two empty texts where there is none."""
    try:
        found = json.loads(answer.body)["RemoteException"]
        return str(found["exception"]), str(found["message"])
    except (ValueError, KeyError, TypeError):
        return "", ""


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
            # Its query has a token of Kerberos that would let in whoever reads this.
            where = call.target.partition("?")[0][:200]
            raise StorageError(f"HDFS {call.method} {where}: expected an answer, got {error}") from error
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
