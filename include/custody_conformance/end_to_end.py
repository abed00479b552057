"""The run of a case end to end: HTTP requests to a receiver, journals, a rollover, the job of the sink, files.

The files are in a scratch folder of this machine, or of an HDFS, over REST or RPC (`FsUri`, `ScratchDir`). Everything
is what runs in production, except for the clock, which follows the case, and a target that fails where the case says
so. Expectations that only the calls to HDFS can meet (`rest_calls`, `endpoint_order_after`), and the headers that other
systems give an event, are met by the run in memory.
"""

from __future__ import annotations

import http.client
import json
import re
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, Thread
from typing import Protocol, Self
from urllib.parse import unquote, urlsplit

import msgspec

from custody.clock import ManualClock
from custody.config import NgsiSection, Settings
from custody.errors import ConfigurationError, StorageError
from custody.lease import Attempt
from custody.ngsi.hive import hive_table
from custody.ngsi.parameters import Parameters, read_names
from custody.ngsi.records import ReceiveTime
from custody.ngsi_sink.batch_file import SKIPPED, SKIPPED_DECODER, FileAppend
from custody.ngsi_sink.batch_plan import BatchResult
from custody.ngsi_sink.opening import open_files, open_sink, sink_folder
from custody.ngsi_sink.run import SinkReport
from custody.ngsi_sink.sink import Sink
from custody.ngsi_sink.sink_state import SinkCatalog
from custody.ngsi_sink.target import AppendableFiles, FilesTarget
from custody.recovery import STEPS
from custody.repository.repository import Repository
from custody.serving.ngsi_intake import Intake
from custody.spark.ngsi import take_all
from custody.vfs import PosixFileSystem
from custody.workspace import Workspace
from custody_conformance import in_memory
from custody_conformance.case import Case
from custody_conformance.in_memory import ATTEMPTS_MAX, Faults, Outcome

_BACKENDS = {"file": "file", "hdfs": "binary", "webhdfs": "rest", "swebhdfs": "rest"}
_PORTS = {"hdfs": 8020, "webhdfs": 9870, "swebhdfs": 9871}
_ACCESS = (
    "krb5_auth",
    "krb5_user",
    "krb5_password",
    "krb5_keytab",
    "hdfs_doas",
    "delegation_token_file",
    "krb5_conf_file",
    "krb5_login_conf_file",
    "oauth2_token",
    "backend_max_conns",
    "backend_max_conns_per_route",
    "backend_timeout",
    "backend_files_at_once",
)
_FORMS = "file:///folder, hdfs://host:8020/folder or webhdfs://host:9870/folder"


class ListableFiles(AppendableFiles, Protocol):
    """A file system that can list, read and remove as well, to compare files and to clean up.

    All methods raise StorageError. The sink itself never lists a folder: it knows its paths.
    """

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
class FsUri:
    """A URI that names a folder of a file system."""

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
        """Parse a URI; several NameNodes have commas between them.

        Raises:
            ConfigurationError: it names no folder of a file system that is known.
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
        """Return the settings of the section `ngsi` that reach it, with the login of `access`."""
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


class ScratchDir:
    """A scratch folder as a file system of its own: its paths begin at the folder."""

    def __init__(self, files: ListableFiles, folder: str) -> None:
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
        """End what a dead writer began."""
        self._files.settle(self._folder + path)

    def create(self, path: str, data: memoryview) -> None:
        """Create a file and the folders above it, durably."""
        self._files.create(self._folder + path, data)

    def append(self, path: str, data: memoryview) -> None:
        """Add bytes at the end of a file, durably."""
        self._files.append(self._folder + path, data)

    def cut(self, path: str, length: int) -> None:
        """Cut a file, durably."""
        self._files.cut(self._folder + path, length)

    def uri(self, path: str) -> str:
        """Return the URI of a file."""
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


_HOST = "127.0.0.1"
_START_SECONDS = 30.0
_SECONDS_DIGITS_MAX = 11
_PARQUET = ".parquet"


class _EndlessError(Exception):
    """A batch that is retried for ever was tried often enough to see that."""


@dataclass(frozen=True, slots=True)
class EndToEnd:
    """Runs cases the whole way, one after the other.

    Args:
        base: where files go, each case in a folder of its own that is removed afterwards; None: on this machine.
        rpc: makes the files of backend `binary`, see `custody.ngsi_sink.opening.open_target`.
        access: who logs in at the base, and how it is asked.
    """

    base: FsUri | None = None
    rpc: Callable[[Parameters], ListableFiles] | None = None
    access: NgsiSection = field(default_factory=NgsiSection)

    def run(self, case: Case) -> Outcome:
        """Run a case end to end.

        Raises:
            InvalidInputError: the case has a member that is not understood.
            ConfigurationError: the receiver needs packages that are not installed, or the base a session of Spark;
                or nobody can log in there.
            StorageError: nobody answers at the base, or a refusal.
        """
        # It gives what no run end to end can show: calls to HDFS, headers of other systems, the order of files.
        memory = in_memory.run(case)
        if memory.wrong_parameters:
            return memory  # the receiver would not even start
        outcome = Outcome(headers=memory.headers, calls=memory.calls, endpoints=memory.endpoints)
        with tempfile.TemporaryDirectory(prefix="custody-case-") as folder:
            root = Path(folder)
            base = self.base or FsUri("file", "", 1, str(root))
            # A name of its own each time: the base may be a shared HDFS, with what a broken run left.
            scratch = f"{base.folder}/custody-check-{uuid.uuid4().hex[:12]}-{re.sub(r'[^A-Za-z0-9]', '-', case.id)}"
            settings = _settings(case, root, base.settings(self.access))
            parameters = Parameters.from_section(settings.ngsi, root)
            files = ScratchDir(open_files(parameters, PosixFileSystem(), root, rpc=self.rpc), scratch)
            with closing(files):
                try:
                    _run(case, outcome, settings, files)
                    outcome.files = _with_case_names(files.contents(), order=memory.files)
                finally:
                    with suppress(StorageError):  # where nobody answers, another error is on its way already
                        files.remove()
            return outcome


def _run(case: Case, outcome: Outcome, settings: Settings, files: ScratchDir) -> None:
    clock = ManualClock(0)
    repository = Repository(settings, clock=clock)
    with receiving(repository, clock) as port:
        post_case(case, port, clock, outcome)
    # A rollover: the sink takes live events only, none from journals.
    for step in STEPS.values():
        for unit in step.units(settings):
            step.run(Workspace(settings, unit.writer, clock=clock), unit)
    # Past the time-out of the last batch, so that every batch is due.
    clock.advance((settings.ngsi.batch_timeout + 1) * 1000)
    parameters = Parameters.from_section(settings.ngsi, settings.root)
    target = _FaultyTarget(files, Faults.read(case.faults), _parameters(case).hosts)
    tables = _Tables(parameters, outcome)
    try:
        with open_sink(repository, Attempt.new("case"), target=target, sleep=target.sleep) as opened:
            tables.sink = opened.sink

            def on_chunk(result: BatchResult) -> None:
                target.end()
                tables.describe(result)

            # One batch a chunk: attempts are counted batch by batch, as in the run in memory.
            report, _ = take_all(opened, on_chunk=on_chunk, chunk_events=1)
    except _EndlessError:
        report = SinkReport(batches=1, quarantined=1, problems=["it was tried again and again"])
    outcome.batches = report.batches
    outcome.attempt_offsets_ms = target.offsets_ms
    outcome.is_dropped = bool(report.quarantined)
    outcome.errors += report.problems
    outcome.errors += _skipped(repository, clock)
    outcome.errors += [entry.message for entry in repository.quarantine.entries()]


def _parameters(case: Case) -> Parameters:
    parameters = read_names(case.config, grouping_rules=case.grouping_rules, name_mappings=case.name_mappings)
    assert isinstance(parameters, Parameters)  # noqa: S101 - a case with wrong ones was not run
    return parameters


def _settings(case: Case, root: Path, changed: dict[str, object]) -> Settings:
    """Return the settings of a repository that does what the case configures, but for what is changed."""
    for name, document in (("grouping_rules", case.grouping_rules), ("name_mappings", case.name_mappings)):
        (root / f"{name}.json").write_text(json.dumps(document))
        changed[f"{name}_file"] = root / f"{name}.json"
    if case.clock.timestamp is not None:
        # No broker sends one: the clock says it instead, in its unit.
        changed["recv_time_unit"] = "s" if len(case.clock.timestamp) <= _SECONDS_DIGITS_MAX else "ms"
    ngsi = _parameters(case).values.model_copy(update=changed)
    return Settings.model_validate({"root": root, "ngsi": ngsi})


def post_case(case: Case, port: int, clock: ManualClock, outcome: Outcome) -> None:
    """Post the notifications of a case, each at its time, to a receiver that has this clock; note what it answers."""
    for sent in case.sent:
        at_ms = case.clock.recv_time_ms if sent.at_ms is None else sent.at_ms
        if case.clock.timestamp is not None:
            at_ms = ReceiveTime.stamped(case.clock.timestamp).received_ms
        # The receiver stamps what arrives by its own clock, so that is set to the case's time first.
        clock.advance(at_ms - clock.now_ms())
        headers, body = {**case.headers, **sent.headers}, case.bytes_of(sent)
        status, answer_headers, answer = _post(port, case.request.method, case.request.path, headers, body)
        outcome.statuses.append(status)
        if status == http.HTTPStatus.OK:
            outcome.events += int(answer["stored"])  # type: ignore[call-overload]
        else:
            outcome.errors.append(str(answer.get("message", "")))
            outcome.answers |= answer_headers


def _post(
    port: int, method: str, target: str, headers: dict[str, str], body: bytes
) -> tuple[int, dict[str, str], dict[str, object]]:
    connection = http.client.HTTPConnection(_HOST, port, timeout=60)
    try:
        connection.putrequest(method, target, skip_accept_encoding=True)
        for name, value in headers.items():
            # As bytes: of a text http.client would take Latin-1 only.
            connection.putheader(name, value.encode("utf-8"))
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        response = connection.getresponse()
        data = response.read()
        answer_headers = {name.title(): value for name, value in response.getheaders()}
        return response.status, answer_headers, msgspec.json.decode(data) if data else {}
    finally:
        connection.close()


@contextmanager
def receiving(repository: Repository, clock: ManualClock) -> Iterator[int]:
    """Serve the receiver of a repository on a free port of this machine; return the port."""
    import uvicorn  # only who runs cases end to end needs it

    from custody.serving.ngsi_receiver import Receiver, receiver_app

    with repository.writer() as writer, Intake(writer, repository.settings.receiver.requests_max) as intake:
        app = receiver_app(Receiver(repository.settings, intake, repository.quarantine, clock))
        server = uvicorn.Server(uvicorn.Config(app, host=_HOST, port=0, log_config=None, lifespan="off"))
        thread = Thread(target=server.run, name="custody-case", daemon=True)
        thread.start()
        deadline = time.monotonic() + _START_SECONDS
        while not server.started:
            if time.monotonic() > deadline:
                raise StorageError(f"the receiver of a case did not start within {_START_SECONDS:.0f} s")
            time.sleep(0.005)
        try:
            yield server.servers[0].sockets[0].getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


class _FaultyTarget(FilesTarget):
    """A target with the faults of a case: it fails always, or at the first attempts."""

    def __init__(self, files: ScratchDir, faults: Faults, hosts: Sequence[str]) -> None:
        super().__init__(files)
        self._failing = faults.failing_attempts
        self._reason = "made to fail"
        if set(hosts) <= faults.dead_hosts | faults.standby_hosts:
            self._failing, self._reason = None, f"none of {', '.join(hosts)} answers"
        self._attempt = 0
        self._is_begun = False
        self._lock = Lock()
        self._offset_ms = 0
        self.offsets_ms: list[int] = []

    def length(self, path: str) -> int:
        """Return the bytes of a file, unless this attempt is to fail."""
        self._begin()
        self._fail()
        return super().length(path)

    def apply(self, part: FileAppend, data: memoryview) -> None:
        """Bring a part into its file, unless this attempt is to fail."""
        self._fail()
        super().apply(part, data)

    def sleep(self, seconds: float) -> None:
        """Note a wait before a retry, and return at once."""
        self._attempt += 1
        self._offset_ms += round(seconds * 1000)
        self.offsets_ms.append(self._offset_ms)
        if len(self.offsets_ms) > ATTEMPTS_MAX:
            raise _EndlessError

    def end(self) -> None:
        """A batch is over."""
        self._is_begun = False

    def _begin(self) -> None:
        # Several threads look at files of one batch; only the first one begins the attempt.
        with self._lock:
            if not self._is_begun:
                self._is_begun, self._offset_ms = True, 0
                self._attempt += 1
                self.offsets_ms.append(0)

    def _fail(self) -> None:
        if self._failing is None or self._attempt <= self._failing:
            raise StorageError(self._reason)


@dataclass(slots=True)
class _Tables:
    """Collects the Hive tables of what is written, batch by batch."""

    parameters: Parameters
    outcome: Outcome
    sink: Sink | None = None
    had: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def describe(self, result: BatchResult) -> None:
        """Note the tables that a batch creates or changes."""
        if self.sink is None or not self.parameters.values.hive:
            return
        for destination in result.destinations:
            had, have = self.had.get(destination.location, ()), self.sink.columns.get(destination.location, ())
            if destination.location not in self.had or had != have:
                self.outcome.tables.append(hive_table(destination, self.parameters, attributes=have, had=had))
                self.had[destination.location] = have


def _skipped(repository: Repository, clock: ManualClock) -> list[str]:
    catalog = SinkCatalog(PosixFileSystem(), sink_folder(repository.settings), clock)
    lists = (SKIPPED_DECODER.decode(catalog.read(name)) for name in catalog.names(SKIPPED))
    return [item.reason for items in lists for item in items]


def _with_case_names(there: dict[str, bytes], order: Iterable[str]) -> dict[str, bytes]:
    """Return files in the order of the run in memory; those of Parquet are called as there, by their batch's number."""
    parts = sorted({Path(path).name for path in there if path.endswith(_PARQUET)})
    called = {name: f"part-{number:05d}{_PARQUET}" for number, name in enumerate(parts, 1)}
    named = {
        str(Path(path).with_name(called.get(Path(path).name, Path(path).name))): data for path, data in there.items()
    }
    return {path: named.pop(path) for path in order if path in named} | dict(sorted(named.items()))
