"""HDFS over its REST interface: WebHDFS at the NameNodes, or HttpFS.

Three layers, from the inside out. An operation (`_append`, `_truncate`) is a conversation: a generator that yields a
`Call` and is sent the `Answer`, and knows no socket. `converse` drives one, with the NameNodes in the order in which
they are worth trying (`Endpoints`), over an `HttpTransport`: `PooledTransport` has the sockets, their limits, time-outs
and TLS, and the cookies of Kerberos; tests have a fake. `WebHdfsFiles` is the file system that a target is made on.

No operation is begun a second time here when an answer was lost: whoever applies an append again sees first what was
done. What HDFS says while another writer has the file open, or while it finds out how long the file of a dead writer
is, becomes BusyError.
"""

from __future__ import annotations

import hashlib
import json
import threading
from base64 import b64encode
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, Self, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from custody.config import NgsiSection
from custody.errors import ConfigurationError, StorageError
from custody.ngsi.parameters import Parameters
from custody.ngsi_sink.delegation import TokenFile, doas_and_token, hide_tokens_in_logs, token_file, without_tokens
from custody.ngsi_sink.kerberos import Login
from custody.ngsi_sink.target import BusyError, not_a_file

OK, CREATED, REDIRECT, UNAUTHORIZED, FORBIDDEN, NOT_FOUND, INTERNAL_ERROR = 200, 201, 307, 401, 403, 404, 500
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
    """An HTTP response; `location` is where a redirect points."""

    status: int
    body: bytes = b""
    location: str = ""
    is_of_data: bool = False
    """Whether it is a DataNode's answer to data that it was sent."""

    @property
    def is_standby(self) -> bool:
        """Whether this NameNode says that another one is active."""
        return self.status == FORBIDDEN and _STANDBY.encode() in self.body


Conversation = Generator[Call, Answer, Result]


def make_folder(folder: str, parameters: Parameters) -> Conversation[None]:
    """Make a folder and those above it, whichever are missing."""
    answer = yield call("PUT", folder, "mkdirs", parameters)
    if answer.status != OK:
        raise refused("mkdirs", folder, answer)


def send_data(first: Call, data: bytes, parameters: Parameters) -> Conversation[Answer]:
    """Make a call without the data, send them to where its answer points, and return the answer to the data.

    Where the NameNode redirects nowhere, its own answer is returned; `is_of_data` tells the two apart.
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
    # With Kerberos the user is the one who logged in; a NameNode may refuse another name beside it.
    user = {} if parameters.values.krb5_auth else {"user.name": parameters.username}
    if parameters.values.hdfs_doas is not None:
        user["doas"] = parameters.values.hdfs_doas
    query = urlencode({"op": operation, **user, **more})
    return Call(method, f"{_ROOT}{quote(path)}?{query}", headers(parameters))


def headers(parameters: Parameters) -> dict[str, str]:
    """Return the headers of every call."""
    token = parameters.values.oauth2_token
    return {"X-Auth-Token": token} if token else {}


def refused(operation: str, path: str, answer: Answer) -> StorageError:
    """Return an answer as an error, with the reason that HDFS gives."""
    kind, message = remote(answer)
    why = f" ({kind}: {message[:200]})" if kind else ""
    if answer.status == UNAUTHORIZED:
        why += ", which wants a login. See ngsi.krb5_auth and ngsi.oauth2_token"
    return StorageError(f"HDFS {operation} {path}: expected it to be done, got status {answer.status}{why}")


def remote(answer: Answer) -> tuple[str, str]:
    """Return the Java exception that an answer names, and its message; two empty texts where there is none."""
    try:
        exception = json.loads(answer.body)["RemoteException"]
        return str(exception["exception"]), str(exception["message"])
    except (ValueError, KeyError, TypeError):
        return "", ""


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The NameNodes in the order in which they are tried: the one that answered last is the first."""

    hosts: tuple[str, ...]

    def after_success(self, host: str) -> Endpoints:
        """Return the order after a host answered."""
        # The active NameNode stays first: a standby in front of it would cost a call each time.
        return Endpoints((host, *(other for other in self.hosts if other != host)))


Ask = Callable[[str, Call], Answer]
"""Sends a call to a host, or to its own URL, and returns the answer. Raises OSError where nobody answers."""


def converse(conversation: Conversation[Result], endpoints: Endpoints, ask: Ask) -> tuple[Result, Endpoints]:
    """Drive a conversation to its end; return its result and the order of NameNodes from then on.

    The next NameNode is asked only where one does not answer at all or says that it is a standby: every other answer
    counts, a refusal as well.

    Raises:
        StorageError: no NameNode answered, or one refused; what was sent before may have been done.
    """
    try:
        call = next(conversation)
        while True:
            answer, endpoints = _answer_of(call, endpoints, ask)
            call = conversation.send(answer)
    except StopIteration as end:
        return end.value, endpoints


def _answer_of(call: Call, endpoints: Endpoints, ask: Ask) -> tuple[Answer, Endpoints]:
    if urlsplit(call.target).scheme:  # a NameNode redirected us there
        try:
            return ask(urlsplit(call.target).netloc, call), endpoints
        except OSError as error:
            # Its query holds a delegation token, which would let in anybody who reads this message.
            where = call.target.partition("?")[0][:200]
            raise StorageError(f"HDFS {call.method} {where}: expected an answer, got {error}") from error
    said = []
    # The next one may be asked although an answer was lost: calls to NameNodes move no data, so no row comes twice.
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


class HttpTransport(Protocol):
    """Sends calls and returns answers: `PooledTransport`, or a fake."""

    def ask(self, host: str, call: Call) -> Answer:
        """Send a call and return the answer. Raises OSError where nobody answers."""
        ...

    def close(self) -> None:
        """Give connections back."""
        ...


_COOKIE = "hadoop.auth"
Negotiate = Callable[[str], bytes]
"""Returns the first token of SPNEGO for a host; raises as `custody.ngsi_sink.kerberos.Login.token`."""


class PooledTransport:
    """Connections to the hosts of one HDFS; several threads may ask at once.

    A delegation token, where there is one, comes with each call to a NameNode, and nobody logs in.
    """

    def __init__(self, values: NgsiSection, negotiate: Negotiate | None = None, token: TokenFile | None = None) -> None:
        import urllib3

        self._scheme = "https" if values.backend_tls else "http"
        self._error: type[Exception] = urllib3.exceptions.HTTPError
        # No retries of its own: a lost call may have been done, and only `FilesTarget` can see whether it was.
        self._pools = urllib3.PoolManager(
            maxsize=values.backend_max_conns_per_route,
            block=True,
            retries=False,
            timeout=urllib3.Timeout(connect=values.backend_timeout, read=values.backend_timeout),
        )
        # The pools bound the connections to each host, this bounds all of them together.
        self._connections = threading.BoundedSemaphore(values.backend_max_conns)
        self._token = token
        is_login = values.krb5_auth and token is None
        self._negotiate = negotiate or (Login(values).token if is_login else None)
        # Also without a file of tokens: a redirect to a DataNode brings one.
        hide_tokens_in_logs()
        self._login_lock = threading.Lock()
        self._cookies: dict[str, str] = {}

    def ask(self, host: str, call: Call) -> Answer:
        """Send a call to a host, or to the URL that it brings, and return the answer.

        Raises:
            OSError: nobody answers, or not in time; it is unknown whether the call was carried out.
            ConfigurationError: Kerberos refuses the user of the settings, or HDFS its delegation token.
        """
        if self._token is not None and not urlsplit(call.target).scheme:
            return self._ask_with(self._token, host, call)
        url = call.target if urlsplit(call.target).scheme else f"{self._scheme}://{host}{call.target}"
        place = urlsplit(url).netloc
        cookie = self._cookies.get(place)
        answer = self._send(call, url, _cookie(cookie))
        if answer.status == UNAUTHORIZED and self._negotiate is not None:
            # One at a time: several threads find the same cookie expired, and one login is enough for all of them.
            with self._login_lock:
                if self._cookies.get(place) not in (None, cookie):
                    answer = self._send(call, url, _cookie(self._cookies[place]))
                if answer.status == UNAUTHORIZED:
                    self._cookies.pop(place, None)
                    token = b64encode(self._negotiate(urlsplit(url).hostname or host)).decode()
                    answer = self._send(call, url, {"Authorization": f"Negotiate {token}"})
        return answer

    def _ask_with(self, token: TokenFile, host: str, call: Call) -> Answer:
        """Send a call to a NameNode with a delegation token; one that was renewed meanwhile is taken up."""
        while True:
            answer = self._send(call, f"{self._scheme}://{host}{token.added_to(call.target)}", {})
            if not _is_token_refused(answer):
                return answer
            # Nothing was done by a call that was refused, so it may be sent again.
            if not token.reload():
                kind, message = remote(answer)
                raise token.refused(f"status {answer.status}: {message or kind}")

    def close(self) -> None:
        """Close all connections."""
        self._pools.clear()

    def _send(self, call: Call, url: str, credentials: dict[str, str]) -> Answer:
        with self._connections:
            try:
                response = self._pools.request(
                    call.method,
                    url,
                    # An empty body still gets a Content-Length: some proxies refuse a PUT or POST without it.
                    body=call.body if call.method != "GET" else None,
                    headers={**call.headers, **credentials},
                    redirect=False,
                )
            except self._error as error:
                # The text may hold the whole URL, and its cause does.
                raise ConnectionError(without_tokens(f"{type(error).__name__}: {error}")) from None
        for cookie in response.headers.getlist("Set-Cookie"):
            name, _, value = cookie.partition(";")[0].partition("=")
            # A refused call gets an empty cookie, which takes the old one away; it must not be kept.
            if name == _COOKIE and value.strip('"') and self._negotiate is not None:
                self._cookies[urlsplit(url).netloc] = f"{name}={value}"
        return Answer(response.status, response.data, response.headers.get("Location", ""))


def _is_token_refused(answer: Answer) -> bool:
    """Whether an answer says that the token is expired, cancelled or unknown."""
    kind, message = remote(answer)
    return answer.status == UNAUTHORIZED or (
        answer.status in (FORBIDDEN, INTERNAL_ERROR) and ("InvalidToken" in kind or "InvalidToken" in message)
    )


def _cookie(cookie: str | None) -> dict[str, str]:
    return {"Cookie": cookie} if cookie else {}


_BUSY = frozenset(
    {
        "AlreadyBeingCreatedException",  # another client has the file's lease
        "RecoveryInProgressException",  # its writer died; DataNodes agree on its length
        "FileAlreadyExistsException",  # made since it was looked for
        "NotReplicatedYetException",
        "RetriableException",
        "SafeModeException",  # the NameNode has just been started
        "LeaseExpiredException",  # it was taken from us while we wrote: see what is there
    }
)
_BUSY_WORDS = (
    # HttpFS says of the exceptions above no more than that a RemoteException came.
    "Failed to CREATE_FILE",
    "Failed to APPEND_FILE",
    "Failed to TRUNCATE_FILE",
    "already exists",
    "is in safe mode",
    # These have no name of their own at a NameNode either.
    "not sufficiently replicated",
    "Cannot truncate to a larger file size",  # a cut that was under way has ended since the file was looked at
)


def is_busy(kind: str, message: str) -> bool:
    """Whether an exception of HDFS says that the same may succeed a little later."""
    return kind.rpartition(".")[2] in _BUSY or any(words in message for words in _BUSY_WORDS)


def is_impersonation_refused(message: str) -> bool:
    """Whether an exception of HDFS says that the user may not act for the other one."""
    return "not allowed to impersonate" in message


def impersonation_refused(message: str) -> ConfigurationError:
    """Return the error of a user who may not act for the one of the settings: no retry changes that."""
    return ConfigurationError(
        f"ngsi.hdfs_doas: expected HDFS to allow it, got {message[:200]!r}. Allow it in its core-site.xml: "
        "hadoop.proxyuser.<user>.hosts, and .users or .groups (HttpFS: httpfs.proxyuser…)."
    )


class WebHdfsFiles:
    """Files of HDFS, through its REST interface. One object serves several threads."""

    # A DataNode may go on writing what a caller that is gone has sent it.
    outlives_writers = True

    def __init__(self, parameters: Parameters, transport: HttpTransport) -> None:
        self._parameters = parameters
        self._transport = transport
        self._endpoints = Endpoints(tuple(authority(host, parameters.values.hdfs_port) for host in parameters.hosts))
        self._lock = threading.Lock()

    @classmethod
    def open(cls, parameters: Parameters) -> Self:
        """Return the files of the HDFS that the parameters name; no connection is made yet.

        Raises:
            ConfigurationError: the settings want Kerberos, and a package that it needs is not installed; or the file of
                delegation tokens cannot be used.
        """
        values = parameters.values
        path = token_file(values)
        token = None
        if path is not None:
            if values.hdfs_doas is not None:
                raise doas_and_token(path)
            token = TokenFile(path, [authority(host, values.hdfs_port) for host in parameters.hosts])
        return cls(parameters, PooledTransport(values, token=token))

    def size(self, path: str) -> int | None:
        """Return the bytes of a file, None where there is none."""
        return self._converse(_size(path, self._parameters))

    def digest(self, path: str, offset: int, length: int) -> str:
        """Return the SHA-256 of a piece of a file, in hexadecimal."""
        piece = self._converse(_read(path, self._parameters, offset=str(offset), length=str(length))) if length else b""
        return hashlib.sha256(piece).hexdigest()

    def settle(self, path: str) -> None:
        """End a dead writer's lease: cutting the file to its own length does that and changes nothing else."""
        size = self.size(path)
        if size is not None:
            self.cut(path, size)

    def create(self, path: str, data: memoryview) -> None:
        """Make a file and the folders above it."""
        self._converse(_create(path, bytes(data), self._parameters))

    def append(self, path: str, data: memoryview) -> None:
        """Add bytes at the end of a file."""
        self._converse(_append(path, bytes(data), self._parameters))

    def cut(self, path: str, length: int) -> None:
        """Cut a file; BusyError until the DataNodes have done it."""
        self._converse(_truncate(path, length, self._parameters))

    def walk(self, folder: str) -> Iterator[str]:
        """Yield the paths of all files below a folder."""
        for name, is_folder in self._converse(_list(folder, self._parameters)):
            path = f"{folder}/{name}"
            if is_folder:
                yield from self.walk(path)
            else:
                yield path

    def read(self, path: str) -> bytes:
        """Return a file."""
        return self._converse(_read(path, self._parameters))

    def remove(self, folder: str) -> None:
        """Remove a folder with all that is in it."""
        self._converse(_delete(folder, self._parameters))

    def uri(self, path: str) -> str:
        """Return `webhdfs://…` with the first NameNode of the settings, whichever is active."""
        values = self._parameters.values
        scheme = "swebhdfs" if values.backend_tls else "webhdfs"
        return f"{scheme}://{authority(self._parameters.hosts[0], values.hdfs_port)}{quote(path)}"

    def close(self) -> None:
        """Give connections back."""
        self._transport.close()

    def _converse(self, conversation: Conversation[Result]) -> Result:
        with self._lock:
            # Not held during the calls: they would come one after the other, and the order of hosts is only a hint.
            endpoints = self._endpoints
        result, after = converse(conversation, endpoints, self._transport.ask)
        with self._lock:
            self._endpoints = after
        return result


def authority(host: str, port: int) -> str:
    """Return host and port as a URL has them; a host may bring its own port."""
    if host.count(":") == 1:
        return host
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def _size(path: str, parameters: Parameters) -> Conversation[int | None]:
    answer = yield call("GET", path, "GETFILESTATUS", parameters)
    if answer.status == NOT_FOUND:
        return None
    status = _json(answer, "GETFILESTATUS", path).get("FileStatus")
    if isinstance(status, dict) and status.get("type") in ("DIRECTORY", "SYMLINK"):
        raise not_a_file(f"HDFS {path}")
    if not isinstance(status, dict) or status.get("type") != "FILE":
        raise refused(f"GETFILESTATUS, expected a file, of {status!r:.200}", path, answer)
    return int(status["length"])


def _list(folder: str, parameters: Parameters) -> Conversation[list[tuple[str, bool]]]:
    answer = yield call("GET", folder, "LISTSTATUS", parameters)
    if answer.status == NOT_FOUND:
        return []
    body = _done(answer, "LISTSTATUS", folder, OK).body
    try:
        statuses = json.loads(body)["FileStatuses"]["FileStatus"]
        return [(str(item["pathSuffix"]), item["type"] == "DIRECTORY") for item in statuses]
    except (ValueError, KeyError, TypeError) as error:
        raise refused(f"LISTSTATUS, expected a list, {error!r}", folder, answer) from error


def _delete(folder: str, parameters: Parameters) -> Conversation[None]:
    answer = yield call("DELETE", folder, "DELETE", parameters, recursive="true")
    _done(answer, "DELETE", folder, OK)


def _read(path: str, parameters: Parameters, **piece: str) -> Conversation[bytes]:
    answer = yield call("GET", path, "OPEN", parameters, **piece)
    if answer.status == REDIRECT and answer.location:  # WebHDFS; HttpFS answers itself
        answer = yield Call("GET", answer.location, headers(parameters))
    return _done(answer, "OPEN", path, OK).body


def _create(path: str, data: bytes, parameters: Parameters) -> Conversation[None]:
    yield from make_folder(path.rpartition("/")[0], parameters)
    # HttpFS overwrites where it is not told otherwise.
    first = call("PUT", path, "CREATE", parameters, overwrite="false")
    answer = yield from send_data(first, data, parameters)
    # Without a redirect no data were sent, so no status is a success: none is 0.
    _done(answer, "CREATE", path, CREATED if answer.is_of_data else 0)


def _append(path: str, data: bytes, parameters: Parameters) -> Conversation[None]:
    answer = yield from send_data(call("POST", path, "APPEND", parameters), data, parameters)
    _done(answer, "APPEND", path, OK if answer.is_of_data else 0)


def _truncate(path: str, length: int, parameters: Parameters) -> Conversation[None]:
    answer = yield call("POST", path, "TRUNCATE", parameters, newlength=str(length))
    if _json(answer, "TRUNCATE", path).get("boolean") is not True:
        raise BusyError(f"TRUNCATE to {length} B is under way at the DataNodes")


def _json(answer: Answer, operation: str, path: str) -> dict[str, object]:
    # Outside of the block below: an error of settings is a ValueError, too.
    body = _done(answer, operation, path, OK).body
    try:
        document = json.loads(body)
    except ValueError as error:
        raise refused(f"{operation}, expected JSON, {error}", path, answer) from error
    return document if isinstance(document, dict) else {}


def _done(answer: Answer, operation: str, path: str, expected: int) -> Answer:
    if answer.status == expected:
        return answer
    kind, message = remote(answer)
    if is_busy(kind, message):
        raise BusyError(f"{kind}: {message[:200]}")
    if is_impersonation_refused(message):
        raise impersonation_refused(message)
    raise refused(operation, path, answer)
