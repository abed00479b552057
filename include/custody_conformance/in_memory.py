"""The run of a case in memory: judges the request, makes batches, writes lines to a simulated HDFS.

The simulated HDFS answers as WebHDFS does and refuses the same names, so a name that HDFS would not take fails here
too. Files are written with the calls of NGSIToHDFS (`add_lines`), which the cases list; custody's own sink makes
others.
"""

from __future__ import annotations

import itertools
import json
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec
import pyarrow.parquet as pq
from pyarrow import BufferReader

from custody.capture.ngsi_notification import Notification
from custody.errors import InvalidInputError, StorageError
from custody.ngsi.hive import HiveTable, hive_table
from custody.ngsi.http_notification import Accepts, Refusal, judge_request
from custody.ngsi.naming import COMPONENT_BYTES_MAX, Destination
from custody.ngsi.parameters import Parameters, read_names
from custody.ngsi.records import ReceiveTime, Record, Unplaced, records
from custody.ngsi.rendering import file_additions
from custody.ngsi_sink.run import EventBatch, cut_batches
from custody.ngsi_sink.target import waits_ms
from custody.ngsi_sink.webhdfs import (
    CREATED,
    FORBIDDEN,
    NOT_FOUND,
    OK,
    REDIRECT,
    Answer,
    Call,
    Conversation,
    Endpoints,
    call,
    converse,
    make_folder,
    refused,
    send_data,
)
from custody_conformance.case import Case

_BAD_REQUEST, _ERROR = 400, 500
_DATA_NODE = "http://datanode.example.org:9864"
_TIMES = {"once": 1, "twice": 2}
LOCATION = "<Location>"
"""Stands in the list of calls for the URL that a NameNode redirected to."""


@dataclass(slots=True)
class Faults:
    """Faults of a case: hosts where every call fails, and how many attempts fail at all hosts."""

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
    match = re.search(r"\b(once|twice)\b|\b(\d+) (?:times|attempts)\b|\bfirst (\d+)\b", what)
    if match is None:
        raise ValueError(f"fault of the backend {what!r}: expected 'always fails' or 'fails 2 times'")
    return _TIMES[match[1]] if match[1] else int(match[2] or match[3])


@dataclass(slots=True)
class MemoryHdfs:
    """A simulated HDFS: files by path, and the calls that it answered as method, target, status."""

    faults: Faults
    files: dict[str, bytes] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    calls: list[tuple[str, str, int]] = field(default_factory=list)
    attempt: int = 0
    """The number of the current attempt; faults are for the first ones."""

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


ATTEMPTS_MAX = 100
"""Of a batch that is retried for ever."""
_DONE = 200


@dataclass(slots=True)
class Outcome:
    """The result of a case: all that it can have expectations of."""

    statuses: list[int] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    wrong_parameters: list[str] = field(default_factory=list)
    answers: dict[str, str] = field(default_factory=dict)
    """Headers of the answers to refused requests."""
    events: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    """Of the first event."""
    files: dict[str, bytes] = field(default_factory=dict)
    tables: list[HiveTable] = field(default_factory=list)
    batches: int = 0
    attempt_offsets_ms: list[int] = field(default_factory=list)
    is_dropped: bool = False
    calls: list[tuple[str, str, int]] = field(default_factory=list)
    endpoints: tuple[str, ...] = ()

    @property
    def error(self) -> str:
        """Everything that went wrong, as one text."""
        return "; ".join(self.errors)

    def lines(self, path: str) -> list[str]:
        """Return the lines of a file; of Parquet, each row as JSON."""
        data = self.files[path]
        if path.endswith(".parquet"):
            return [_row_json(row) for row in pq.read_table(BufferReader(data)).to_pylist()]
        return data.decode().split("\n")[:-1]


def _row_json(row: dict[str, object]) -> str:
    """Return a row as JSON, with times in the form of text lines."""
    return msgspec.json.encode(
        {
            name: value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            if isinstance(value, datetime)
            else value
            for name, value in row.items()
        }
    ).decode()


def run(case: Case) -> Outcome:
    """Run a case in memory.

    Raises:
        InvalidInputError: the case has a member that is not understood.
    """
    outcome = Outcome()
    parameters = read_names(case.config, grouping_rules=case.grouping_rules, name_mappings=case.name_mappings)
    if not isinstance(parameters, Parameters):
        outcome.wrong_parameters = [wrong.name for wrong in parameters]
        outcome.errors = [f"invalid configuration: {wrong.name}: {wrong.reason}" for wrong in parameters]
        return outcome
    try:
        faults = Faults.read(case.faults)
    except ValueError as error:
        raise InvalidInputError(f"case {case.id}: {error}") from error
    hdfs = MemoryHdfs(faults)
    _Sink(parameters, hdfs, outcome).take(_received(case, parameters, outcome))
    outcome.files, outcome.calls = hdfs.files, hdfs.calls
    return outcome


def _received(case: Case, parameters: Parameters, outcome: Outcome) -> Iterator[tuple[int, Record | Unplaced]]:
    """Yield the records of all notifications with the times of their arrival."""
    accepts = Accepts.of(parameters.values)
    for sent in case.sent:
        headers = {**case.headers, **sent.headers}
        at_ms = case.clock.recv_time_ms if sent.at_ms is None else sent.at_ms
        judged = judge_request(case.request.method, case.request.path, headers, case.bytes_of(sent), accepts)
        if isinstance(judged, Refusal):
            outcome.statuses.append(judged.status)
            outcome.errors.append(judged.message)
            outcome.answers |= judged.headers
            continue
        outcome.statuses.append(_DONE)
        outcome.errors += [f"entity {broken.index}: {broken.reason}" for broken in judged.broken]
        stamp = case.clock.timestamp
        arrival = ReceiveTime.at(at_ms, parameters) if stamp is None else ReceiveTime.stamped(stamp)
        transaction = str(uuid.uuid4())
        outcome.events += len(judged.entities)
        outcome.headers = outcome.headers or _headers(judged, arrival, transaction, parameters)
        for record in records(judged, arrival, parameters, transaction=transaction):
            yield at_ms, record


def _headers(
    notification: Notification, arrival: ReceiveTime, transaction: str, parameters: Parameters
) -> dict[str, str]:
    values = parameters.values
    return {
        "content-type": notification.headers.get("content-type", ""),
        "fiware-service": notification.service or values.default_service,
        "fiware-servicepath": notification.headers.get("fiware-servicepath") or values.default_service_path,
        "fiware-correlator": notification.correlator or transaction,
        "transaction-id": transaction,
        "timestamp": arrival.timestamp,
    }


class _Sink:
    """Takes records batch by batch; a batch that cannot be written is tried again, then counted as dropped."""

    def __init__(self, parameters: Parameters, hdfs: MemoryHdfs, outcome: Outcome) -> None:
        self._parameters = parameters
        self._hdfs = hdfs
        self._outcome = outcome
        self._endpoints = Endpoints(parameters.hosts)
        self._columns: dict[str, tuple[str, ...]] = {}
        self._tables: dict[str, tuple[str, ...]] = {}

    def take(self, received: Iterator[tuple[int, Record | Unplaced]]) -> None:
        """Write everything."""
        values = self._parameters.values
        for batch in cut_batches(received, size=values.batch_size, timeout_ms=values.batch_timeout * 1000):
            self._outcome.batches += 1
            self._persist(batch)
        self._outcome.endpoints = self._endpoints.hosts

    def _persist(self, batch: EventBatch[Record | Unplaced]) -> None:
        for item in batch.items:
            if isinstance(item, Unplaced):
                self._outcome.errors.append(f"entity {item.entity.id[:80]}: {item.reason}")
        placed = [item for item in batch.items if isinstance(item, Record)]
        additions = file_additions(placed, self._parameters, self._columns, part=f"part-{self._outcome.batches:05d}")
        self._outcome.errors += [item.reason for item in additions.unplaced.values()]
        if not self._write_with_retries(additions.files):
            self._outcome.is_dropped = True
            return
        # Only once it is written: a batch that is dropped leaves no columns.
        self._columns |= additions.columns
        if self._parameters.values.hive:
            for destination in {
                record.placed.destination.location: record.placed.destination for record in placed
            }.values():
                self._describe(destination)

    def _write_with_retries(self, files: Mapping[str, bytes]) -> bool:
        """Write files; each is written once, whatever was tried before. Return whether all of them are."""
        remaining, offset = dict(files), 0
        # Endless retries are cut off after enough attempts to see that they are endless.
        for wait in itertools.chain([0], itertools.islice(waits_ms(self._parameters), ATTEMPTS_MAX)):
            offset += wait
            self._outcome.attempt_offsets_ms.append(offset)
            self._hdfs.attempt += 1
            try:
                for path in list(remaining):
                    _, self._endpoints = converse(
                        add_lines(path, remaining[path], self._parameters), self._endpoints, self._hdfs.ask
                    )
                    # NGSIToHDFS appends without looking: a file that was written must not be tried again.
                    del remaining[path]
            except StorageError as error:
                last = str(error)
                continue
            return True
        self._outcome.errors.append(last)
        return False

    def _describe(self, destination: Destination) -> None:
        had = self._tables.get(destination.location, ())
        have = self._columns.get(destination.location, ())
        if destination.location in self._tables and had == have:
            return
        self._outcome.tables.append(hive_table(destination, self._parameters, attributes=have, had=had))
        self._tables[destination.location] = have


def add_lines(path: str, data: bytes, parameters: Parameters) -> Conversation[None]:
    """Append bytes to a file as NGSIToHDFS does; make it, and its folder, where it does not exist.

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


def _send(
    method: str, path: str, operation: str, expected: int, data: bytes, parameters: Parameters
) -> Conversation[None]:
    answer = yield from send_data(call(method, path, operation, parameters), data, parameters)
    if not answer.is_of_data or answer.status != expected:
        raise refused(f"{operation} of the data" if answer.is_of_data else operation, path, answer)
