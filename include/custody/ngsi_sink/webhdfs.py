"""The REST interface of HDFS as a conversation: what to ask next, from what was answered; no socket in here.

A conversation is a generator: it yields a `Call` and is sent the `Answer`. Whoever drives it talks to the network, so
the same one runs against WebHDFS, HttpFS and a fake. `Endpoints` keeps the NameNodes in the order in which they
are worth trying. `add_lines` is what NGSIToHDFS asks, `custody.ngsi_sink.webhdfs` what custody does.

HDFS by REST, WebHDFS or HttpFS: what is asked so that a part stands in its file once.

Each method of `RestFiles` is a conversation (`custody.ngsi_sink.webhdfs`) of one or two calls. None is begun a second
time
here when an answer was lost: whoever applies a part again sees first what was done. What HDFS says while another writer
has the file open, or while it finds out how much of one that died is there, is BusyError.

Calls to a REST backend over real sockets: pooled connections, their limits, time-outs, TLS, cookies of Kerberos.

No call is repeated here but one that was not let in, and no redirect is followed: what to do next is the business of
the conversation.

Which target the parameters choose; the one function that whoever runs a sink calls.
"""

from __future__ import annotations

import hashlib
import json
import threading
from base64 import b64encode
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, Self, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from custody.config import NgsiSection
from custody.errors import ConfigurationError, StorageError
from custody.ngsi.parameters import Parameters
from custody.ngsi_sink.kerberos import Login
from custody.ngsi_sink.local import LocalFiles
from custody.ngsi_sink.target import BusyError, Files, FilesTarget, Target, no_file
from custody.vfs import FileSystem

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


_COOKIE = "hadoop.auth"
Negotiate = Callable[[str], bytes]
"""Returns the first token of SPNEGO for a host; raises as `custody.ngsi_sink.kerberos.Login.token`."""


class Network:
    """Connections to the hosts of one HDFS; several threads may ask at once."""

    def __init__(self, values: NgsiSection, negotiate: Negotiate | None = None) -> None:
        try:
            import urllib3
        except ImportError as error:
            raise ConfigurationError(
                "ngsi.backend rest: urllib3 is not installed. Run: pip install 'custody[ngsi]'"
            ) from error

        self._scheme = "https" if values.backend_tls else "http"
        self._error: type[Exception] = urllib3.exceptions.HTTPError
        self._pools = urllib3.PoolManager(
            maxsize=values.backend_max_conns_per_route,
            block=True,
            retries=False,
            timeout=urllib3.Timeout(connect=values.backend_timeout, read=values.backend_timeout),
        )
        self._all = threading.BoundedSemaphore(values.backend_max_conns)
        self._negotiate = negotiate or (Login(values).token if values.krb5_auth else None)
        self._proving = threading.Lock()
        self._cookies: dict[str, str] = {}

    def ask(self, host: str, call: Call) -> Answer:
        """Send a call to a host, or to its own URL, and return the answer.

        Raises:
            OSError: nobody answers, or not in time; whether it was done is unknown.
            ConfigurationError: Kerberos refuses the user of the settings.
        """
        url = call.target if urlsplit(call.target).scheme else f"{self._scheme}://{host}{call.target}"
        place = urlsplit(url).netloc
        cookie = self._cookies.get(place)
        answer = self._sent(call, url, _cookie(cookie))
        if answer.status == UNAUTHORIZED and self._negotiate is not None:
            # One at a time: several threads find the same cookie expired, and one login is enough for all.
            with self._proving:
                if self._cookies.get(place) not in (None, cookie):
                    answer = self._sent(call, url, _cookie(self._cookies[place]))
                if answer.status == UNAUTHORIZED:
                    self._cookies.pop(place, None)
                    token = b64encode(self._negotiate(urlsplit(url).hostname or host)).decode()
                    answer = self._sent(call, url, {"Authorization": f"Negotiate {token}"})
        return answer

    def close(self) -> None:
        """Close all connections."""
        self._pools.clear()

    def _sent(self, call: Call, url: str, proofs: dict[str, str]) -> Answer:
        with self._all:
            try:
                found = self._pools.request(
                    call.method,
                    url,
                    # A length of nothing is said too: some proxies refuse a PUT or POST without it.
                    body=call.body if call.method != "GET" else None,
                    headers={**call.headers, **proofs},
                    redirect=False,
                )
            except self._error as error:
                raise ConnectionError(f"{type(error).__name__}: {error}") from error
        for cookie in found.headers.getlist("Set-Cookie"):
            name, _, value = cookie.partition(";")[0].partition("=")
            # One that was not let in gets an empty one, which takes the old one away.
            if name == _COOKIE and value.strip('"') and self._negotiate is not None:
                self._cookies[urlsplit(url).netloc] = f"{name}={value}"
        return Answer(found.status, found.data, found.headers.get("Location", ""))


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


class Asked(Protocol):
    """Who sends calls: `Network`, or a fake."""

    def ask(self, host: str, call: Call) -> Answer:
        """Send a call and return the answer. Raises OSError where nobody answers."""
        ...

    def close(self) -> None:
        """Give connections back."""
        ...


class RestFiles:
    """Files of HDFS, through its REST interface. One object serves several threads."""

    outlives_writers = True

    def __init__(self, parameters: Parameters, network: Asked) -> None:
        self._parameters = parameters
        self._network = network
        self._endpoints = Endpoints(tuple(authority(host, parameters.values.hdfs_port) for host in parameters.hosts))
        self._lock = threading.Lock()

    @classmethod
    def open(cls, parameters: Parameters) -> Self:
        """Return the files of the HDFS that the parameters name; nothing is asked yet.

        Raises:
            ConfigurationError: Kerberos is wanted, and what it needs is not installed.
        """
        return cls(parameters, Network(parameters.values))

    def size(self, path: str) -> int | None:
        """Return the bytes of a file, None where there is none."""
        return self._led(_size(path, self._parameters))

    def digest(self, path: str, offset: int, length: int) -> str:
        """Return the SHA-256 of a piece of a file, in hexadecimal."""
        piece = self._led(_read(path, self._parameters, offset=str(offset), length=str(length))) if length else b""
        return hashlib.sha256(piece).hexdigest()

    def settle(self, path: str) -> None:
        """See that nobody has the file open: to cut it to its own length does nothing but end a dead writer's lease."""
        size = self.size(path)
        if size is not None:
            self.cut(path, size)

    def create(self, path: str, data: memoryview) -> None:
        """Make a file and the folders above it."""
        self._led(_create(path, bytes(data), self._parameters))

    def append(self, path: str, data: memoryview) -> None:
        """Add bytes at the end of a file."""
        self._led(_append(path, bytes(data), self._parameters))

    def cut(self, path: str, length: int) -> None:
        """Cut a file; BusyError until the DataNodes have done it."""
        self._led(_truncate(path, length, self._parameters))

    def walk(self, folder: str) -> Iterator[str]:
        """Yield the paths of all files below a folder."""
        for name, is_folder in self._led(_list(folder, self._parameters)):
            path = f"{folder}/{name}"
            if is_folder:
                yield from self.walk(path)
            else:
                yield path

    def read(self, path: str) -> bytes:
        """Return a file."""
        return self._led(_read(path, self._parameters))

    def remove(self, folder: str) -> None:
        """Remove a folder with all that is in it."""
        self._led(_delete(folder, self._parameters))

    def uri(self, path: str) -> str:
        """Return `webhdfs://…` with the first NameNode of the settings, whichever is active."""
        values = self._parameters.values
        scheme = "swebhdfs" if values.backend_tls else "webhdfs"
        return f"{scheme}://{authority(self._parameters.hosts[0], values.hdfs_port)}{quote(path)}"

    def close(self) -> None:
        """Give connections back."""
        self._network.close()

    def _led(self, conversation: Conversation[Result]) -> Result:
        with self._lock:
            endpoints = self._endpoints
        result, after = converse(conversation, endpoints, self._network.ask)
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
    found = _json(answer, "GETFILESTATUS", path).get("FileStatus")
    if isinstance(found, dict) and found.get("type") in ("DIRECTORY", "SYMLINK"):
        raise no_file(f"HDFS {path}")
    if not isinstance(found, dict) or found.get("type") != "FILE":
        raise refused(f"GETFILESTATUS, expected a file, of {found!r:.200}", path, answer)
    return int(found["length"])


def _list(folder: str, parameters: Parameters) -> Conversation[list[tuple[str, bool]]]:
    answer = yield call("GET", folder, "LISTSTATUS", parameters)
    if answer.status == NOT_FOUND:
        return []
    try:
        found = json.loads(_done(answer, "LISTSTATUS", folder, OK).body)["FileStatuses"]["FileStatus"]
        return [(str(item["pathSuffix"]), item["type"] == "DIRECTORY") for item in found]
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
    _done(answer, "CREATE", path, CREATED if answer.is_of_data else 0)


def _append(path: str, data: bytes, parameters: Parameters) -> Conversation[None]:
    answer = yield from send_data(call("POST", path, "APPEND", parameters), data, parameters)
    _done(answer, "APPEND", path, OK if answer.is_of_data else 0)


def _truncate(path: str, length: int, parameters: Parameters) -> Conversation[None]:
    answer = yield call("POST", path, "TRUNCATE", parameters, newlength=str(length))
    if _json(answer, "TRUNCATE", path).get("boolean") is not True:
        raise BusyError(f"TRUNCATE to {length} B is under way at the DataNodes")


def _json(answer: Answer, operation: str, path: str) -> dict[str, object]:
    try:
        found = json.loads(_done(answer, operation, path, OK).body)
    except ValueError as error:
        raise refused(f"{operation}, expected JSON, {error}", path, answer) from error
    return found if isinstance(found, dict) else {}


def _done(answer: Answer, operation: str, path: str, wanted: int) -> Answer:
    if answer.status == wanted:
        return answer
    kind, message = remote(answer)
    if is_busy(kind, message):
        raise BusyError(f"{kind}: {message[:200]}")
    raise refused(operation, path, answer)


Rpc = TypeVar("Rpc", bound=Files)


def open_target(
    parameters: Parameters, fs: FileSystem, repository: Path, *, rpc: Callable[[Parameters], Files] | None = None
) -> Target:
    """Return where files of destinations go; close it in the end.

    Args:
        parameters: `ngsi.backend` chooses.
        fs: of backend `file`.
        repository: the folder that a relative `ngsi.backend_folder` lies in.
        rpc: makes the files of backend `binary`: `custody.spark.hdfs.rpc_files(session)`, for its client is Spark's.

    Raises:
        ConfigurationError: the backend cannot be had here.
    """
    return FilesTarget(open_files(parameters, fs, repository, rpc=rpc))


def open_files(
    parameters: Parameters, fs: FileSystem, repository: Path, *, rpc: Callable[[Parameters], Rpc] | None = None
) -> LocalFiles | RestFiles | Rpc:
    """Return the file system that a target is on; arguments and errors as of `open_target`."""
    values = parameters.values
    if values.backend == "file":
        return LocalFiles(fs, (repository / values.backend_folder).absolute())
    if values.backend == "binary":
        if rpc is None:
            raise ConfigurationError(
                "ngsi.backend binary: expected a Spark session, whose client of HDFS it uses, got none. "
                "Run the Spark job ngsi_to_hdfs, or set ngsi.backend to rest."
            )
        return rpc(parameters)
    return RestFiles.open(parameters)
